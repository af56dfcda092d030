//! What an enqueue does if an unfinished job has the unique key of the new job.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::JobId;
use crate::json::Json;
use crate::limits::MAX_DELAY;
use crate::model::NewJob;
use crate::name::Name;
use crate::state::JobState;
use crate::time::duration_millis;

/// What an enqueue does with the unfinished job that has the unique key of the new job. That job is
/// the *holder* of the key. [`NewJob::on_conflict`] sets it.
///
/// | | the holder waits | the holder runs |
/// |---|---|---|
/// | `Keep` | nothing changes | nothing changes |
/// | `Replace` | gets the new payload | the new job runs after it |
/// | `Debounce` | gets the new payload, and is due later | the new job runs after it |
/// | `Restart` | gets the new payload | is cancelled, and the new job runs after it |
///
/// A job waits while it is pending, blocked or paused, also between two attempts. If the payload of
/// a waiting job is replaced, its checkpoint and its progress are deleted, because they belong to
/// the old payload. The job also gets the [expiry](NewJob::expires_in) of the new job, or none,
/// even if it has begun with the old payload. Everything else stays as it was stored: attempts,
/// priority, tags, parents. The payload of a running job never changes.
///
/// A new job that runs after the holder takes over the unique key, and waits for the end of the
/// holder as with [`Condition::Ended`](crate::Condition::Ended). So the holder no longer has the
/// key, at most one job has the key, and at most one job of the key runs.
///
/// If the holder is of another kind, nothing changes, because its handler could not read the new
/// payload.
///
/// # Repeated enqueues
///
/// A store does not remember which job replaced a payload. If an enqueue that did so is repeated,
/// because its outcome was unknown, the repetition replaces the payload once more:
///
/// - If another enqueue has replaced the payload in between, the older payload is back.
/// - If the holder has begun to run with this payload, the new job runs after it, so the payload
///   runs twice. With `Restart`, the holder is cancelled as well. If the holder has ended, the new
///   job is simply stored.
///
/// [`Client::enqueue`](crate::Client::enqueue) repeats calls after transient failures by itself, so
/// this can happen although the application enqueues once. To be safe, let the payload say what to
/// work on, such as the id of a customer, and read the current data when the job runs. If the
/// payload must contain the data, add a version number, and let the body skip versions that are
/// older than the one it has stored.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{Enqueued, NewJob, OnConflict, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let sync = |version: u32| {
///     NewJob::new("sync", &version).unique_key("sync:7").on_conflict(OnConflict::Replace)
/// };
/// let first = client.enqueue(sync(1)).await?.id();
/// assert_eq!(client.enqueue(sync(2)).await?, Enqueued::Replaced(first));
/// let job = client.job(first).await?.expect("the job is stored");
/// assert_eq!(job.spec.payload.as_str(), "2");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// The new job is a [duplicate](crate::Enqueued::Duplicate).
    #[default]
    Keep,
    /// A waiting holder gets the payload of the new job. After a running holder, the new job runs.
    Replace,
    /// As `Replace`, and a waiting holder becomes due when the new job would be due, if this is
    /// later. It is due at most `max_delay` after its own enqueue. [`NewJob::debounce`] sets this.
    Debounce {
        /// How long after its enqueue the holder is due at the latest.
        max_delay: Duration,
    },
    /// As `Replace`, and a running holder is cancelled, as with
    /// [`Client::cancel`](crate::Client::cancel).
    Restart,
}

/// The unfinished job that has the unique key of a new job, as a store has found and locked it.
#[derive(Clone, Debug)]
pub struct KeyHolder {
    pub(super) job: JobId,
    state: JobState,
    kind: Name,
    run_at: i64,
    created_at: i64,
}

impl KeyHolder {
    /// Creates a holder of this state and kind. `run_at` is when the job is due, and `created_at`
    /// is when it was enqueued, both in milliseconds since 1970.
    #[must_use]
    pub const fn new(
        job: JobId,
        state: JobState,
        kind: Name,
        run_at: i64,
        created_at: i64,
    ) -> Self {
        Self {
            job,
            state,
            kind,
            run_at,
            created_at,
        }
    }
}

/// What a store writes to the holder of a unique key. The store compares the holder's state in the
/// same write, or has locked the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderChange {
    /// The waiting job gets this payload and due time, and loses its checkpoint and its progress.
    /// `[keys.replace]` `[keys.debounce]`
    Replace {
        /// The job that has the key.
        job: JobId,
        /// The payload of the new job.
        payload: Json,
        /// The version of the payload.
        payload_version: u32,
        /// When the job is due, in milliseconds since 1970.
        run_at: i64,
        /// When the job expires, in milliseconds since 1970; `None` if it never does.
        /// `[expiry.replace]`
        expires_at: Option<i64>,
    },
    /// The running job loses its unique key, which the new job gets. `[keys.follow]`
    GiveUp {
        /// The job that has the key.
        job: JobId,
        /// Whether to request the cancellation of the job. `[keys.restart]`
        cancel: bool,
    },
}

impl HolderChange {
    /// Returns the job that has the key.
    #[must_use]
    pub const fn job(&self) -> JobId {
        match self {
            Self::Replace { job, .. } | Self::GiveUp { job, .. } => *job,
        }
    }
}

impl OnConflict {
    /// Decides what becomes of the holder of the unique key of `new`. `None` means that `new` is a
    /// duplicate. This is the table in the documentation of the type.
    #[must_use]
    pub fn decide(self, new: &NewJob, holder: &KeyHolder, now: i64) -> Option<HolderChange> {
        let job = holder.job;
        if self == Self::Keep || holder.kind != new.spec().route.kind || holder.state.is_terminal()
        {
            return None;
        }
        if holder.state == JobState::Running {
            let cancel = self == Self::Restart;
            return Some(HolderChange::GiveUp { job, cancel });
        }
        let run_at = match self {
            Self::Debounce { max_delay } => {
                let latest = holder.created_at.saturating_add(duration_millis(max_delay));
                holder.run_at.max(new.due().resolve(now).min(latest))
            }
            Self::Keep | Self::Replace | Self::Restart => holder.run_at,
        };
        Some(HolderChange::Replace {
            job,
            payload: new.spec().payload.clone(),
            payload_version: new.spec().payload_version,
            run_at,
            expires_at: new.resolve_expiry(now),
        })
    }

    /// Refuses a maximum delay of a debounce that is too long, or shorter than `delay`.
    pub(super) fn check_delays(self, delay: Duration) -> Result<(), InvalidInput> {
        let Self::Debounce { max_delay } = self else {
            return Ok(());
        };
        if delay.is_zero() {
            return Err(InvalidInput::new(
                "delay",
                "is zero; a debounce needs a delay",
            ));
        }
        if max_delay > MAX_DELAY {
            return Err(InvalidInput::new("max_delay", "is longer than 1,000 years"));
        }
        if max_delay < delay {
            let problem = format!("is {max_delay:?}, which is shorter than the delay of {delay:?}");
            return Err(InvalidInput::new("max_delay", problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MODES: [OnConflict; 4] = [
        OnConflict::Keep,
        OnConflict::Replace,
        OnConflict::Debounce {
            max_delay: Duration::from_secs(5),
        },
        OnConflict::Restart,
    ];

    fn job() -> NewJob {
        NewJob::new("kind", &7).delay(SECOND)
    }

    fn holder(state: JobState) -> KeyHolder {
        let kind = Name::new("kind", "kind").unwrap();
        KeyHolder::new(JobId::new(), state, kind, 1_500, 500)
    }

    #[test]
    fn the_table_decides_by_mode_and_state() {
        for state in JobState::ALL {
            for mode in MODES {
                let holder = holder(state);
                let done = mode.decide(&job(), &holder, 2_000);
                let waits = [JobState::Pending, JobState::Blocked, JobState::Paused];
                let replaced = |run_at| {
                    let payload = job().spec().payload.clone();
                    let (job, payload_version) = (holder.job, 1);
                    Some(HolderChange::Replace {
                        job,
                        payload,
                        payload_version,
                        run_at,
                        expires_at: None,
                    })
                };
                let expected = match mode {
                    OnConflict::Keep => None,
                    OnConflict::Debounce { .. } if waits.contains(&state) => replaced(3_000),
                    _ if waits.contains(&state) => replaced(1_500),
                    _ if state == JobState::Running => Some(HolderChange::GiveUp {
                        job: holder.job,
                        cancel: mode == OnConflict::Restart,
                    }),
                    _ => None,
                };
                assert_eq!(done, expected, "{mode:?} {state:?}");
            }
        }
    }

    #[test]
    fn a_debounce_never_moves_a_job_forward_nor_beyond_its_maximum() {
        let due = |now, run_at| {
            let holder = KeyHolder {
                run_at,
                ..holder(JobState::Pending)
            };
            match MODES[2].decide(&job(), &holder, now) {
                Some(HolderChange::Replace { run_at, .. }) => run_at,
                other => panic!("expected a replacement, found {other:?}"),
            }
        };
        assert_eq!(due(1_000, 1_500), 2_000);
        assert_eq!(due(4_499, 1_500), 5_499);
        assert_eq!(due(4_501, 1_500), 5_500);
        assert_eq!(due(60_000, 1_500), 5_500);
        // A retry, or an operator, has set a later time.
        assert_eq!(due(1_000, 9_000), 9_000);
        assert_eq!(due(i64::MAX, 1_500), 5_500);
    }

    #[test]
    fn a_waiting_holder_gets_the_expiry_of_the_new_job() {
        let changed = |new: NewJob| {
            let holder = holder(JobState::Pending);
            match OnConflict::Replace.decide(&new, &holder, 2_000) {
                Some(HolderChange::Replace { expires_at, .. }) => expires_at,
                other => panic!("expected a replacement, found {other:?}"),
            }
        };
        assert_eq!(changed(job()), None);
        assert_eq!(changed(job().expires_in(2 * SECOND)), Some(4_000));
    }

    #[test]
    fn a_holder_of_another_kind_does_not_change() {
        let holder = KeyHolder {
            kind: Name::new("kind", "other").unwrap(),
            ..holder(JobState::Running)
        };
        for mode in MODES {
            assert_eq!(mode.decide(&job(), &holder, 0), None);
        }
    }
}
