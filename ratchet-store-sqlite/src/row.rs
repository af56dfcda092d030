//! Conversions between stored values and the model's.

use std::time::Duration;

use ratchet_core::model::{
    Attempt, AttemptOutcome, BatchRecord, FairKey, Heartbeat, JobFlags, JobRecord, JobSpec,
    NodeLoad, NodeProfile, NodeRecord, NodeStatus, Progress, RecurringOrigin, Salvage,
    payload_version_from_stored,
};
use ratchet_core::time::from_millis;
use ratchet_core::{
    BatchId, InvalidInput, JobId, JobState, Json, Name, NodeId, Priority, RetryPolicy, Route,
    TraceContext,
};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::error::Result;

/// Reads a text column. Returns `None` if the column is NULL.
pub(crate) fn text<'a>(
    row: &'a Row<'_>,
    column: usize,
    field: &'static str,
) -> Result<Option<&'a str>, InvalidInput> {
    match row.get_ref(column) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Text(bytes)) => std::str::from_utf8(bytes)
            .map(Some)
            .map_err(|_| InvalidInput::new(field, "is not UTF-8")),
        _ => Err(InvalidInput::new(field, "is not text")),
    }
}

/// Reads a JSON value of a job. If the column does not contain valid text, returns a text that is
/// not valid JSON. The job then fails as a job with an invalid payload does.
pub(crate) fn json(row: &Row<'_>, column: usize) -> Option<Json> {
    match text(row, column, "document") {
        Ok(text) => text.map(Json::from_stored),
        Err(_) => Some(Json::from_stored("not UTF-8")),
    }
}

/// Reads a text that is only displayed. Replaces bytes that are not valid UTF-8.
fn message(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// Reads the queue that a job of a shared route names. If the column does not contain valid text,
/// returns a text that is not a valid name.
pub(crate) fn queue<'a>(row: &'a Row<'_>, column: usize) -> Option<&'a str> {
    text(row, column, "queue").unwrap_or(Some("\0"))
}

pub(crate) fn name(
    row: &Row<'_>,
    column: usize,
    field: &'static str,
) -> Result<Option<Name>, InvalidInput> {
    text(row, column, field)?
        .map(|text| Name::new(field, text))
        .transpose()
}

/// Reads the list of names that a column contains as one text.
fn names(row: &Row<'_>, column: usize, field: &'static str) -> Result<Vec<Name>, InvalidInput> {
    Name::split(field, text(row, column, field)?.unwrap_or_default())
}

/// Reads an integer column as type `T`. Fails if the value does not fit into `T`.
pub(crate) fn number<T: TryFrom<i64>>(
    row: &Row<'_>,
    column: usize,
    field: &'static str,
) -> Result<T, InvalidInput> {
    let number: i64 = row
        .get(column)
        .map_err(|_| InvalidInput::new(field, "is not a whole number"))?;
    T::try_from(number).map_err(|_| InvalidInput::new(field, format!("cannot be {number}")))
}

pub(crate) fn duration(
    row: &Row<'_>,
    column: usize,
    field: &'static str,
) -> Result<Option<Duration>, InvalidInput> {
    match row.get_ref(column) {
        Ok(ValueRef::Null) => Ok(None),
        _ => number(row, column, field).map(|millis| Some(Duration::from_millis(millis))),
    }
}

pub(crate) fn payload_version(row: &Row<'_>, column: usize) -> Result<u32, InvalidInput> {
    let stored = row
        .get(column)
        .map_err(|_| InvalidInput::new("payload_version", "is not a whole number"))?;
    payload_version_from_stored(stored)
}

pub(crate) fn trace(
    row: &Row<'_>,
    parent: usize,
    state: usize,
) -> Result<Option<TraceContext>, InvalidInput> {
    let Some(parent) = text(row, parent, "traceparent")? else {
        return Ok(None);
    };
    let state = text(row, state, "tracestate")?.map(str::to_owned);
    Ok(Some(TraceContext::from_stored(parent.to_owned(), state)))
}

pub(crate) fn job_id(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    row.get(column).map(JobId::from_bytes)
}

pub(crate) fn node_id(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<NodeId>> {
    let bytes: Option<[u8; 16]> = row.get(column)?;
    Ok(bytes.map(NodeId::from_bytes))
}

/// Reads the flags of a job. Uses only the lowest 15 bits of the stored number.
pub(crate) fn flags(row: &Row<'_>, column: usize) -> rusqlite::Result<JobFlags> {
    let bits: i64 = row.get(column)?;
    let bits = i16::try_from(bits & i64::from(i16::MAX)).unwrap_or_default();
    Ok(JobFlags::from_bits(bits))
}

/// Reads the name and the cost of a fair key, from two columns.
pub(crate) fn fair_key(row: &Row<'_>, column: usize) -> Result<Option<FairKey>, InvalidInput> {
    let Some(name) = text(row, column, "fair_key")? else {
        return Ok(None);
    };
    FairKey::from_stored(name, number(row, column + 1, "fair_cost")?).map(Some)
}

/// Reads an unsigned number. The database stores it as a signed number with the same bits.
pub(crate) fn seq(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

/// Reads a job from a row of the statement `get_job`. `route` is the job's route.
///
/// A partly damaged job is returned too, because operators must be able to inspect it. An
/// unreadable value gets its default. The job's last error names the unreadable value, unless the
/// job already has a last error. The function fails only if an essential column is unreadable.
pub(crate) fn job_record(row: &Row<'_>, route: Route) -> Result<JobRecord> {
    let data: Option<i64> = row.get(13)?;
    let mut salvage = Salvage::default();
    if data.is_none() {
        salvage.keep(Err(InvalidInput::new("data", "is missing")), ());
    }
    let priority = Priority::from_level(row.get(3)?)?;
    let mut spec = JobSpec::new(route, json(row, 14).unwrap_or_else(unreadable_payload));
    spec.priority = priority;
    spec.payload_version = salvage.keep(payload_version(row, 31), spec.payload_version);
    spec.retry = salvage.keep(
        text(row, 15, "retry").and_then(RetryPolicy::from_stored),
        RetryPolicy::default(),
    );
    spec.timeout = salvage.keep(duration(row, 16, "timeout"), None);
    spec.stall_timeout = salvage.keep(duration(row, 17, "stall_timeout"), None);
    spec.unique_key = salvage.keep(name(row, 18, "unique_key"), None);
    spec.idempotency_key = salvage.keep(name(row, 19, "idempotency_key"), None);
    spec.lane = salvage.keep(name(row, 27, "lane"), None);
    spec.fair_key = salvage.keep(fair_key(row, 33), None);
    spec.trace = salvage.keep(trace(row, 20, 21), None);
    let slot = row.get::<_, Option<i64>>(29)?.map(from_millis);
    let definition = salvage.keep(name(row, 28, "recurring"), None);
    spec.recurring = definition.map(|name| RecurringOrigin { name, slot });
    spec.tags = salvage
        .keep(names(row, 30, "tag"), Vec::new())
        .into_iter()
        .collect();

    let time = |column: usize| row.get(column).map(from_millis);
    let optional_time = |column: usize| {
        row.get::<_, Option<i64>>(column)
            .map(|at| at.map(from_millis))
    };
    let mut job = JobRecord::new(job_id(row, 0)?, spec, time(4)?, time(5)?);
    job.state = JobState::from_code(row.get(1)?)?;
    job.finished_at = optional_time(6)?;
    job.attempts = salvage.keep(number(row, 7, "attempts"), 0);
    job.crash_count = salvage.keep(number(row, 8, "crash_count"), 0);
    job.claim_seq = seq(row, 9)?;
    if job.state == JobState::Running {
        job.node = node_id(row, 10)?;
        job.claimed_at = optional_time(11)?;
        job.cancel_requested = row.get(12)?;
    }
    let percent = row.get::<_, Option<u8>>(22)?;
    job.progress = percent.map(|percent| Progress {
        percent,
        message: message(row, 23).unwrap_or_default(),
    });
    job.checkpoint = json(row, 24);
    job.result = json(row, 25);
    job.last_error = message(row, 26);
    salvage.finish(&mut job);
    Ok(job)
}

/// Reads a batch from a row of the statement `get_batch` or `list_batches`.
pub(crate) fn batch_record(row: &Row<'_>) -> Result<BatchRecord> {
    let id = BatchId::from_bytes(row.get(0)?);
    let mut batch = BatchRecord::new(id, from_millis(row.get(6)?));
    batch.total = seq(row, 1)?;
    batch.succeeded = seq(row, 2)?;
    batch.failed = seq(row, 3)?;
    batch.cancelled = seq(row, 4)?;
    batch.closed = row.get(5)?;
    batch.ended_at = row.get::<_, Option<i64>>(7)?.map(from_millis);
    Ok(batch)
}

fn unreadable_payload() -> Json {
    Json::from_stored("missing")
}

/// Reads an ended claim from a row of the statement `history`.
pub(crate) fn attempt(row: &Row<'_>) -> Result<Attempt> {
    let mut attempt = Attempt::new(
        seq(row, 0)?,
        node_id(row, 1)?,
        from_millis(row.get(2)?),
        from_millis(row.get(3)?),
        AttemptOutcome::from_code(row.get(5)?)?,
    );
    attempt.ran_for = row
        .get::<_, Option<i64>>(4)?
        .map(|micros| Duration::from_micros(micros.unsigned_abs()));
    attempt.error = message(row, 6);
    Ok(attempt)
}

/// Reads a node from a row of the statement `nodes` or `find_node`.
pub(crate) fn node_record(row: &Row<'_>) -> Result<NodeRecord> {
    let node = NodeId::from_bytes(row.get(0)?);
    let label = name(row, 1, "label")?.ok_or_else(|| InvalidInput::new("label", "is missing"))?;
    let status = NodeStatus::from_code(row.get(2)?)?;
    let interval = duration(row, 5, "interval")?.unwrap_or_default();
    let mut load = NodeLoad::new(number(row, 3, "running")?, number(row, 4, "capacity")?);
    load.connections = row.get(8)?;
    load.cpu_percent = row.get(9)?;
    load.memory_bytes = row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned);
    let mut profile = NodeProfile::new(names(row, 11, "roles")?, names(row, 12, "capabilities")?);
    // Kinds are optional: an unreadable list is left out rather than hiding the node.
    profile.kinds = match row.get_ref(13)? {
        ValueRef::Null => None,
        _ => names(row, 13, "kinds").ok(),
    };
    let heartbeat = Heartbeat::new(node, label, status, interval)
        .load(load)
        .profile(profile);
    let mut record = NodeRecord::joined(&heartbeat, from_millis(row.get(6)?));
    record.last_seen = from_millis(row.get(7)?);
    record.read_notes(message(row, 14).as_deref());
    Ok(record)
}
