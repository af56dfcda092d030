use ratchet_core::model::{JobPage, JobRecord, JobSpec};
use ratchet_core::{Backoff, RetryPolicy, TraceContext};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{At, JobAction, Level, State, millis};

/// A job as it appears in lists: without its payload, result, checkpoint and signal payload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Job {
    /// The id of the job.
    pub id: String,
    /// Kind of the job: the name under which the type of the job is registered.
    pub kind: String,
    /// The queue of the job.
    pub queue: String,
    /// Lane of the job inside its queue. Null if the job is in no lane.
    pub lane: Option<String>,
    /// The state of the job.
    pub state: State,
    /// Stored priority of the job, without the increase that comes from aging.
    pub priority: Level,
    /// Time at which the job is due, or was due.
    pub run_at: At,
    /// Time at which the job was enqueued.
    pub created_at: At,
    /// Time at which the job ended. Null if the job has not ended.
    pub finished_at: Option<At>,
    /// Time at which the job expires if it has not begun before. Null if the job never expires, or
    /// has begun.
    pub expires_at: Option<At>,
    /// Whether the job was cancelled because it had not begun before its expiry.
    pub expired: bool,
    /// Number of attempts of the job that have ended. Snoozed attempts and released claims do not
    /// count. The action `retry` resets this number to 0.
    pub attempts: u32,
    /// Maximum number of attempts. When this number of attempts has failed, the job becomes a dead
    /// letter.
    pub max_attempts: u32,
    /// Number of claims that were lost in a crash, for example because their node died. The action
    /// `retry` resets this number to 0.
    pub crash_count: u32,
    /// Number of times that the job was claimed.
    pub claim_seq: u64,
    /// Id of the node that runs the job. Null unless the job is running.
    pub node: Option<String>,
    /// Time at which the job was claimed. Null unless the job is running.
    pub claimed_at: Option<At>,
    /// Whether the job is running and its cancellation was requested.
    pub cancel_requested: bool,
    /// Progress that the body of the job last reported. Null if no body reported progress.
    pub progress: Option<Progress>,
    /// Tags of the job, by which the job can be found.
    pub tags: Vec<String>,
    /// Id of the batch that the job belongs to. Null if the job belongs to no batch.
    pub batch: Option<String>,
    /// Unique key of the job. At most one unfinished job can have a given unique key. Null if the
    /// job has no unique key.
    pub unique_key: Option<String>,
    /// Idempotency key of the job. At most one job can ever have a given idempotency key. Null if
    /// the job has no idempotency key.
    pub idempotency_key: Option<String>,
    /// Capability that a node must have to run the job. Null if the job requires no capability.
    pub capability: Option<String>,
    /// Name of the resource for which the job needs a permit to run. Null if the job needs no
    /// permit.
    pub permit: Option<String>,
    /// Fair key of the job: claims take turns between keys. Null if the job has no fair key.
    pub fair_key: Option<String>,
    /// Recurring definition that created the job. Null if no definition created the job.
    pub recurring: Option<Origin>,
    /// Signal that the job waits for, or has waited for. Null if the job waits for no signal.
    pub signal: Option<Signal>,
    /// Last error of the job, such as the error of its last failed attempt. Null if there is no
    /// error. The action `retry` removes the error.
    pub last_error: Option<String>,
}

/// Progress of a job, as reported by its body.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Progress {
    /// The progress in percent, from 0 to 100.
    pub percent: u8,
    /// Message about the progress, for people to read.
    pub message: String,
}

/// Recurring definition that created a job, and the job's slot, which is a time of the schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Origin {
    /// Name of the recurring definition.
    pub name: String,
    /// Slot of the job: the time of the schedule for which the definition created the job. Null if
    /// the job was triggered by hand.
    pub slot_at: Option<At>,
}

/// Signal that a job waits for, or has waited for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Signal {
    /// The name of the signal.
    pub key: String,
    /// Time until which the job waits for the signal.
    pub deadline_at: Option<At>,
    /// Time at which the signal was delivered. Null if the signal was not delivered.
    pub delivered_at: Option<At>,
}

impl From<&JobRecord> for Job {
    fn from(job: &JobRecord) -> Self {
        let spec = &job.spec;
        let text = ToString::to_string;
        let name = |name: &Option<ratchet_core::Name>| name.as_ref().map(text);
        Self {
            id: job.id.to_string(),
            kind: spec.route.kind.to_string(),
            queue: spec.route.queue.to_string(),
            lane: name(&spec.lane),
            state: job.state.into(),
            priority: spec.priority.into(),
            run_at: At(job.run_at),
            created_at: At(job.created_at),
            finished_at: job.finished_at.map(At),
            expires_at: job.expires_at.map(At),
            expired: job.is_expired(),
            attempts: job.attempts,
            max_attempts: spec.retry.max_attempts(),
            crash_count: job.crash_count,
            claim_seq: job.claim_seq,
            node: job.node.map(|node| node.to_string()),
            claimed_at: job.claimed_at.map(At),
            cancel_requested: job.cancel_requested,
            progress: job.progress.as_ref().map(|progress| Progress {
                percent: progress.percent,
                message: progress.message.clone(),
            }),
            tags: spec.tags.iter().map(text).collect(),
            batch: spec.batch.map(|batch| batch.to_string()),
            unique_key: name(&spec.unique_key),
            idempotency_key: name(&spec.idempotency_key),
            capability: name(&spec.route.capability),
            permit: name(&spec.route.permit),
            fair_key: (spec.fair_key.as_ref()).map(|key| key.name().to_string()),
            recurring: spec.recurring.as_ref().map(|origin| Origin {
                name: origin.name.to_string(),
                slot_at: origin.slot.map(At),
            }),
            signal: spec.signal.as_ref().map(|wait| Signal {
                key: wait.key.to_string(),
                deadline_at: job.signal.as_ref().map(|signal| At(signal.deadline)),
                delivered_at: (job.signal.as_ref())
                    .and_then(|signal| Some(At(signal.delivered.as_ref()?.at))),
            }),
            last_error: job.last_error.clone(),
        }
    }
}

/// One page of jobs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Jobs {
    /// The jobs, in the requested order.
    pub jobs: Vec<Job>,
    /// Value of the query parameter `after` that requests the next page. Null on the last page.
    pub next: Option<String>,
}

impl From<&JobPage> for Jobs {
    fn from(page: &JobPage) -> Self {
        Self {
            jobs: page.jobs.iter().map(Job::from).collect(),
            next: page.next.map(|next| next.to_string()),
        }
    }
}

/// Whether the payload, the result, the checkpoint and the signal payload of a job are hidden.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet_core::Result<()> {
/// # use std::sync::Arc;
/// use ratchet_core::{MemoryStore, NewJob, Ratchet};
/// use ratchet_http::view::{Hidden, JobDetail};
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let id = client.enqueue(NewJob::new("greet", "Ada")).await?.id();
/// if let Some(job) = client.job(id).await? {
///     let detail = JobDetail::new(&job, Hidden::Yes);
///     assert!(detail.payload.is_none() && detail.payload_hidden);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The payload, the result, the checkpoint and the signal payload are shown.
    No,
    /// The payload, the result, the checkpoint and the signal payload are hidden.
    Yes,
}

/// A job with all of its details.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct JobDetail {
    /// Fields of the job that lists of jobs also contain.
    #[serde(flatten)]
    pub job: Job,
    /// Payload of the job. Missing if payloads are hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub payload: Option<Box<RawValue>>,
    /// Whether the payload, the result, the checkpoint and the signal payload are hidden.
    pub payload_hidden: bool,
    /// Version of the payload's format.
    pub payload_version: u32,
    /// Size of the payload as JSON, in bytes.
    pub payload_bytes: usize,
    /// Result of the job. Missing if the job has no result, or if results are hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub result: Option<Box<RawValue>>,
    /// Checkpoint from which the next attempt starts. Missing if the job has no checkpoint, or if
    /// checkpoints are hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub checkpoint: Option<Box<RawValue>>,
    /// Payload of the delivered signal. Missing if no signal was delivered, or if payloads are
    /// hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub signal_payload: Option<Box<RawValue>>,
    /// Trace in which the job was enqueued. Null if the job was enqueued outside of a trace.
    pub trace: Option<Trace>,
    /// Maximum duration of one attempt, in milliseconds. Null if attempts have no timeout.
    pub timeout_ms: Option<u64>,
    /// Time after which a running body counts as stalled if it sends no report, in milliseconds.
    /// Null if the job has no such limit.
    pub stall_timeout_ms: Option<u64>,
    /// Retry policy of the job.
    pub retry: Retry,
    /// Actions that are allowed in the current state of the job.
    pub actions: Vec<JobAction>,
}

impl JobDetail {
    /// Creates the view of a job. If `hidden` is [`Hidden::Yes`], the view has no payload, result,
    /// checkpoint and signal payload.
    #[must_use]
    pub fn new(job: &JobRecord, hidden: Hidden) -> Self {
        let JobSpec { payload, .. } = &job.spec;
        let shown = |json: Option<&ratchet_core::Json>| {
            json.filter(|_| hidden == Hidden::No)
                .map(|json| raw(json.as_str()))
        };
        let delivered = job.signal.as_ref().and_then(|it| it.delivered.as_ref());
        Self {
            job: job.into(),
            payload: shown(Some(payload)),
            payload_hidden: hidden == Hidden::Yes,
            payload_version: job.spec.payload_version,
            payload_bytes: payload.as_str().len(),
            result: shown(job.result.as_ref()),
            checkpoint: shown(job.checkpoint.as_ref()),
            signal_payload: shown(delivered.map(|delivery| &delivery.payload)),
            trace: job.spec.trace.as_ref().map(Trace::from),
            timeout_ms: job.spec.timeout.map(millis),
            stall_timeout_ms: job.spec.stall_timeout.map(millis),
            retry: job.spec.retry.into(),
            actions: JobAction::legal(job.state),
        }
    }
}

/// Converts a stored JSON text to a raw JSON value, without changing the text.
///
/// Ratchet stores only valid JSON. If the text is not valid nevertheless, this function returns it
/// as a JSON string. The job can then still be shown.
fn raw(text: &str) -> Box<RawValue> {
    let whole = RawValue::from_string(text.to_owned());
    whole
        .or_else(|_| serde_json::value::to_raw_value(text))
        .unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The trace in which a job was enqueued, in the format of the W3C Trace Context headers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Trace {
    /// Value of the header `traceparent`: `00-<trace id>-<span id>-<flags>`.
    pub traceparent: String,
    /// Value of the header `tracestate`, which contains data of tracing systems. Null if there is
    /// no such header.
    pub tracestate: Option<String>,
}

impl From<&TraceContext> for Trace {
    fn from(trace: &TraceContext) -> Self {
        Self {
            traceparent: trace.traceparent().to_owned(),
            tracestate: trace.tracestate().map(ToOwned::to_owned),
        }
    }
}

/// Retry policy of a job: the maximum number of attempts, and the delays between the attempts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Retry {
    /// Maximum number of attempts. When this number of attempts has failed, the job becomes a dead
    /// letter.
    pub max_attempts: u32,
    /// Type of the backoff: `none`, `fixed`, `linear` or `exponential`.
    pub backoff: String,
    /// Delay after the first failed attempt, in milliseconds.
    pub delay_ms: u64,
    /// Maximum delay after a failed attempt, before jitter, in milliseconds. Null if the backoff
    /// has no maximum.
    pub cap_ms: Option<u64>,
    /// Jitter: maximum random change of each delay, up or down, in percent of the delay.
    pub jitter_percent: u8,
}

impl From<RetryPolicy> for Retry {
    fn from(retry: RetryPolicy) -> Self {
        let zero = std::time::Duration::ZERO;
        let (backoff, delay, cap) = match retry.backoff() {
            Backoff::None => ("none", zero, None),
            Backoff::Fixed { delay } => ("fixed", delay, None),
            Backoff::Linear { base, cap } => ("linear", base, Some(cap)),
            Backoff::Exponential { base, cap } => ("exponential", base, Some(cap)),
            _ => ("other", zero, None),
        };
        Self {
            max_attempts: retry.max_attempts(),
            backoff: backoff.to_owned(),
            delay_ms: millis(delay),
            cap_ms: cap.map(millis),
            jitter_percent: retry.jitter_percent(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::model::{JobRecord, JobSpec, SignalRecord};
    use ratchet_core::time::from_millis;
    use ratchet_core::{JobId, Json, Route};

    use super::*;

    fn record(payload: &str) -> JobRecord {
        let route = Route::from_texts("q", "k", "", "").unwrap();
        let spec = JobSpec::new(route, Json::from_stored(payload));
        JobRecord::new(JobId::new(), spec, from_millis(0), from_millis(0))
    }

    fn text(payload: &str, hidden: Hidden) -> String {
        serde_json::to_string(&JobDetail::new(&record(payload), hidden)).unwrap()
    }

    #[test]
    fn payloads_are_shown_as_they_are_stored_or_not_at_all() {
        let long = "[1.0,123456789012345678901234567890]";
        assert!(text(long, Hidden::No).contains(&format!("\"payload\":{long}")));
        let mut job = record("\"secret\"");
        job.result = Some(Json::from_stored("\"secret\""));
        job.checkpoint = Some(Json::from_stored("\"secret\""));
        job.signal = Some(
            SignalRecord::new(from_millis(0))
                .delivered(from_millis(0), Json::from_stored("\"secret\"")),
        );
        let hidden = serde_json::to_string(&JobDetail::new(&job, Hidden::Yes)).unwrap();
        assert!(!hidden.contains("secret") && hidden.contains("\"payload_hidden\":true"));
        let shown = serde_json::to_string(&JobDetail::new(&job, Hidden::No)).unwrap();
        assert_eq!(shown.matches("secret").count(), 4, "{shown}");
        assert!(
            !serde_json::to_string(&Job::from(&job))
                .unwrap()
                .contains("secret")
        );
    }

    #[test]
    fn a_broken_or_deep_payload_does_not_break_the_answer() {
        assert!(text("{", Hidden::No).contains(r#""payload":"{""#));
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(text(&deep, Hidden::No).contains(&deep));
    }
}
