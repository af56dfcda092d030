//! Stores single jobs of concurrent calls together (group commit).

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Checked;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::model::{Enqueued, NewJob};
use crate::store::Store;

/// Maximum number of jobs in a group.
const GROUP: usize = 100;

/// Maximum size of the payload of a gathered job, in bytes. A larger job would delay its group.
pub(super) const LARGEST: usize = 16 * 1024;

/// How long a job waits for its turn before its call stores it alone. The enqueue in progress may
/// wait for something that does not concern this job.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// The jobs that gather while an enqueue is in progress.
///
/// Most of the cost of an enqueue is a round trip and a commit. So if callers enqueue single jobs
/// concurrently, their jobs gather while one enqueue is in progress. When it ends, the caller that
/// has waited longest stores the gathered jobs with one call. A caller that is alone never waits.
#[derive(Clone, Default)]
pub(super) struct Gather(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Whether an enqueue is in progress.
    busy: bool,
    waiting: VecDeque<Waiting>,
}

/// A job whose caller waits for its turn.
struct Waiting {
    job: NewJob,
    turn: oneshot::Sender<Turn>,
}

/// What a caller does with its job.
enum Turn {
    /// Store the job, together with the jobs that have gathered.
    Lead(Lead),
    /// Nothing: another caller has stored the job.
    Stored(Enqueued),
    /// Give up: the call of another caller that had this job timed out, for this reason.
    TimedOut(String),
    /// Store the job alone. If a failed call has stored it after all, the repetition finds it by
    /// its id.
    Alone,
}

/// The right to store jobs. If it is dropped, the caller that has waited longest gets it.
struct Lead(Option<Gather>);

impl Drop for Lead {
    fn drop(&mut self) {
        let Some(gather) = self.0.take() else { return };
        let mut state = gather.lock();
        while let Some(next) = state.waiting.pop_front() {
            match next.turn.send(Turn::Lead(Self(Some(gather.clone())))) {
                Ok(()) => return,
                // This caller has gone.
                Err(Turn::Lead(mut lead)) => drop(lead.0.take()),
                Err(_) => {}
            }
        }
        state.busy = false;
    }
}

impl Gather {
    /// Returns whether these jobs may be stored together with those of other calls: a single small
    /// job without keys, lane, links and expiry, so that no lock of another job can make it wait.
    pub(super) fn admits(jobs: &[NewJob]) -> bool {
        let [job] = jobs else { return false };
        let spec = job.spec();
        !spec.has_keys()
            && !job.needs_transaction()
            && spec.recurring.is_none()
            && spec.payload.as_str().len() <= LARGEST
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the caller knows what to do with its job.
    async fn turn(&self, job: &NewJob) -> Turn {
        let mut told = {
            let mut state = self.lock();
            if !state.busy {
                state.busy = true;
                return Turn::Lead(Lead(Some(self.clone())));
            }
            let (turn, told) = oneshot::channel();
            let job = job.clone();
            state.waiting.push_back(Waiting { job, turn });
            told
        };
        let turn = match tokio::time::timeout(PATIENCE, &mut told).await {
            Ok(turn) => turn,
            Err(_) if self.leave(job) => return Turn::Alone,
            // Another caller is storing this job.
            Err(_) => told.await,
        };
        // A caller that fails drops the senders of its group.
        turn.unwrap_or(Turn::Alone)
    }

    /// Takes a job back, and with it all waiting jobs of the same id. Returns `false` if another
    /// caller has taken it, or has told its caller.
    fn leave(&self, job: &NewJob) -> bool {
        let mut state = self.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| waiting.job.id() != job.id());
        state.waiting.len() < before
    }

    /// Takes the jobs that have gathered, except jobs with the same ids as others of the group.
    fn group(&self, first: &NewJob) -> (Vec<NewJob>, Vec<oneshot::Sender<Turn>>) {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let mut ids = HashSet::from([first.id()]);
        let (mut jobs, mut callers) = (vec![first.clone()], Vec::new());
        for waiting in std::mem::take(&mut state.waiting) {
            if waiting.turn.is_closed() {
                // This caller has gone.
            } else if jobs.len() < GROUP && ids.insert(waiting.job.id()) {
                jobs.push(waiting.job);
                callers.push(waiting.turn);
            } else {
                state.waiting.push_back(waiting);
            }
        }
        (jobs, callers)
    }
}

impl<S: Store + ?Sized> Checked<S> {
    /// Stores a job that [`Gather::admits`], perhaps together with jobs of concurrent calls.
    ///
    /// Ends after the deadline of a call and [`PATIENCE`], whatever the other callers do.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may or may not be stored. No other caller loses its job.
    pub(super) async fn enqueue_gathered(&self, alone: &[NewJob]) -> Result<Vec<Enqueued>> {
        let limit = self.store.call_policy().deadline.saturating_add(PATIENCE);
        let stored = tokio::time::timeout(limit, self.store_with_others(alone));
        stored.await.unwrap_or_else(|_| {
            let text = format!("the call that stores the job did not end within {limit:?}");
            Err(StoreError::new(StoreErrorKind::Timeout, "enqueue").with_source(text))
        })
    }

    async fn store_with_others(&self, alone: &[NewJob]) -> Result<Vec<Enqueued>> {
        let job = &alone[0];
        let lead = match self.gather.turn(job).await {
            Turn::Lead(lead) => lead,
            Turn::Stored(answer) => return Ok(vec![answer]),
            Turn::TimedOut(text) => {
                let error = StoreError::new(StoreErrorKind::Timeout, "enqueue");
                return Err(error.with_source(text));
            }
            Turn::Alone => return self.enqueue_now(alone).await,
        };
        let (group, callers) = self.gather.group(job);
        if callers.is_empty() {
            return self.enqueue_now(alone).await;
        }
        match self.enqueue_now(&group).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                let own = answers.next().into_iter().collect();
                for (caller, answer) in callers.into_iter().zip(answers) {
                    // The caller may have gone.
                    let _ = caller.send(Turn::Stored(answer));
                }
                Ok(own)
            }
            Err(error) if error.kind() == StoreErrorKind::Timeout => {
                let cause = std::error::Error::source(&error);
                let cause = cause.map_or_else(String::new, ToString::to_string);
                for caller in callers {
                    let _ = caller.send(Turn::TimedOut(cause.clone()));
                }
                Err(error)
            }
            Err(_) => {
                // The reason may be another job of the group.
                drop(callers);
                drop(lead);
                self.enqueue_now(alone).await
            }
        }
    }

    /// Stores jobs with one call.
    pub(super) async fn enqueue_now(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        self.call("enqueue", || self.store.jobs().enqueue(jobs))
            .await
    }
}
