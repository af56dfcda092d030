//! Links: a job that has links waits for its parents, which are jobs or batches.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::{BatchId, JobId};
use crate::model::{BatchRecord, Condition};

/// The state that a batch must reach before a callback may run. A cancelled child counts as not
/// succeeded, like a failed child.
///
/// ```
/// use ratchet::{BatchCondition, BatchId, NewJob};
///
/// let batch = BatchId::new();
/// let report = NewJob::new("report", &1);
/// let report = report.after_batch(batch, BatchCondition::SucceededAtLeast { percent: 95 });
/// # let _ = report;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum BatchCondition {
    /// The batch has ended.
    Ended,
    /// The batch has ended and every child succeeded. A batch without children meets this
    /// condition.
    Succeeded,
    /// The batch has ended and at least one child did not succeed.
    Failed,
    /// At least this many children did not succeed. The condition may be met before the batch has
    /// ended. The number must be at least 1.
    FailuresReach(u64),
    /// The batch has ended and at least this percentage of its children succeeded. A batch without
    /// children meets this condition.
    SucceededAtLeast {
        /// The percentage, 0 to 100.
        percent: u8,
    },
}

impl BatchCondition {
    /// Returns the state of a link with this condition on a batch with these counts. The state is
    /// `Open` as long as the condition is not met, but can still be met.
    #[must_use]
    pub fn decide(self, batch: &BatchRecord) -> LinkState {
        let failures = batch.failures();
        let over = batch.is_complete();
        // Hopeless: the percentage cannot be reached even if every unfinished child succeeds. A
        // batch that is not closed is never hopeless, because it may get more children.
        let hopeless = |percent: u8| {
            let percent = u128::from(percent);
            batch.closed
                && u128::from(batch.total - failures) * 100 < percent * u128::from(batch.total)
        };
        let (met, unmet) = match self {
            Self::Ended => (over, false),
            Self::Succeeded => (over && failures == 0, failures > 0),
            Self::Failed => (over && failures > 0, over && failures == 0),
            Self::FailuresReach(count) => (failures >= count, over && failures < count),
            Self::SucceededAtLeast { percent } => (over && !hopeless(percent), hopeless(percent)),
        };
        match (met, unmet) {
            (true, _) => LinkState::Met,
            (false, true) => LinkState::Unmet,
            (false, false) => LinkState::Open,
        }
    }
}

/// The parent of a link: the job or the batch that the child waits for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{Condition, NewJob, Parent, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let parent = client.enqueue(NewJob::new("resize", &1)).await?.id();
/// let child = NewJob::new("publish", &1).after(parent, Condition::Succeeded);
/// let child = client.enqueue(child).await?.id();
/// let links = client.children_of(Parent::Job(parent), 10, None).await?;
/// assert_eq!(links[0].child, child);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parent {
    /// A job.
    Job(JobId),
    /// A batch.
    Batch(BatchId),
}

impl Parent {
    /// Returns the number that stores save for the kind of the parent.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Job(_) => 0,
            Self::Batch(_) => 1,
        }
    }

    /// Returns the parent from the stored number of its kind and the 16 bytes of its id.
    ///
    /// # Errors
    /// [`InvalidInput`] if no kind of parent has this number.
    pub fn from_stored(code: i64, id: [u8; 16]) -> Result<Self, InvalidInput> {
        match code {
            0 => Ok(Self::Job(JobId::from_bytes(id))),
            1 => Ok(Self::Batch(BatchId::from_bytes(id))),
            _ => Err(InvalidInput::new(
                "parent",
                format!("has kind {code}; expected 0 (job) or 1 (batch)"),
            )),
        }
    }

    /// Returns the 16 bytes of the id, which stores save.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        match self {
            Self::Job(job) => job.as_bytes(),
            Self::Batch(batch) => batch.as_bytes(),
        }
    }
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => write!(f, "job {job}"),
            Self::Batch(batch) => write!(f, "batch {batch}"),
        }
    }
}

/// A parent that a job waits for, and the condition that the parent must meet.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// for link in client.parents_of(job).await? {
///     println!("waits for {:?}: {:?}", link.after, link.state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// A job.
    Job {
        /// The job.
        parent: JobId,
        /// How the job must end.
        condition: Condition,
    },
    /// A batch.
    Batch {
        /// The batch.
        batch: BatchId,
        /// The state that the batch must reach.
        condition: BatchCondition,
    },
}

impl After {
    /// Returns the parent that the job waits for.
    #[must_use]
    pub const fn parent(&self) -> Parent {
        match self {
            Self::Job { parent, .. } => Parent::Job(*parent),
            Self::Batch { batch, .. } => Parent::Batch(*batch),
        }
    }

    /// Returns a copy of this link in which the parent job is replaced by the job that `stands_for`
    /// returns for it. A link on a batch stays the same.
    #[must_use]
    pub(crate) fn resolved(&self, stands_for: impl FnOnce(JobId) -> JobId) -> Self {
        match self {
            Self::Job { parent, condition } => Self::Job {
                parent: stands_for(*parent),
                condition: condition.clone(),
            },
            Self::Batch { .. } => self.clone(),
        }
    }

    /// Returns the text that stores save for the condition.
    #[must_use]
    pub fn to_stored(&self) -> String {
        match self {
            Self::Job { condition, .. } => condition.to_stored(),
            Self::Batch { condition, .. } => match condition {
                BatchCondition::Succeeded => "succeeded".to_owned(),
                BatchCondition::Failed => "failed".to_owned(),
                BatchCondition::Ended => "ended".to_owned(),
                BatchCondition::FailuresReach(count) => format!("failures_reach {count}"),
                BatchCondition::SucceededAtLeast { percent } => {
                    format!("succeeded_at_least {percent}")
                }
            },
        }
    }

    /// Reads a link on this parent. `text` is the condition, as [`to_stored`](Self::to_stored)
    /// returned it.
    ///
    /// # Errors
    /// [`InvalidInput`] if the text is not a condition for this kind of parent.
    pub fn from_stored(parent: Parent, text: &str) -> Result<Self, InvalidInput> {
        let unknown = || InvalidInput::new("condition", "is not a known condition");
        Ok(match parent {
            Parent::Job(parent) => {
                let condition = Condition::from_stored(text).ok_or_else(unknown)?;
                Self::Job { parent, condition }
            }
            Parent::Batch(batch) => {
                let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
                let number = |text: &str| text.parse::<u64>().map_err(|_| unknown());
                let condition = match (word, rest) {
                    ("succeeded", "") => BatchCondition::Succeeded,
                    ("failed", "") => BatchCondition::Failed,
                    ("ended", "") => BatchCondition::Ended,
                    ("failures_reach", rest) => BatchCondition::FailuresReach(number(rest)?),
                    ("succeeded_at_least", rest) => {
                        let percent = u8::try_from(number(rest)?).map_err(|_| unknown())?;
                        BatchCondition::SucceededAtLeast { percent }
                    }
                    _ => return Err(unknown()),
                };
                Self::Batch { batch, condition }
            }
        })
    }

    /// Refuses a condition whose parts are out of range, malformed or too large to store.
    pub(crate) fn validate(&self) -> Result<(), InvalidInput> {
        let refuse = |problem: String| Err(InvalidInput::new("condition", problem));
        match self {
            Self::Job { condition, .. } => condition.validate(),
            Self::Batch {
                condition: BatchCondition::FailuresReach(0),
                ..
            } => refuse("waits for 0 failures; the minimum is 1".to_owned()),
            Self::Batch {
                condition: BatchCondition::SucceededAtLeast { percent },
                ..
            } if *percent > 100 => refuse(format!(
                "requires a success rate of {percent} %; the \
                 maximum is 100 %"
            )),
            Self::Batch { .. } => Ok(()),
        }
    }
}

/// The state of a link.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// for link in client.parents_of(job).await? {
///     println!("waits for {:?}: {:?}", link.after, link.state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The condition is not met yet, but can still be met.
    Open = 0,
    /// The condition is met.
    Met = 1,
    /// The condition can no longer be met.
    Unmet = 2,
}

impl LinkState {
    const ALL: [Self; 3] = [Self::Open, Self::Met, Self::Unmet];

    /// Returns the number that stores save for the state.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the state with this stored number.
    ///
    /// # Errors
    /// [`InvalidInput`] if no state has this number.
    pub fn from_code(code: i64) -> Result<Self, InvalidInput> {
        usize::try_from(code)
            .ok()
            .and_then(|code| Self::ALL.get(code).copied())
            .ok_or_else(|| InvalidInput::new("link", format!("has state {code}; expected 0 to 2")))
    }
}

/// A stored link: the job that waits, its parent with the condition, and the state of the link.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// for link in client.parents_of(job).await? {
///     println!("waits for {:?}: {:?}", link.after, link.state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// The job that waits, or waited.
    pub child: JobId,
    /// The parent and the condition.
    pub after: After,
    /// The state of the link. Once it is `Met` or `Unmet`, it never changes, even if the parent is
    /// requeued and ends again.
    pub state: LinkState,
}

impl Link {
    /// Creates a link.
    #[must_use]
    pub const fn new(child: JobId, after: After, state: LinkState) -> Self {
        Self {
            child,
            after,
            state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    fn batch(total: u64, succeeded: u64, failed: u64, cancelled: u64, closed: bool) -> BatchRecord {
        let mut batch = BatchRecord::new(BatchId::new(), from_millis(0));
        (batch.total, batch.closed) = (total, closed);
        (batch.succeeded, batch.failed, batch.cancelled) = (succeeded, failed, cancelled);
        batch
    }

    #[test]
    fn conditions_on_batches_are_decided_as_soon_as_they_can_be() {
        use BatchCondition::{Ended, Failed, FailuresReach, Succeeded, SucceededAtLeast};
        use LinkState::{Met, Open, Unmet};
        let most = SucceededAtLeast { percent: 75 };
        let all = [Ended, Succeeded, Failed, FailuresReach(2), most];
        for (stands, expected) in [
            (batch(0, 0, 0, 0, false), [Open, Open, Open, Open, Open]),
            (batch(0, 0, 0, 0, true), [Met, Met, Unmet, Unmet, Met]),
            (batch(4, 4, 0, 0, false), [Open, Open, Open, Open, Open]),
            (batch(4, 4, 0, 0, true), [Met, Met, Unmet, Unmet, Met]),
            (batch(4, 0, 1, 0, true), [Open, Unmet, Open, Open, Open]),
            (batch(4, 3, 0, 1, true), [Met, Unmet, Met, Unmet, Met]),
            (batch(4, 0, 1, 1, false), [Open, Unmet, Open, Met, Open]),
            (batch(4, 0, 1, 1, true), [Open, Unmet, Open, Met, Unmet]),
            (batch(4, 2, 1, 1, true), [Met, Unmet, Met, Met, Unmet]),
        ] {
            assert_eq!(all.map(|one| one.decide(&stands)), expected, "{stands:?}");
        }
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let (job, id) = (JobId::new(), BatchId::new());
        let on_jobs = [Condition::Succeeded, Condition::result_is("/x", &1)];
        let on_batches = [
            BatchCondition::Ended,
            BatchCondition::Succeeded,
            BatchCondition::Failed,
            BatchCondition::FailuresReach(u64::MAX),
            BatchCondition::SucceededAtLeast { percent: 80 },
        ];
        let jobs = on_jobs.map(|condition| After::Job {
            parent: job,
            condition,
        });
        let batches = on_batches.map(|condition| After::Batch {
            batch: id,
            condition,
        });
        for after in jobs.into_iter().chain(batches) {
            assert!(after.validate().is_ok());
            let parent = after.parent();
            let code = i64::from(parent.code());
            assert_eq!(Parent::from_stored(code, *parent.as_bytes()), Ok(parent));
            assert_eq!(After::from_stored(parent, &after.to_stored()), Ok(after));
        }
        assert!(After::from_stored(Parent::Job(job), "other").is_err());
        for text in ["failures_reach x", "succeeded_at_least 300", "result_is []"] {
            assert!(
                After::from_stored(Parent::Batch(id), text).is_err(),
                "{text}"
            );
        }
        for state in LinkState::ALL {
            assert_eq!(LinkState::from_code(state.code().into()), Ok(state));
        }
    }

    #[test]
    fn conditions_that_make_no_sense_are_refused() {
        let (parent, batch) = (JobId::new(), BatchId::new());
        let on_job = After::Job {
            parent,
            condition: Condition::result_is("a", &1),
        };
        let on_batch = |condition| After::Batch { batch, condition };
        for bad in [
            on_job,
            on_batch(BatchCondition::FailuresReach(0)),
            on_batch(BatchCondition::SucceededAtLeast { percent: 101 }),
        ] {
            assert_eq!(bad.validate().unwrap_err().field(), "condition");
        }
    }
}
