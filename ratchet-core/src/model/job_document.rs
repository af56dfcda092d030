//! The JSON format of a job. See [`ArchivedJob::encode`](super::ArchivedJob::encode) and
//! [`StoredJob::encode`](super::StoredJob::encode).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::{ClaimToken, JobId, NodeId};
use crate::json::Json;
use crate::model::document::unreadable;
use crate::model::spec_document::SpecDocument;
use crate::model::{Attempt, AttemptOutcome, JobRecord, Progress, SignalRecord};
use crate::state::JobState;
use crate::time::{duration_micros, from_millis, to_millis};

#[derive(Serialize, Deserialize)]
struct Document {
    id: String,
    #[serde(flatten)]
    spec: SpecDocument,
    state: u8,
    run_at: i64,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    #[serde(default)]
    attempts: u32,
    #[serde(default)]
    crash_count: u32,
    #[serde(default)]
    claim_seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<StoredProgress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal_deadline: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delivered: Option<StoredDelivery>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<Entry>,
    #[serde(flatten)]
    live: Live,
}

/// Fields that a store needs as long as the job is not archived. Archived jobs do not have them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Live {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) claimed_at: Option<i64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) cancel_requested: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) links: Vec<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lane_seq: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turn: Option<i64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) has_children: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_counted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_report: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) settled: Option<StoredToken>,
}

/// A claim token without the job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredToken {
    seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    claimed_at: i64,
}

impl StoredToken {
    pub(super) fn of(token: ClaimToken) -> Self {
        Self {
            seq: token.seq,
            node: token.node.map(|node| node.to_string()),
            claimed_at: to_millis(token.claimed_at),
        }
    }

    pub(super) fn token(self, job: JobId) -> Result<ClaimToken, InvalidInput> {
        let claimed_at = from_millis(self.claimed_at);
        Ok(ClaimToken::new(job, self.seq, node(self.node)?, claimed_at))
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the flag by reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[derive(Serialize, Deserialize)]
struct StoredProgress {
    percent: u8,
    #[serde(default)]
    message: String,
}

#[derive(Serialize, Deserialize)]
struct StoredDelivery {
    at: i64,
    payload: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    claimed_at: i64,
    ended_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ran_for_us: Option<i64>,
    outcome: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(super) fn encode(
    job: &JobRecord,
    history: &[Attempt],
    live: Live,
) -> Result<String, InvalidInput> {
    // Lists every field, so that this code stops compiling when a field is added and not handled
    // here. The ignored fields describe the claim, which `live` contains.
    let JobRecord {
        id,
        spec,
        state,
        run_at,
        created_at,
        finished_at,
        expires_at,
        attempts,
        crash_count,
        claim_seq,
        node: _,
        claimed_at: _,
        cancel_requested: _,
        progress,
        checkpoint,
        result,
        last_error,
        signal,
    } = job;
    let json = |json: &Option<Json>| json.as_ref().map(|json| json.as_str().to_owned());
    let document = Document {
        id: id.to_string(),
        spec: SpecDocument::of(spec),
        state: state.code(),
        run_at: to_millis(*run_at),
        created_at: to_millis(*created_at),
        finished_at: finished_at.map(to_millis),
        expires_at: expires_at.map(to_millis),
        attempts: *attempts,
        crash_count: *crash_count,
        claim_seq: *claim_seq,
        progress: progress.as_ref().map(|progress| StoredProgress {
            percent: progress.percent,
            message: progress.message.clone(),
        }),
        checkpoint: json(checkpoint),
        result: json(result),
        last_error: last_error.clone(),
        signal_deadline: signal.as_ref().map(|signal| to_millis(signal.deadline)),
        delivered: (signal.as_ref())
            .and_then(|signal| signal.delivered.as_ref())
            .map(|delivery| StoredDelivery {
                at: to_millis(delivery.at),
                payload: delivery.payload.as_str().to_owned(),
            }),
        history: history.iter().map(entry).collect(),
        live,
    };
    super::document::encode(&document)
}

fn entry(attempt: &Attempt) -> Entry {
    let Attempt {
        seq,
        node,
        claimed_at,
        ended_at,
        ran_for,
        outcome,
        error,
    } = attempt;
    Entry {
        seq: *seq,
        node: node.map(|node| node.to_string()),
        claimed_at: to_millis(*claimed_at),
        ended_at: to_millis(*ended_at),
        ran_for_us: ran_for.map(duration_micros),
        outcome: outcome.code(),
        error: error.clone(),
    }
}

pub(super) fn decode(text: &str) -> Result<(JobRecord, Vec<Attempt>, Live), InvalidInput> {
    let document: Document = super::document::decode(text)?;
    let spec = document.spec.into_spec()?;
    let id: JobId = document.id.parse().map_err(|error| unreadable(&error))?;
    let (run_at, created_at) = (document.run_at, document.created_at);
    let mut job = JobRecord::new(id, spec, from_millis(run_at), from_millis(created_at));
    job.state = JobState::from_code(document.state.into())?;
    job.finished_at = document.finished_at.map(from_millis);
    job.expires_at = document.expires_at.map(from_millis);
    job.attempts = document.attempts;
    job.crash_count = document.crash_count;
    job.claim_seq = document.claim_seq;
    job.progress = document.progress.map(|progress| Progress {
        percent: progress.percent,
        message: progress.message,
    });
    job.checkpoint = document.checkpoint.map(Json::from_stored);
    job.result = document.result.map(Json::from_stored);
    job.last_error = document.last_error;
    job.signal = document.signal_deadline.map(|deadline| {
        let signal = SignalRecord::new(from_millis(deadline));
        match document.delivered {
            None => signal,
            Some(came) => signal.delivered(from_millis(came.at), Json::from_stored(came.payload)),
        }
    });
    let history = document.history.into_iter().map(attempt);
    Ok((job, history.collect::<Result<_, _>>()?, document.live))
}

/// Parses the id of a node.
pub(super) fn node(text: Option<String>) -> Result<Option<NodeId>, InvalidInput> {
    let node = text.map(|node| node.parse().map_err(|error| unreadable(&error)));
    node.transpose()
}

impl Attempt {
    /// Encodes the entry as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        super::document::encode(&entry(self))
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        attempt(super::document::decode(document)?)
    }
}

fn attempt(entry: Entry) -> Result<Attempt, InvalidInput> {
    let mut attempt = Attempt::new(
        entry.seq,
        node(entry.node)?,
        from_millis(entry.claimed_at),
        from_millis(entry.ended_at),
        AttemptOutcome::from_code(entry.outcome.into())?,
    );
    attempt.ran_for = (entry.ran_for_us).map(|micros| Duration::from_micros(micros.unsigned_abs()));
    attempt.error = entry.error;
    Ok(attempt)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::id::BatchId;
    use crate::model::{After, BatchCondition, Condition, JobSpec, RecurringOrigin, SignalWait};
    use crate::name::Name;
    use crate::priority::Priority;
    use crate::retry::RetryPolicy;
    use crate::route::Route;
    use crate::trace::TraceContext;

    pub(crate) fn full() -> (JobRecord, Vec<Attempt>) {
        let name = |text: &str| Name::new("name", text).unwrap();
        let route = Route {
            queue: name("Größe"),
            kind: name("kind"),
            capability: Some(name("gpu")),
            permit: Some(name("licence")),
        };
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut spec = JobSpec::new(route, Json::from_stored("[1, 2.0,\"\\u0000\"]"));
        spec.payload_version = 3;
        spec.priority = Priority::High;
        spec.retry = RetryPolicy::fixed(3, Duration::from_secs(1));
        spec.timeout = Some(Duration::from_millis(5));
        spec.stall_timeout = Some(Duration::from_millis(6));
        spec.unique_key = Some(name("u"));
        spec.idempotency_key = Some(name("i"));
        spec.lane = Some(name("l"));
        spec.trace = Some(TraceContext::from_stored(
            parent.to_owned(),
            Some("a=1".to_owned()),
        ));
        spec.tags = [name("tenant:7"), name("b")].into();
        spec.after = vec![
            After::Job {
                parent: JobId::new(),
                condition: Condition::result_is("/a", &1),
            },
            After::Batch {
                batch: BatchId::new(),
                condition: BatchCondition::FailuresReach(3),
            },
        ];
        spec.batch = Some(BatchId::new());
        spec.signal = Some(SignalWait::new(name("go"), Duration::from_secs(9)));
        spec.recurring = Some(RecurringOrigin {
            name: name("nightly"),
            slot: Some(from_millis(7)),
        });
        let at = from_millis;
        let mut job = JobRecord::new(JobId::new(), spec, at(2), at(1));
        job.state = JobState::Failed;
        job.finished_at = Some(at(9));
        job.expires_at = Some(at(6));
        (job.attempts, job.crash_count, job.claim_seq) = (2, 1, 3);
        job.progress = Some(Progress {
            percent: 40,
            message: "half".to_owned(),
        });
        job.checkpoint = Some(Json::from_stored("{}"));
        job.result = Some(Json::from_stored("not JSON"));
        job.last_error = Some("it failed".to_owned());
        let signal = SignalRecord::new(at(8));
        job.signal = Some(signal.delivered(at(7), Json::from_stored("[1]")));
        let mut first = Attempt::new(1, Some(NodeId::new()), at(3), at(4), AttemptOutcome::Lost);
        first.ran_for = Some(Duration::from_micros(1_001));
        first.error = Some("e".to_owned());
        let second = Attempt::new(3, None, at(5), at(9), AttemptOutcome::Failed);
        (job, vec![first, second])
    }

    #[test]
    fn a_whole_job_round_trips() {
        let (job, history) = full();
        let text = encode(&job, &history, Live::default()).unwrap();
        let (read, entries, _) = decode(&text).unwrap();
        assert_eq!((read, &entries), (job, &history));
        for entry in history {
            assert_eq!(Attempt::decode(&entry.encode().unwrap()), Ok(entry));
        }
    }

    /// Documents of the first version must stay readable, even if later versions add fields.
    #[test]
    fn what_is_missing_is_at_its_default_and_what_is_unknown_is_ignored() {
        let text = r#"{"v":1,"id":"01890a5d-ac96-774b-bcce-b302099a8057","queue":"q","kind":"k",
            "payload":"1","state":4,"run_at":5,"created_at":4,"later":{"x":[]}}"#;
        let (job, history, _) = decode(text).unwrap();
        let route = job.spec.route.clone();
        let spec = JobSpec::new(route, Json::from_stored("1"));
        let mut expected = JobRecord::new(job.id, spec, from_millis(5), from_millis(4));
        expected.state = JobState::Succeeded;
        assert_eq!((job, history), (expected, Vec::new()));
    }

    #[test]
    fn what_is_no_such_document_is_refused() {
        let text = encode(&full().0, &[], Live::default()).unwrap();
        for (good, bad) in [
            ("\"v\":1", "\"v\":2"),
            ("\"v\":1", "\"w\":1"),
            ("\"state\":5", "\"state\":7"),
            ("\"priority\":3", "\"priority\":9"),
            ("\"queue\":\"", "\"queue\":\"\\u0000"),
        ] {
            assert!(text.contains(good), "{good}");
            assert!(decode(&text.replace(good, bad)).is_err(), "{bad}");
        }
        assert_eq!(decode("{").unwrap_err().field(), "document");
    }
}
