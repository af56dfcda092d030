//! What is stored, asked and answered: the types the store traits speak.

mod batch;
mod claim;
mod control;
mod guard;
mod link;
mod new_job;
mod node;
mod query;
mod reclaim;
mod record;
mod report;
mod settle;
mod signal;

pub use batch::{BatchClosed, BatchPurge, BatchRecord};
pub use claim::{Claim, ClaimRequest, ClaimedJob, JobInput};
pub use control::{Acted, ActionOutcome, JobSelector};
pub use guard::{Guard, Guarded};
pub use link::{After, BatchCondition, Condition, Link, LinkState, Parent};
pub(crate) use new_job::positive;
pub use new_job::{Enqueued, JobSpec, NewJob, RunAt};
pub use node::{
    Heartbeat, HeartbeatReply, NodeLoad, NodeProfile, NodeRecord, NodeStatus, NodeSweep, Others,
    SweptNodes,
};
pub use query::{JobFilter, JobOrder, JobPage, PageRequest, PurgeRequest, QueueInfo, StateCounts};
pub use reclaim::{HeldClaim, Owner, ReclaimEffect, ReclaimReason, ReclaimRequest, Reclaimed};
pub use record::{Attempt, AttemptOutcome, JobRecord, Progress};
pub use report::{Report, ReportKind, Reported};
pub use settle::{Effect, Fenced, NextRun, Outcome, Settlement};
pub use signal::{Delivered, Delivery, Signal, SignalRecord, SignalTarget, SignalWait};
