use ratchet_core::model::{JobPage, JobRecord, JobSpec};
use ratchet_core::{Backoff, RetryPolicy, TraceContext};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{At, JobAction, Level, State, millis};

/// A job, without payload, result and checkpoint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Job {
    /// The id of the job.
    pub id: String,
    /// The kind: the registered name of the job's type.
    pub kind: String,
    /// The queue of the job.
    pub queue: String,
    /// The lane of the job inside its queue.
    pub lane: Option<String>,
    /// The state of the job.
    pub state: State,
    /// The stored priority.
    pub priority: Level,
    /// When the job is, or was, due.
    pub run_at: At,
    /// When the job was enqueued.
    pub created_at: At,
    /// When the job ended; null if it has not.
    pub finished_at: Option<At>,
    /// The number of attempts that ended. A snooze or a released claim does not count.
    pub attempts: u32,
    /// How many attempts may fail before the job becomes a dead letter.
    pub max_attempts: u32,
    /// The number of claims that were lost because their node died.
    pub crash_count: u32,
    /// The number of claims so far.
    pub claim_seq: u64,
    /// The node that runs the job.
    pub node: Option<String>,
    /// When the job was claimed; null unless it is running.
    pub claimed_at: Option<At>,
    /// Whether the job is running and a client has requested its cancellation.
    pub cancel_requested: bool,
    /// The progress that the body last reported.
    pub progress: Option<Progress>,
    /// The tags of the job.
    pub tags: Vec<String>,
    /// The batch of the job.
    pub batch: Option<String>,
    /// The unique key: at most one unfinished job has it.
    pub unique_key: Option<String>,
    /// The idempotency key: at most one job ever has it.
    pub idempotency_key: Option<String>,
    /// The capability that a node needs to run the job.
    pub capability: Option<String>,
    /// The resource of which the job needs a permit to run.
    pub permit: Option<String>,
    /// The recurring definition that created the job.
    pub recurring: Option<Origin>,
    /// The signal that the job waits, or waited, for.
    pub signal: Option<Signal>,
    /// The error of the last failed attempt, as free text.
    pub last_error: Option<String>,
}

/// The progress that a body reported.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Progress {
    /// The progress in percent, from 0 to 100.
    pub percent: u8,
    /// A message for people, as free text.
    pub message: String,
}

/// The recurring definition that created a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Origin {
    /// The name of the definition.
    pub name: String,
    /// The slot that the job is for; null if the job was triggered by hand.
    pub slot_at: Option<At>,
}

/// The signal that a job waits for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Signal {
    /// The name of the signal.
    pub key: String,
    /// The deadline of the signal.
    pub deadline_at: Option<At>,
    /// When the signal was delivered; null if it was not.
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
    /// The value of `after` for the next page; null on the last page.
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
    /// These fields are shown.
    No,
    /// These fields are hidden.
    Yes,
}

/// A job with all of its details.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct JobDetail {
    /// The fields that listings also contain.
    #[serde(flatten)]
    pub job: Job,
    /// The payload; missing if it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub payload: Option<Box<RawValue>>,
    /// Whether payload, result, checkpoint and signal payload are hidden.
    pub payload_hidden: bool,
    /// The version of the payload's format.
    pub payload_version: u32,
    /// The size of the payload in bytes of JSON.
    pub payload_bytes: usize,
    /// The result; missing if there is none or it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub result: Option<Box<RawValue>>,
    /// The checkpoint for the next attempt; missing if there is none or it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub checkpoint: Option<Box<RawValue>>,
    /// The payload of the signal; missing if no signal was delivered or it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub signal_payload: Option<Box<RawValue>>,
    /// The trace in which the job was enqueued.
    pub trace: Option<Trace>,
    /// The timeout of one attempt; null without one.
    pub timeout_ms: Option<u64>,
    /// The time without a report after which a running body counts as stalled; null without a
    /// limit.
    pub stall_timeout_ms: Option<u64>,
    /// The retry policy.
    pub retry: Retry,
    /// The actions that the present state allows.
    pub actions: Vec<JobAction>,
}

impl JobDetail {
    /// Creates the view of a job, with or without payload, result, checkpoint and signal payload.
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

/// Returns stored JSON unchanged.
///
/// A text that is not valid JSON, which Ratchet never writes, becomes a JSON string, so that the
/// job can still be shown.
fn raw(text: &str) -> Box<RawValue> {
    let whole = RawValue::from_string(text.to_owned());
    whole
        .or_else(|_| serde_json::value::to_raw_value(text))
        .unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The trace in which a job was enqueued, in the format of the W3C Trace Context headers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Trace {
    /// The header `traceparent`: `00-<trace id>-<span id>-<flags>`.
    pub traceparent: String,
    /// The header `tracestate`, with data of tracing systems.
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

/// The retry policy of a job: whether and when another attempt follows a failed one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Retry {
    /// How many attempts may fail before the job becomes a dead letter.
    pub max_attempts: u32,
    /// The backoff: `none`, `fixed`, `linear` or `exponential`.
    pub backoff: String,
    /// The delay after the first failed attempt.
    pub delay_ms: u64,
    /// The maximum delay; null without a maximum.
    pub cap_ms: Option<u64>,
    /// The jitter: the percentage by which a delay varies at random.
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
