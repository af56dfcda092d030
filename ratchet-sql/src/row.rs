//! Converts between stored values and the model's types.

use std::time::Duration;

use ratchet_core::model::{
    Attempt, AttemptOutcome, BatchRecord, FairKey, Heartbeat, JobRecord, JobSpec, NodeLoad,
    NodeProfile, NodeRecord, NodeStatus, Progress, RecurringOrigin, RunAt, Salvage,
    payload_version_from_stored,
};
use ratchet_core::time::{duration_millis, from_millis, to_millis};
use ratchet_core::{
    BatchId, ClaimToken, InvalidInput, JobId, JobState, Json, Name, NodeId, Priority, RetryPolicy,
    Route, TraceContext,
};
use uuid::Uuid;

use crate::dialect::Row;
use crate::failure::Result;

/// Reads a text column. Returns `None` for NULL. If the value has another type, returns an error
/// that names `field`.
pub(crate) fn text<'a>(
    row: &'a impl Row,
    column: usize,
    field: &'static str,
) -> Result<Option<&'a str>, InvalidInput> {
    row.try_get(column)
        .map_err(|_| InvalidInput::new(field, "is not a text"))
}

/// Reads a JSON document of a job. Returns `None` for NULL. If the value is not text, returns a
/// document that no handler can decode. The job then fails like any job with an invalid payload.
pub(crate) fn json(row: &impl Row, column: usize) -> Option<Json> {
    match row.try_get::<Option<String>>(column) {
        Ok(text) => text.map(Json::from_stored),
        Err(_) => Some(Json::from_stored("not a text")),
    }
}

/// Reads a text for display. Returns `None` if the value is NULL or cannot be read.
fn message(row: &impl Row, column: usize) -> Option<String> {
    row.try_get(column).unwrap_or_default()
}

pub(crate) fn name(
    row: &impl Row,
    column: usize,
    field: &'static str,
) -> Result<Option<Name>, InvalidInput> {
    text(row, column, field)?
        .map(|text| Name::new(field, text))
        .transpose()
}

/// Reads a list of names from a text column. NULL means an empty list.
fn names(row: &impl Row, column: usize, field: &'static str) -> Result<Vec<Name>, InvalidInput> {
    Name::split(field, text(row, column, field)?.unwrap_or_default())
}

fn optional_count<T: TryFrom<i64>>(
    row: &impl Row,
    column: usize,
    field: &'static str,
) -> Result<Option<T>> {
    let number: Option<i64> = row.try_get(column)?;
    Ok(number.map(|number| count(number, field)).transpose()?)
}

/// Converts a stored signed number to an unsigned type. If the number does not fit, returns an
/// error that names `field`.
pub(crate) fn count<T: TryFrom<i64>>(
    stored: impl Into<i64>,
    field: &'static str,
) -> Result<T, InvalidInput> {
    let stored = stored.into();
    T::try_from(stored).map_err(|_| InvalidInput::new(field, format!("cannot be {stored}")))
}

pub(crate) fn duration(
    row: &impl Row,
    column: usize,
    field: &'static str,
) -> Result<Option<Duration>, InvalidInput> {
    let stored: Option<i64> = row
        .try_get(column)
        .map_err(|_| InvalidInput::new(field, "is not a whole number"))?;
    stored
        .map(|millis| count(millis, field).map(Duration::from_millis))
        .transpose()
}

pub(crate) fn payload_version(row: &impl Row, column: usize) -> Result<u32, InvalidInput> {
    let stored: Option<i32> = row
        .try_get(column)
        .map_err(|_| InvalidInput::new("payload_version", "is not a whole number"))?;
    payload_version_from_stored(stored.map(i64::from))
}

pub(crate) fn trace(
    row: &impl Row,
    parent: usize,
    state: usize,
) -> Result<Option<TraceContext>, InvalidInput> {
    let Some(parent) = text(row, parent, "traceparent")? else {
        return Ok(None);
    };
    let state = text(row, state, "tracestate")?.map(str::to_owned);
    Ok(Some(TraceContext::from_stored(parent.to_owned(), state)))
}

/// Converts a due time to two parameters of a statement: a time and a delay, both in milliseconds.
/// If the time is `None`, the job is due after the delay.
pub(crate) fn due(due: RunAt) -> (Option<i64>, i64) {
    match due {
        RunAt::Now => (None, 0),
        RunAt::In(delay) => (None, duration_millis(delay)),
        RunAt::At(at) => (Some(to_millis(at)), 0),
    }
}

pub(crate) fn job_id(row: &impl Row, column: usize) -> Result<JobId> {
    Ok(row.try_get::<Uuid>(column)?.into())
}

pub(crate) fn node_id(row: &impl Row, column: usize) -> Result<Option<NodeId>> {
    Ok(row.try_get::<Option<Uuid>>(column)?.map(NodeId::from))
}

/// Returns the id of the node that holds the claim, as a statement parameter. Returns the nil id if
/// the token names no node.
pub(crate) fn owner(token: &ClaimToken) -> Uuid {
    token.node.map_or(Uuid::nil(), |node| node.as_uuid())
}

/// Reads an unsigned number from a column. The database stores the number as a signed one with the
/// same bits.
pub(crate) fn seq(row: &impl Row, column: usize) -> Result<u64> {
    Ok(row.try_get::<i64>(column)?.cast_unsigned())
}

/// Reads a claim token. `columns` are the indexes of the columns with the job, the claim's number,
/// the node and the time of the claim.
pub(crate) fn token(row: &impl Row, columns: [usize; 4]) -> Result<ClaimToken> {
    let [job, number, node, claimed_at] = columns;
    let claimed_at = row.try_get::<Option<i64>>(claimed_at)?.unwrap_or(0);
    Ok(ClaimToken::new(
        job_id(row, job)?,
        seq(row, number)?,
        node_id(row, node)?,
        from_millis(claimed_at),
    ))
}

/// Reads the name and the cost of a fair key, from two columns.
pub(crate) fn fair_key(
    row: &impl Row,
    column: usize,
) -> std::result::Result<Option<FairKey>, InvalidInput> {
    let Some(name) = text(row, column, "fair_key")? else {
        return Ok(None);
    };
    let cost: Option<i32> = row.try_get(column + 1).ok().flatten();
    FairKey::from_stored(name, cost.unwrap_or_default().into()).map(Some)
}

/// Reads the job in a row of the statement `get_jobs`.
///
/// Replaces damaged parts of the job, such as its tags, by their defaults, so that an operator can
/// inspect the rest. If the job has no last error, sets a last error that names the first damaged
/// part. Fails if an essential column, such as the state, cannot be read.
pub(crate) fn job_record(row: &impl Row) -> Result<JobRecord> {
    let data: Option<Uuid> = row.try_get(13)?;
    let mut salvage = Salvage::default();
    if data.is_none() {
        salvage.keep(Err(InvalidInput::new("data", "is missing")), ());
    }
    let mut spec = JobSpec::new(
        route(row, 33)?,
        json(row, 14).unwrap_or_else(|| Json::from_stored("missing")),
    );
    spec.priority = Priority::from_level(row.try_get::<i16>(3)?.into())?;
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
    spec.fair_key = salvage.keep(fair_key(row, 37), None);
    spec.trace = salvage.keep(trace(row, 20, 21), None);
    let slot = row.try_get::<Option<i64>>(29)?.map(from_millis);
    let definition = salvage.keep(name(row, 28, "recurring"), None);
    spec.recurring = definition.map(|name| RecurringOrigin { name, slot });
    // The row has no tags if a separate statement reads them.
    spec.tags = salvage
        .keep(names(row, 30, "tag"), Vec::new())
        .into_iter()
        .collect();

    let time = |column: usize| row.try_get(column).map(from_millis);
    let optional_time = |column: usize| {
        row.try_get::<Option<i64>>(column)
            .map(|at| at.map(from_millis))
    };
    let mut job = JobRecord::new(job_id(row, 0)?, spec, time(4)?, time(5)?);
    job.state = JobState::from_code(row.try_get::<i16>(1)?.into())?;
    job.finished_at = optional_time(6)?;
    let attempts: i32 = row.try_get(7)?;
    job.attempts = salvage.keep(count(attempts, "attempts"), 0);
    let crash_count: i32 = row.try_get(8)?;
    job.crash_count = salvage.keep(count(crash_count, "crash_count"), 0);
    job.claim_seq = seq(row, 9)?;
    if job.state == JobState::Running {
        job.node = node_id(row, 10)?;
        job.claimed_at = optional_time(11)?;
        job.cancel_requested = row.try_get(12)?;
    }
    let percent: Option<i16> = row.try_get(22)?;
    job.progress = percent.map(|percent| Progress {
        percent: u8::try_from(percent).unwrap_or_default(),
        message: message(row, 23).unwrap_or_default(),
    });
    job.checkpoint = json(row, 24);
    job.result = json(row, 25);
    job.last_error = message(row, 26);
    salvage.finish(&mut job);
    Ok(job)
}

/// Reads the batch in a row of the statement `get_batches`, or of a statement with the same
/// columns.
pub(crate) fn batch_record(row: &impl Row) -> Result<BatchRecord> {
    let id = BatchId::from(row.try_get::<Uuid>(0)?);
    let mut batch = BatchRecord::new(id, from_millis(row.try_get(6)?));
    batch.total = seq(row, 1)?;
    batch.succeeded = seq(row, 2)?;
    batch.failed = seq(row, 3)?;
    batch.cancelled = seq(row, 4)?;
    batch.closed = row.try_get(5)?;
    batch.ended_at = row.try_get::<Option<i64>>(7)?.map(from_millis);
    Ok(batch)
}

/// Reads the attempt in a row of the statement `history`.
pub(crate) fn attempt(row: &impl Row) -> Result<Attempt> {
    let mut attempt = Attempt::new(
        seq(row, 0)?,
        node_id(row, 1)?,
        from_millis(row.try_get(2)?),
        from_millis(row.try_get(3)?),
        AttemptOutcome::from_code(row.try_get::<i16>(5)?.into())?,
    );
    attempt.ran_for = row
        .try_get::<Option<i64>>(4)?
        .map(|micros| Duration::from_micros(micros.unsigned_abs()));
    attempt.error = message(row, 6);
    Ok(attempt)
}

/// Reads a route from four text columns: queue, kind, capability and permit. `first` is the index
/// of the first of these columns.
pub(crate) fn route(row: &impl Row, first: usize) -> Result<Route> {
    let text = |column: usize| row.try_get::<&str>(first + column);
    Ok(Route::from_texts(text(0)?, text(1)?, text(2)?, text(3)?)?)
}

/// Reads a node from the first thirteen columns of a row, which are those of the statement `nodes`.
/// Does not read the node's kinds and notes. Returns `None` if the row contains no node.
pub(crate) fn node_record(row: &impl Row) -> Result<Option<NodeRecord>> {
    let Some(node) = node_id(row, 0)? else {
        return Ok(None);
    };
    let label = name(row, 1, "label")?.ok_or_else(|| InvalidInput::new("label", "is missing"))?;
    let status = NodeStatus::from_code(row.try_get::<i16>(2)?.into())?;
    let interval = duration(row, 5, "interval")?.unwrap_or_default();
    let running: i64 = row.try_get(3)?;
    let capacity: i64 = row.try_get(4)?;
    let mut load = NodeLoad::new(count(running, "running")?, count(capacity, "capacity")?);
    load.connections = optional_count(row, 8, "connections")?;
    load.cpu_percent = optional_count(row, 9, "cpu_percent")?;
    load.memory_bytes = optional_count(row, 10, "memory_bytes")?;
    let profile = NodeProfile::new(names(row, 11, "roles")?, names(row, 12, "capabilities")?);
    let heartbeat = Heartbeat::new(node, label, status, interval)
        .load(load)
        .profile(profile);
    let mut record = NodeRecord::joined(&heartbeat, from_millis(row.try_get(6)?));
    record.last_seen = from_millis(row.try_get(7)?);
    Ok(Some(record))
}

/// Reads the kinds and the notes from a row of the statement `nodes`, and adds them to `node`.
pub(crate) fn add_words(row: &impl Row, node: &mut NodeRecord) -> Result<()> {
    // If a value cannot be read, drop this value instead of the whole node.
    let kinds = text(row, 14, "kinds").ok().flatten();
    node.profile.kinds = kinds.and_then(|text| Name::split("kinds", text).ok());
    node.read_notes(message(row, 15).as_deref());
    Ok(())
}
