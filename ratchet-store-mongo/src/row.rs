//! Converts between stored values and the model's types.

use std::collections::BTreeSet;
use std::time::Duration;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::model::{
    Attempt, AttemptOutcome, FairKey, Heartbeat, JobRecord, JobSpec, NodeLoad, NodeProfile,
    NodeRecord, NodeStatus, OwnedClaim, Parent, Progress, RecurringOrigin, Salvage,
    payload_version_from_stored,
};
use ratchet_core::time::from_millis;
use ratchet_core::{
    BatchId, ClaimToken, Incarnation, InvalidInput, JobId, JobState, Json, Name, NodeId, Priority,
    RetryPolicy, Route, TraceContext,
};

use crate::error::Result;
use crate::signals;

type Read<T> = Result<T, InvalidInput>;

/// Returns the stored form of an id: a binary value with the subtype of UUIDs.
pub(crate) fn id(id: impl Into<Id>) -> Bson {
    Bson::Binary(uuid(id))
}

pub(crate) fn uuid(id: impl Into<Id>) -> Binary {
    let Id(bytes) = id.into();
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: bytes.to_vec(),
    }
}

/// The bytes of an id, whatever its type.
pub(crate) struct Id([u8; 16]);

impl From<JobId> for Id {
    fn from(id: JobId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<NodeId> for Id {
    fn from(id: NodeId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<BatchId> for Id {
    fn from(id: BatchId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<Parent> for Id {
    fn from(parent: Parent) -> Self {
        Self(*parent.as_bytes())
    }
}

impl From<Incarnation> for Id {
    fn from(id: Incarnation) -> Self {
        Self(*id.as_bytes())
    }
}

/// Returns the stored form of a counter. If the counter does not fit, returns -1, which no stored
/// counter equals.
pub(crate) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(-1)
}

/// Returns the value of a field, or `None` if the field is missing or null.
fn field<'a>(row: &'a RawDocument, name: &'static str) -> Read<Option<RawBsonRef<'a>>> {
    match row.get(name) {
        Ok(None | Some(RawBsonRef::Null)) => Ok(None),
        Ok(Some(value)) => Ok(Some(value)),
        Err(_) => Err(InvalidInput::new(name, "cannot be decoded")),
    }
}

pub(crate) fn text<'a>(row: &'a RawDocument, name: &'static str) -> Read<Option<&'a str>> {
    match field(row, name)? {
        None => Ok(None),
        Some(RawBsonRef::String(text)) => Ok(Some(text)),
        Some(_) => Err(InvalidInput::new(name, "is not a string")),
    }
}

/// Converts an integer of any numeric type to `i64`. All numeric types are accepted, because the
/// server treats them as equal and `mongosh` writes doubles. Returns `None` for other values.
pub(crate) fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    /// Limit of the range in which a double represents every integer exactly: 2^53.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Int32(number) => Some(number.into()),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the number is whole and small enough for an i64"
        )]
        RawBsonRef::Double(number) => {
            (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
        }
        _ => None,
    }
}

/// Reads the integer in a field. Returns `None` if the field is missing.
pub(crate) fn optional_int(row: &RawDocument, name: &'static str) -> Read<Option<i64>> {
    let Some(value) = field(row, name)? else {
        return Ok(None);
    };
    let number = whole(value).ok_or_else(|| InvalidInput::new(name, "is not a whole number"))?;
    Ok(Some(number))
}

pub(crate) fn int(row: &RawDocument, name: &'static str) -> Read<i64> {
    optional_int(row, name)?.ok_or_else(|| InvalidInput::new(name, "is missing"))
}

/// Reads the integer in a field as type `T`. Fails if the value does not fit into `T`, for example
/// because it is negative.
pub(crate) fn count<T: TryFrom<i64>>(row: &RawDocument, name: &'static str) -> Read<T> {
    counted(int(row, name)?, name)
}

fn counted<T: TryFrom<i64>>(number: i64, name: &'static str) -> Read<T> {
    T::try_from(number).map_err(|_| InvalidInput::new(name, format!("cannot be {number}")))
}

fn optional_count<T: TryFrom<i64>>(row: &RawDocument, name: &'static str) -> Read<Option<T>> {
    let number = optional_int(row, name)?;
    number.map(|number| counted(number, name)).transpose()
}

pub(crate) fn flag(row: &RawDocument, name: &'static str) -> bool {
    matches!(row.get(name), Ok(Some(RawBsonRef::Boolean(true))))
}

pub(crate) fn bytes(row: &RawDocument, name: &'static str) -> Read<Option<[u8; 16]>> {
    match field(row, name)? {
        None => Ok(None),
        Some(RawBsonRef::Binary(binary)) => binary
            .bytes
            .try_into()
            .map(Some)
            .map_err(|_| InvalidInput::new(name, "is not a valid id")),
        Some(_) => Err(InvalidInput::new(name, "is not a valid id")),
    }
}

/// Reads the job id in a field.
pub(crate) fn job_id(row: &RawDocument, name: &'static str) -> Read<JobId> {
    let bytes = bytes(row, name)?.ok_or_else(|| InvalidInput::new(name, "is missing"))?;
    Ok(JobId::from_bytes(bytes))
}

/// Reads the job ids of these documents. Logs and skips a document whose id is not a job id.
/// [errors.poison]
pub(crate) fn job_ids<'r>(rows: impl IntoIterator<Item = &'r RawDocumentBuf>) -> Vec<JobId> {
    let id = |row: &'r RawDocumentBuf| {
        job_id(row, "_id")
            .inspect_err(|error| tracing::warn!(%error, "skipped a document that is not a job"))
            .ok()
    };
    rows.into_iter().filter_map(id).collect()
}

/// Returns the options for a query that reads only these fields.
pub(crate) fn fields(projection: Document) -> FindOptions {
    FindOptions::builder().projection(projection).build()
}

/// Reads the token of the claim from a job's document.
pub(crate) fn token(row: &RawDocument) -> Read<ClaimToken> {
    let job = job_id(row, "_id")?;
    let seq = count(row, "claim_seq")?;
    let claimed_at = optional_int(row, "claimed_at")?.unwrap_or(0);
    let node = node_id(row, "node")?;
    Ok(ClaimToken::new(job, seq, node, from_millis(claimed_at)))
}

pub(crate) fn owned_claim(row: &RawDocument) -> Read<OwnedClaim> {
    Ok(OwnedClaim::new(token(row)?, flag(row, "cancel_requested")))
}

pub(crate) fn node_id(row: &RawDocument, name: &'static str) -> Read<Option<NodeId>> {
    Ok(bytes(row, name)?.map(NodeId::from_bytes))
}

/// Reads a JSON value in a field of a job. If the field is not a string, returns a text that is not
/// valid JSON. The job then fails as a job with an invalid payload does.
pub(crate) fn json(row: &RawDocument, name: &'static str) -> Option<Json> {
    match text(row, name) {
        Ok(text) => text.map(Json::from_stored),
        Err(_) => Some(Json::from_stored("not a text")),
    }
}

/// Reads a text that is only displayed. Returns `None` if the field is missing or unreadable.
fn message(row: &RawDocument, name: &'static str) -> Option<String> {
    text(row, name).ok().flatten().map(str::to_owned)
}

pub(crate) fn name(row: &RawDocument, field: &'static str) -> Read<Option<Name>> {
    text(row, field)?
        .map(|text| Name::new(field, text))
        .transpose()
}

/// Reads the fair key of a job.
pub(crate) fn fair_key(row: &RawDocument) -> Read<Option<FairKey>> {
    let Some(key) = text(row, "fair_key")? else {
        return Ok(None);
    };
    FairKey::from_stored(key, int(row, "fair_cost")?).map(Some)
}

/// Reads the tags of a job.
fn tags(row: &RawDocument) -> Read<BTreeSet<Name>> {
    let problem = || InvalidInput::new("tag", "is not a string");
    let Some(stored) = field(row, "tags")? else {
        return Ok(BTreeSet::new());
    };
    let tag = |tag: mongodb::bson::error::Result<RawBsonRef<'_>>| match tag {
        Ok(RawBsonRef::String(text)) => Name::new("tag", text),
        _ => Err(problem()),
    };
    stored
        .as_array()
        .ok_or_else(problem)?
        .into_iter()
        .map(tag)
        .collect()
}

pub(crate) fn payload_version(row: &RawDocument) -> Read<u32> {
    payload_version_from_stored(optional_int(row, "payload_version")?)
}

/// Reads the name of the recurring definition that created the job, and the slot. Returns `None` if
/// no definition created the job.
fn origin(row: &RawDocument) -> Read<Option<RecurringOrigin>> {
    let slot = optional_int(row, "slot")?.map(from_millis);
    let definition = name(row, "recurring")?;
    Ok(definition.map(|name| RecurringOrigin { name, slot }))
}

/// Reads the list of names that a field contains as one text.
fn names(row: &RawDocument, field: &'static str) -> Read<Vec<Name>> {
    Name::split(field, text(row, field)?.unwrap_or_default())
}

pub(crate) fn duration(row: &RawDocument, field: &'static str) -> Read<Option<Duration>> {
    Ok(optional_count(row, field)?.map(Duration::from_millis))
}

pub(crate) fn trace(row: &RawDocument) -> Read<Option<TraceContext>> {
    let Some(parent) = text(row, "traceparent")? else {
        return Ok(None);
    };
    let state = text(row, "tracestate")?.map(str::to_owned);
    Ok(Some(TraceContext::from_stored(parent.to_owned(), state)))
}

/// Reads the queue that a job of a shared route names. If the field is no text, returns a text that
/// is not a valid name.
pub(crate) fn queue(row: &RawDocument) -> Option<&str> {
    text(row, "queue").unwrap_or(Some("\0"))
}

/// Reads a job from a document of the collection `jobs`. `route` is the job's route.
///
/// A partly damaged job is returned too, because operators must be able to inspect it. An
/// unreadable value gets its default. The job's last error names the unreadable value, unless the
/// job already has a last error. The function fails only if an essential field is unreadable.
pub(crate) fn job_record(row: &RawDocument, route: Route) -> Read<JobRecord> {
    let mut salvage = Salvage::default();
    let payload = json(row, "payload").unwrap_or_else(|| Json::from_stored("missing"));
    let mut spec = JobSpec::new(route, payload);
    spec.priority = Priority::from_level(int(row, "priority")?)?;
    spec.payload_version = salvage.keep(payload_version(row), spec.payload_version);
    spec.retry = salvage.keep(
        text(row, "retry").and_then(RetryPolicy::from_stored),
        RetryPolicy::default(),
    );
    spec.timeout = salvage.keep(duration(row, "timeout"), None);
    spec.stall_timeout = salvage.keep(duration(row, "stall_timeout"), None);
    spec.unique_key = salvage.keep(name(row, "unique_key"), None);
    spec.idempotency_key = salvage.keep(name(row, "idempotency_key"), None);
    spec.lane = salvage.keep(name(row, "lane"), None);
    spec.fair_key = salvage.keep(fair_key(row), None);
    spec.trace = salvage.keep(trace(row), None);
    spec.recurring = salvage.keep(origin(row), None);
    spec.tags = salvage.keep(tags(row), BTreeSet::new());
    let batch = bytes(row, "batch").map(|bytes| bytes.map(BatchId::from_bytes));
    spec.batch = salvage.keep(batch, None);

    let time = |field: &'static str| int(row, field).map(from_millis);
    let optional_time =
        |field: &'static str| optional_int(row, field).map(|at| at.map(from_millis));
    let mut job = JobRecord::new(
        job_id(row, "_id")?,
        spec,
        time("run_at")?,
        time("created_at")?,
    );
    job.state = JobState::from_code(int(row, "state")?)?;
    let shown = signals::show(row, &mut job);
    salvage.keep(shown, ());
    job.finished_at = optional_time("finished_at")?;
    job.expires_at = optional_time("expires_at")?;
    job.attempts = salvage.keep(count(row, "attempts"), 0);
    job.crash_count = salvage.keep(count(row, "crash_count"), 0);
    job.claim_seq = count(row, "claim_seq")?;
    if job.state == JobState::Running {
        job.node = node_id(row, "node")?;
        job.claimed_at = optional_time("claimed_at")?;
        job.cancel_requested = flag(row, "cancel_requested");
    }
    if let Ok(progress) = row.get_document("progress") {
        job.progress = Some(Progress {
            percent: count(progress, "percent").unwrap_or_default(),
            message: message(progress, "message").unwrap_or_default(),
        });
    }
    job.checkpoint = json(row, "checkpoint");
    job.result = json(row, "result");
    job.last_error = message(row, "last_error");
    salvage.finish(&mut job);
    Ok(job)
}

/// Reads an attempt. `row` is an element of a job's history or a document of the collection
/// `attempts`.
pub(crate) fn attempt(row: &RawDocument) -> Read<Attempt> {
    let ended_at = int(row, "ended_at")?;
    let claimed_at = optional_int(row, "claimed_at")?.unwrap_or(ended_at);
    let mut attempt = Attempt::new(
        count(row, "seq")?,
        node_id(row, "node")?,
        from_millis(claimed_at),
        from_millis(ended_at),
        AttemptOutcome::from_code(int(row, "outcome")?)?,
    );
    attempt.ran_for = optional_count(row, "ran_for")?.map(Duration::from_micros);
    attempt.error = message(row, "error");
    Ok(attempt)
}

/// Returns the stored form of the data that a node reports about itself in a heartbeat.
pub(crate) fn node_words(heartbeat: &Heartbeat) -> Document {
    let load = &heartbeat.load;
    let bytes = load
        .memory_bytes
        .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    doc! {
        "label": heartbeat.label.as_str(),
        "interval": ratchet_core::time::duration_millis(heartbeat.interval),
        "running": i64::from(load.running),
        "capacity": i64::from(load.capacity),
        "connections": load.connections.map(i64::from),
        "cpu_percent": load.cpu_percent.map(i64::from),
        "memory_bytes": bytes,
        "roles": Name::join(&heartbeat.profile.roles),
        "capabilities": Name::join(&heartbeat.profile.capabilities),
        "kinds": heartbeat.profile.kinds.as_deref().map(Name::join),
        "totals": heartbeat.notes(),
    }
}

/// Reads a node from a document of the collection `nodes`.
pub(crate) fn node_record(row: &RawDocument) -> Read<NodeRecord> {
    let node = node_id(row, "_id")?.ok_or_else(|| InvalidInput::new("_id", "is missing"))?;
    let label = name(row, "label")?.ok_or_else(|| InvalidInput::new("label", "is missing"))?;
    let status = NodeStatus::from_code(int(row, "status")?)?;
    let interval = duration(row, "interval")?.unwrap_or_default();
    let mut load = NodeLoad::new(count(row, "running")?, count(row, "capacity")?);
    load.connections = optional_count(row, "connections")?;
    load.cpu_percent = optional_count(row, "cpu_percent")?;
    load.memory_bytes = optional_count(row, "memory_bytes")?;
    let mut profile = NodeProfile::new(names(row, "roles")?, names(row, "capabilities")?);
    // If the list of kinds cannot be read, omit the list instead of the whole node.
    let kinds = text(row, "kinds").ok().flatten();
    profile.kinds = kinds.and_then(|text| Name::split("kinds", text).ok());
    let heartbeat = Heartbeat::new(node, label, status, interval)
        .load(load)
        .profile(profile);
    let mut record = NodeRecord::joined(&heartbeat, from_millis(int(row, "started_at")?));
    record.last_seen = from_millis(int(row, "last_seen")?);
    record.read_notes(text(row, "totals").ok().flatten());
    Ok(record)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::RawDocumentBuf;

    use super::*;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    #[test]
    fn ids_round_trip() {
        let (job, node) = (JobId::new(), NodeId::new());
        let row = raw(&doc! { "_id": id(job), "node": id(node), "short": "x" });
        assert_eq!(job_id(&row, "_id"), Ok(job));
        assert_eq!(node_id(&row, "node"), Ok(Some(node)));
        assert_eq!(node_id(&row, "none"), Ok(None));
        assert!(job_id(&row, "short").is_err());
    }

    #[test]
    fn whole_numbers_are_read_of_every_type_and_nothing_else_is_taken_for_one() {
        let row = raw(&doc! { "a": 1, "b": 2_i64, "c": 3.5, "d": -1, "e": Bson::Null, "f": 4.0 });
        assert_eq!(int(&row, "f"), Ok(4));
        assert!(int(&raw(&doc! { "a": 1e300 }), "a").is_err());
        assert!(int(&raw(&doc! { "a": "1" }), "a").is_err());
        assert_eq!(int(&row, "a"), Ok(1));
        assert_eq!(int(&row, "b"), Ok(2));
        assert!(int(&row, "c").is_err());
        assert!(count::<u64>(&row, "d").is_err());
        assert_eq!(optional_int(&row, "e"), Ok(None));
        assert_eq!(number(u64::MAX), -1);
    }
}
