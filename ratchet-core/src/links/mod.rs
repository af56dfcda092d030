//! What the end of jobs does to those that wait for them: pure, without I/O.
//!
//! [`Cascade`] is the one place where links are decided. A store feeds it the jobs that ended in a
//! call, does what it asks for until it asks for nothing more, and commits all of it together with
//! the ends themselves. [`resolve`] says what the jobs of an enqueue wait for.

mod cascade;
mod graph;

pub use cascade::{Ask, Cascade, Changes, EndedJob, OpenLink, WaitingJob};
pub(crate) use graph::refuse_cycles;
pub use graph::resolve;

use crate::error::InvalidInput;
use crate::id::BatchId;
use crate::model::Parent;
use crate::state::JobState;

/// What is wrong with an enqueue that waits for somebody who does not exist, or joins a batch that
/// does not.
#[must_use]
pub fn missing(parent: Parent) -> InvalidInput {
    match parent {
        Parent::Job(job) => InvalidInput::new(
            "parent",
            format!("{job} is neither stored nor in this enqueue"),
        ),
        Parent::Batch(batch) => InvalidInput::new("batch", format!("{batch} is not stored")),
    }
}

/// What is wrong with an enqueue into a closed batch.
#[must_use]
pub fn closed(batch: BatchId) -> InvalidInput {
    InvalidInput::new("batch", format!("{batch} is closed"))
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
