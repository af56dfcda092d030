//! The commands of the state machine: every store call that writes, and what it answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arg::Arg;
use super::tables::Tables;
use crate::error::{InvalidInput, Result, StoreError, StoreErrorKind};
use crate::id::{BatchId, Fence, JobId, NodeId};
use crate::model::{
    Acted, ArchivePurge, BatchClosed, BatchPurge, ClaimRequest, ClaimedJob, Delivered,
    DueRecurring, Enqueued, FairScope, Fenced, Fired, Guard, Guarded, Heartbeat, HeartbeatReply,
    NewJob, NodeStatus, NodeSweep, PauseRequest, PauseScope, PurgeRequest, PutOutcome,
    PutRecurring, RateAnswer, RateRequest, ReclaimRequest, Reclaimed, RecurringClaimRequest,
    RecurringFiring, Report, Reported, RetireRecurring, Settlement, Signal, SweptNodes, document,
};
use crate::name::Name;
use crate::state::{JobAction, JobState};
use crate::store::{Acquired, Changed, IfKnown};
use crate::time::Timestamp;

/// One store call that writes, with its arguments. Each variant is named after a method of a store
/// trait, which describes the call.
///
/// A command borrows the arguments of the call. A decoded command owns them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the methods of the store traits describe the fields"
)]
pub enum Command<'a> {
    Enqueue(Arg<'a, [NewJob]>),
    ClaimNextBatch(Arg<'a, ClaimRequest>),
    Settle(Arg<'a, [Settlement]>),
    Report(Arg<'a, [Report]>),
    Reclaim(Arg<'a, ReclaimRequest>),
    ActOn {
        jobs: Arg<'a, [JobId]>,
        from: Arg<'a, [JobState]>,
        action: JobAction,
    },
    Purge(Arg<'a, PurgeRequest>),
    Pause(Arg<'a, PauseRequest>),
    Resume(PauseScope),
    Heartbeat(Arg<'a, Heartbeat>),
    SetNodeStatus {
        node: NodeId,
        status: NodeStatus,
    },
    SweepNodes(Arg<'a, NodeSweep>),
    Acquire {
        name: Name,
        owner: Name,
        ttl: Duration,
    },
    Renew {
        name: Name,
        owner: Name,
        fence: Fence,
        ttl: Duration,
    },
    Release {
        name: Name,
        owner: Name,
        fence: Fence,
    },
    Bump {
        namespace: Name,
        guard: Option<Guard>,
    },
    SetPermits {
        resource: Name,
        max: u32,
        if_known: IfKnown,
    },
    SetFairLimit {
        scope: FairScope,
        max: Option<u32>,
    },
    Take(Arg<'a, [RateRequest]>),
    ForgetIdle {
        limit: usize,
    },
    CreateBatch(BatchId),
    CloseBatch(BatchId),
    PurgeBatches(Arg<'a, BatchPurge>),
    Deliver(Arg<'a, Signal>),
    Expire {
        limit: usize,
    },
    ExpireJobs {
        limit: usize,
    },
    Archive(Arg<'a, PurgeRequest>),
    PurgeArchive(Arg<'a, ArchivePurge>),
    Put {
        put: Arg<'a, PutRecurring>,
        /// The next slot of the definition after this call. [`Snapshot::complete`] sets it.
        ///
        /// [`Snapshot::complete`]: super::Snapshot::complete
        next_fire: Option<Timestamp>,
    },
    ClaimDueRecurring(Arg<'a, RecurringClaimRequest>),
    Fire(Arg<'a, [RecurringFiring]>),
    SetPaused {
        name: Name,
        paused: bool,
        /// The next slot of the definition after this call. [`Snapshot::complete`] sets it.
        ///
        /// [`Snapshot::complete`]: super::Snapshot::complete
        next_fire: Option<Timestamp>,
    },
    Delete(Name),
    Retire(Arg<'a, RetireRecurring>),
}

impl Command<'_> {
    /// Returns the command, which then borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> Command<'static> {
        match self {
            Self::Enqueue(jobs) => Command::Enqueue(jobs.into_owned()),
            Self::ClaimNextBatch(request) => Command::ClaimNextBatch(request.into_owned()),
            Self::Settle(settlements) => Command::Settle(settlements.into_owned()),
            Self::Report(reports) => Command::Report(reports.into_owned()),
            Self::Reclaim(request) => Command::Reclaim(request.into_owned()),
            Self::ActOn { jobs, from, action } => Command::ActOn {
                jobs: jobs.into_owned(),
                from: from.into_owned(),
                action,
            },
            Self::Purge(request) => Command::Purge(request.into_owned()),
            Self::Pause(request) => Command::Pause(request.into_owned()),
            Self::Resume(scope) => Command::Resume(scope),
            Self::Heartbeat(heartbeat) => Command::Heartbeat(heartbeat.into_owned()),
            Self::SetNodeStatus { node, status } => Command::SetNodeStatus { node, status },
            Self::SweepNodes(sweep) => Command::SweepNodes(sweep.into_owned()),
            Self::Acquire { name, owner, ttl } => Command::Acquire { name, owner, ttl },
            Self::Renew {
                name,
                owner,
                fence,
                ttl,
            } => Command::Renew {
                name,
                owner,
                fence,
                ttl,
            },
            Self::Release { name, owner, fence } => Command::Release { name, owner, fence },
            Self::Bump { namespace, guard } => Command::Bump { namespace, guard },
            Self::SetPermits {
                resource,
                max,
                if_known,
            } => Command::SetPermits {
                resource,
                max,
                if_known,
            },
            Self::SetFairLimit { scope, max } => Command::SetFairLimit { scope, max },
            Self::Take(requests) => Command::Take(requests.into_owned()),
            Self::ForgetIdle { limit } => Command::ForgetIdle { limit },
            Self::CreateBatch(batch) => Command::CreateBatch(batch),
            Self::CloseBatch(batch) => Command::CloseBatch(batch),
            Self::PurgeBatches(request) => Command::PurgeBatches(request.into_owned()),
            Self::Deliver(signal) => Command::Deliver(signal.into_owned()),
            Self::Expire { limit } => Command::Expire { limit },
            Self::ExpireJobs { limit } => Command::ExpireJobs { limit },
            Self::Archive(request) => Command::Archive(request.into_owned()),
            Self::PurgeArchive(request) => Command::PurgeArchive(request.into_owned()),
            Self::Put { put, next_fire } => Command::Put {
                put: put.into_owned(),
                next_fire,
            },
            Self::ClaimDueRecurring(request) => Command::ClaimDueRecurring(request.into_owned()),
            Self::Fire(firings) => Command::Fire(firings.into_owned()),
            Self::SetPaused {
                name,
                paused,
                next_fire,
            } => Command::SetPaused {
                name,
                paused,
                next_fire,
            },
            Self::Delete(name) => Command::Delete(name),
            Self::Retire(request) => Command::Retire(request.into_owned()),
        }
    }

    /// Returns whether the command contains a value that [`Snapshot::complete`] derives from the
    /// data. So the command must directly follow the data from which the value was derived.
    ///
    /// [`Snapshot::complete`]: super::Snapshot::complete
    #[must_use]
    pub const fn depends_on_data(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::SetPaused { .. })
    }

    /// Returns whether the command may make a job claimable. A process that applies the command of
    /// another process then wakes its nodes.
    #[must_use]
    pub const fn may_make_claimable(&self) -> bool {
        match self {
            Self::Enqueue(_)
            | Self::Settle(_)
            | Self::Reclaim(_)
            | Self::ActOn { .. }
            | Self::Resume(_)
            | Self::SetPermits { .. }
            | Self::SetFairLimit { .. }
            | Self::CloseBatch(_)
            | Self::Deliver(_)
            | Self::Expire { .. }
            | Self::ExpireJobs { .. }
            | Self::Fire(_) => true,
            Self::ClaimNextBatch(_)
            | Self::Report(_)
            | Self::Pause(_)
            | Self::Heartbeat(_)
            | Self::SetNodeStatus { .. }
            | Self::SweepNodes(_)
            | Self::Acquire { .. }
            | Self::Renew { .. }
            | Self::Release { .. }
            | Self::Bump { .. }
            | Self::Take(_)
            | Self::ForgetIdle { .. }
            | Self::CreateBatch(_)
            | Self::Purge(_)
            | Self::PurgeBatches(_)
            | Self::Archive(_)
            | Self::PurgeArchive(_)
            | Self::Put { .. }
            | Self::ClaimDueRecurring(_)
            | Self::SetPaused { .. }
            | Self::Delete(_)
            | Self::Retire(_) => false,
        }
    }

    /// Returns the name of the store call, as it occurs in errors and in fault plans.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        match self {
            Self::Enqueue(_) => "enqueue",
            Self::ClaimNextBatch(_) => "claim_next_batch",
            Self::Settle(_) => "settle",
            Self::Report(_) => "report",
            Self::Reclaim(_) => "reclaim",
            Self::ActOn { .. } => "act",
            Self::Purge(_) => "purge",
            Self::Pause(_) => "pause",
            Self::Resume(_) => "resume",
            Self::Heartbeat(_) => "heartbeat",
            Self::SetNodeStatus { .. } => "set_node_status",
            Self::SweepNodes(_) => "sweep_nodes",
            Self::Acquire { .. } => "acquire",
            Self::Renew { .. } => "renew",
            Self::Release { .. } => "release",
            Self::Bump { .. } => "bump",
            Self::SetPermits { .. } => "set_permits",
            Self::SetFairLimit { .. } => "set_fair_limit",
            Self::Take(_) => "take",
            Self::ForgetIdle { .. } => "forget_idle",
            Self::CreateBatch(_) => "create_batch",
            Self::CloseBatch(_) => "close_batch",
            Self::PurgeBatches(_) => "purge_batches",
            Self::Deliver(_) => "deliver",
            Self::Expire { .. } => "expire",
            Self::ExpireJobs { .. } => "expire_jobs",
            Self::Archive(_) => "archive",
            Self::PurgeArchive(_) => "purge_archive",
            Self::Put { .. } => "put",
            Self::ClaimDueRecurring(_) => "claim_due_recurring",
            Self::Fire(_) => "fire",
            Self::SetPaused { .. } => "set_paused",
            Self::Delete(_) => "delete",
            Self::Retire(_) => "retire",
        }
    }
}

/// Defines [`Answer`], and its conversion into the return type of each call.
macro_rules! answers {
    ($($variant:ident($type:ty)),* $(,)?) => {
        /// What a [`Command`] answers. Each variant has the return type of some methods of the
        /// store traits. Converting an answer into the return type of another method fails.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the methods of the store traits describe their answers")]
        pub enum Answer {
            /// The call was refused.
            Refused(InvalidInput),
            $($variant($type),)*
        }

        $(
            impl From<$type> for Answer {
                fn from(answer: $type) -> Self {
                    Self::$variant(answer)
                }
            }

            impl TryFrom<Answer> for $type {
                type Error = StoreError;

                fn try_from(answer: Answer) -> Result<Self> {
                    match answer {
                        Answer::$variant(answer) => Ok(answer),
                        other => Err(other.into_error()),
                    }
                }
            }
        )*
    };
}

answers! {
    Enqueued(Vec<Enqueued>),
    Claimed(Vec<ClaimedJob>),
    Settled(Vec<Fenced>),
    Reported(Vec<Reported>),
    Reclaimed(Vec<Reclaimed>),
    Acted(Vec<Acted>),
    Number(Guarded<u64>),
    Count(u64),
    Changed(Changed),
    Beat(HeartbeatReply),
    Swept(Guarded<SweptNodes>),
    Acquired(Acquired),
    Fenced(Fenced),
    Taken(Vec<RateAnswer>),
    BatchClosed(BatchClosed),
    Delivered(Delivered),
    Expired(Vec<JobId>),
    Put(PutOutcome),
    Due(DueRecurring),
    Fired(Vec<Fired>),
    Retired(Guarded<Vec<Name>>),
}

impl<T: Into<Self>> From<Result<T, InvalidInput>> for Answer {
    fn from(answer: Result<T, InvalidInput>) -> Self {
        answer.map_or_else(Self::Refused, Into::into)
    }
}

impl Answer {
    /// Returns the error for a refusal, or for the answer of another call.
    fn into_error(self) -> StoreError {
        match self {
            Self::Refused(problem) => problem.into(),
            _ => StoreError::new(StoreErrorKind::Corrupt, "read answer")
                .with_source("the answer belongs to another call"),
        }
    }

    /// Encodes the answer as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the answer cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        #[derive(Serialize)]
        struct Document<'a> {
            answer: &'a Answer,
        }
        document::encode(&Document { answer: self })
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        #[derive(Deserialize)]
        struct Document {
            answer: Answer,
        }
        document::decode::<Document>(document).map(|read| read.answer)
    }
}

/// A [`Command`] and the time at which it takes effect. A log of entries is a history.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The time of the store's clock, in milliseconds since 1970.
    pub at: i64,
    /// The command.
    pub command: Command<'a>,
}

impl<'a> Entry<'a> {
    /// Creates an entry for a command at this time, in milliseconds since 1970.
    #[must_use]
    pub const fn new(at: i64, command: Command<'a>) -> Self {
        Self { at, command }
    }

    /// Encodes the entry as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the command cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        document::encode(self)
    }
}

impl Entry<'static> {
    /// Decodes a document that [`encode`](Entry::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        document::decode(document)
    }
}

impl Tables {
    /// Applies one command. Reads nothing but the data, the time and the command.
    pub(super) fn apply(&mut self, entry: &Entry<'_>) -> Answer {
        let answer = self.change_by(&entry.command, entry.at);
        self.follow_ends(entry.at);
        answer
    }

    fn change_by(&mut self, command: &Command<'_>, now: i64) -> Answer {
        match command {
            Command::Enqueue(jobs) => self.enqueue(jobs, now).into(),
            Command::ClaimNextBatch(request) => self.claim(request, now).into(),
            Command::Settle(settlements) => self.settle_all(settlements, now).into(),
            Command::Report(reports) => self.report_all(reports, now).into(),
            Command::Reclaim(request) => self.reclaim(request, now).into(),
            Command::ActOn { jobs, from, action } => self.act_on(jobs, from, *action, now).into(),
            Command::Purge(request) => self.purge(request, now).into(),
            Command::Pause(request) => self.pause(request, now).into(),
            Command::Resume(scope) => self.resume(scope).into(),
            Command::Heartbeat(heartbeat) => self.heartbeat(heartbeat, now).into(),
            Command::SetNodeStatus { node, status } => self.set_node_status(*node, *status).into(),
            Command::SweepNodes(sweep) => self.sweep_nodes(sweep, now).into(),
            Command::Acquire { name, owner, ttl } => self.acquire(name, owner, *ttl, now).into(),
            Command::Renew {
                name,
                owner,
                fence,
                ttl,
            } => self.renew(name, owner, *fence, *ttl, now).into(),
            Command::Release { name, owner, fence } => {
                self.release(name, owner, *fence, now).into()
            }
            Command::Bump { namespace, guard } => self.bump(namespace, guard.as_ref(), now).into(),
            Command::SetPermits {
                resource,
                max,
                if_known,
            } => self.set_permits(resource, *max, *if_known).into(),
            Command::SetFairLimit { scope, max } => self.set_fair_limit(scope, *max).into(),
            Command::Take(requests) => self.take(requests, now).into(),
            Command::ForgetIdle { limit } => self.forget_idle(*limit, now).into(),
            Command::CreateBatch(batch) => self.create_batch(*batch, now).into(),
            Command::CloseBatch(batch) => self.close_batch(*batch).into(),
            Command::PurgeBatches(request) => self.purge_batches(request, now).into(),
            Command::Deliver(signal) => self.deliver(signal, now).into(),
            Command::Expire { limit } => self.expire(*limit, now).into(),
            Command::ExpireJobs { limit } => self.expire_jobs(*limit, now).into(),
            Command::Archive(request) => self.archive(request, now).into(),
            Command::PurgeArchive(request) => self.purge_archive(request, now).into(),
            Command::Put { put, next_fire } => self.put(put, *next_fire, now).into(),
            Command::ClaimDueRecurring(request) => self.claim_due_recurring(request, now).into(),
            Command::Fire(firings) => self.fire_all(firings, now).into(),
            Command::SetPaused {
                name,
                paused,
                next_fire,
            } => self.set_paused(name, *paused, *next_fire, now).into(),
            Command::Delete(name) => self.delete(name).into(),
            Command::Retire(request) => self.retire(request, now).into(),
        }
    }
}
