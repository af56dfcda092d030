//! What is stored, asked and answered: the types the store traits speak.

mod claim;
mod control;
mod guard;
mod new_job;
mod node;
mod permit;
mod query;
mod rate;
mod reclaim;
mod record;
mod report;
mod settle;

pub use claim::{Claim, ClaimRequest, ClaimedJob, JobInput};
pub use control::{Acted, ActionOutcome, JobSelector};
pub use guard::{Guard, Guarded};
pub(crate) use new_job::positive;
pub use new_job::{Enqueued, JobSpec, NewJob, RunAt};
pub use node::{
    Heartbeat, HeartbeatReply, NodeLoad, NodeProfile, NodeRecord, NodeStatus, NodeSweep, Others,
    SweptNodes,
};
pub use permit::PermitInfo;
pub use query::{JobFilter, JobOrder, JobPage, PageRequest, PurgeRequest, QueueInfo, StateCounts};
pub use rate::{RateAnswer, RateRequest};
pub use reclaim::{HeldClaim, Owner, ReclaimEffect, ReclaimReason, ReclaimRequest, Reclaimed};
pub use record::{Attempt, AttemptOutcome, JobRecord, Progress};
pub use report::{Report, ReportKind, Reported};
pub use settle::{Effect, Fenced, NextRun, Outcome, Settlement};
