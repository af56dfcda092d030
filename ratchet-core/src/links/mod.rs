//! Decides how ended jobs affect the jobs that wait for them. The code is pure, without I/O.
//!
//! Only [`Cascade`] decides whether the condition of a link is met. A store passes the jobs that
//! ended in a call to the cascade, and performs each step that the cascade returns. It commits
//! these changes in the transaction in which the jobs ended. [`NewLinks`] collects the links of the
//! jobs of an enqueue.

mod cascade;
mod graph;
mod new_links;

pub use cascade::{Ask, Cascade, Changes, EndedJob, OpenLink, WaitingJob};
pub(crate) use graph::refuse_cycles;
pub use new_links::NewLinks;

use crate::error::InvalidInput;
use crate::id::JobId;
use crate::model::{Enqueued, Parent};
use crate::state::JobState;

/// Returns the error for an enqueue that names a parent job or batch that does not exist.
fn missing(parent: Parent) -> InvalidInput {
    match parent {
        Parent::Job(job) => InvalidInput::new(
            "parent",
            format!("{job} is neither stored nor in this enqueue"),
        ),
        Parent::Batch(batch) => InvalidInput::new("batch", format!("{batch} is not stored")),
    }
}

/// Returns the error for an enqueue if the job `parent` is not stored. `answers` has the store's
/// answer for each job of the enqueue. The error has a special text if one of these answers names
/// `parent` as the original of a duplicate.
#[must_use]
pub fn missing_parent(parent: JobId, answers: &[Enqueued]) -> InvalidInput {
    if !answers.contains(&Enqueued::Duplicate(parent)) {
        return missing(Parent::Job(parent));
    }
    let problem = format!(
        "{parent} was purged: it is the earlier job with the idempotency key of a job in this \
         enqueue"
    );
    InvalidInput::new("parent", problem)
}

/// Returns the state for a job that is enqueued or requeued. The state is `Blocked` if the job has
/// open links or still waits for a signal, and otherwise `Pending`.
#[must_use]
pub const fn waiting_state(has_open_links: bool, awaits_signal: bool) -> JobState {
    if has_open_links || awaits_signal {
        JobState::Blocked
    } else {
        JobState::Pending
    }
}

/// Returns whether the deadline for a signal has passed. Both times are in milliseconds since 1970.
#[must_use]
pub const fn is_too_late(deadline: i64, now: i64) -> bool {
    deadline <= now
}
