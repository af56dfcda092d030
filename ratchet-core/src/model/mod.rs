//! The types that the store traits use: stored values, requests and results.

mod among;
mod archive;
mod batch;
mod claim;
mod clock_trust;
mod condition;
mod control;
pub(crate) mod document;
mod due_route;
mod fair_key;
mod fair_keys;
mod fair_limit;
mod finding;
mod flags;
mod guard;
mod job_document;
mod job_spec;
mod lane;
mod link;
mod new_job;
mod node;
mod node_document;
mod node_notes;
mod node_registry;
mod node_totals;
mod on_conflict;
mod pause;
mod payload_version;
mod permit;
mod pool_profile;
mod query;
mod rate;
mod reclaim;
mod reclaim_pass;
mod record;
mod recurring;
mod report;
mod salvage;
mod salvaged_job;
mod settle;
mod signal;
mod spec_document;
mod stored_job;
mod taken_keys;
mod wanted_keys;

pub use crate::due::RunAt;
pub use among::Among;
pub use archive::{ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob};
pub use batch::{BatchClosed, BatchPurge, BatchRecord, Tally};
pub use claim::{Claim, ClaimRequest, ClaimedJob, JobInput, is_expired};
pub use clock_trust::ClockTrust;
pub use condition::{Comparison, Condition};
pub use control::{Acted, ActionOutcome, JobSelector};
pub use due_route::DueRoute;
pub use fair_key::FairKey;
pub use fair_keys::{FairKeyInfo, FairKeyUsage};
pub use fair_limit::{FairLimit, FairLimits, FairScope};
pub use finding::{Finding, Findings, Holder, Severity};
pub use flags::JobFlags;
pub use guard::{Guard, Guarded};
pub use job_spec::JobSpec;
pub use lane::{LanePlace, LanePlaces};
pub use link::{After, BatchCondition, Link, LinkState, Parent};
pub(crate) use new_job::positive;
pub use new_job::{Enqueued, NewJob};
pub use node::{
    Heartbeat, HeartbeatReply, NodeLoad, NodeProfile, NodeRecord, NodeStatus, NodeSweep,
    OwnedClaim, SweptNodes,
};
pub use node_registry::NodeRegistry;
pub use node_totals::NodeTotals;
pub use on_conflict::{HolderChange, KeyHolder, OnConflict};
pub use pause::{PauseInfo, PauseRequest, PauseScope, Pauses};
pub(crate) use payload_version::{FIRST as FIRST_VERSION, check as check_payload_version};
pub use payload_version::{payload_version_from_stored, payload_version_to_stored};
pub use permit::PermitInfo;
pub use pool_profile::PoolProfile;
pub use query::{
    Detail, JobFilter, JobOrder, JobPage, PageRequest, PurgeRequest, QueueInfo, StateCounts,
};
pub use rate::{RateAnswer, RateRequest};
pub use reclaim::{HeldClaim, Owner, ReclaimEffect, ReclaimReason, ReclaimRequest, Reclaimed};
pub use reclaim_pass::ReclaimPass;
pub use record::{Attempt, AttemptOutcome, JobRecord, Progress};
pub use recurring::{
    Definition, DueRecurring, Fired, PutOutcome, PutRecurring, Recurring, RecurringClaimRequest,
    RecurringFiring, RecurringOrigin, RecurringPage, RecurringRecord, RecurringToken,
    RetireRecurring,
};
pub use report::{LastReport, Report, ReportKind, Reported};
pub use salvage::Salvage;
pub use salvaged_job::SalvagedJob;
pub use settle::{Effect, Fenced, NextRun, Outcome, Settlement};
pub use signal::{Delivered, Delivery, Signal, SignalRecord, SignalTarget, SignalWait};
pub use stored_job::StoredJob;
pub use taken_keys::{EnqueuePlan, TakenKeys};
pub use wanted_keys::WantedKeys;
