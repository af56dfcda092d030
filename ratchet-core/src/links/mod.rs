//! What the end of jobs does to those that wait for them: pure, without I/O.
//!
//! [`Cascade`] is the one place where links are decided. A store feeds it the jobs that ended in a
//! call, does what it asks for until it asks for nothing more, and commits all of it together with
//! the ends themselves. [`NewLinks`] says what the jobs of an enqueue wait for.

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

/// Returns the error of an enqueue that waits for a job which does not exist, or joins a batch
/// which does not.
fn missing(parent: Parent) -> InvalidInput {
    match parent {
        Parent::Job(job) => InvalidInput::new(
            "parent",
            format!("{job} is neither stored nor in this enqueue"),
        ),
        Parent::Batch(batch) => InvalidInput::new("batch", format!("{batch} is not stored")),
    }
}

/// Returns the error of an enqueue one of whose parents is not stored, given its answers.
#[must_use]
pub fn missing_parent(parent: JobId, answers: &[Enqueued]) -> InvalidInput {
    if !answers.contains(&Enqueued::Duplicate(parent)) {
        return missing(Parent::Job(parent));
    }
    let problem = format!(
        "{parent} is gone: an earlier job that has the idempotency key of one in this enqueue, stands \
         for it and was purged"
    );
    InvalidInput::new("parent", problem)
}

/// The state in which a job waits that has open links or not, and whose signal has still to come or
/// not: at its enqueue, and when it is requeued.
#[must_use]
pub const fn waiting_state(has_open_links: bool, awaits_signal: bool) -> JobState {
    if has_open_links || awaits_signal {
        JobState::Blocked
    } else {
        JobState::Pending
    }
}

/// Whether it is too late for a signal. Times are milliseconds.
#[must_use]
pub const fn is_too_late(deadline: i64, now: i64) -> bool {
    deadline <= now
}
