//! One step of a history, how it is done on a store, and what the store answers.

use std::time::Duration;

use ratchet_core::model::*;
use ratchet_core::store::{Acquired, Changed, SignalStore, WorkflowStore};
use ratchet_core::{
    BatchId, ClaimToken, Enqueued, Fence, JobAction, JobId, JobRecord, Name, NewJob, NodeId,
    Result, Store, StoreErrorKind,
};

/// A call with its arguments, or something that happens to the world.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Enqueue(Vec<NewJob>),
    Claim(ClaimRequest),
    ClaimLean(ClaimRequest),
    Load(Vec<ClaimToken>),
    Settle(Vec<Settlement>),
    Report(Vec<Report>),
    Reclaim(ReclaimRequest),
    Act(JobSelector, JobAction),
    Get(Vec<JobId>),
    List(JobFilter, PageRequest),
    Purge(PurgeRequest),
    Beat(Heartbeat),
    SetStatus(NodeId, NodeStatus),
    Sweep(NodeSweep),
    Pause(Name),
    Resume(Name),
    Acquire(Name, Name, Duration),
    Renew(Name, Name, Fence, Duration),
    Release(Name, Name, Fence),
    CreateBatch(BatchId),
    CloseBatch(BatchId),
    PurgeBatches(BatchPurge),
    Deliver(Signal),
    Expire,
    /// Time passes.
    Advance(Duration),
    /// The handle is closed and opened again.
    Reopen,
}

/// What a call answered. What the contract leaves unordered is sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Nothing,
    Enqueued(Vec<Enqueued>),
    Claimed(Vec<ClaimedJob>),
    Lean(Vec<Claim>),
    Inputs(Vec<Option<JobInput>>),
    Fenced(Vec<Fenced>),
    Reported(Vec<Reported>),
    Reclaimed(Vec<Reclaimed>),
    Acted(Vec<Acted>),
    Jobs(Vec<Option<JobRecord>>),
    Page(Vec<JobRecord>, Option<JobId>),
    Reply(HeartbeatReply),
    Changed(Changed),
    Swept(Guarded<SweptNodes>),
    Purged(Guarded<u64>),
    Acquired(Acquired),
    BatchClosed(BatchClosed),
    Delivered(Delivered),
    Expired(Vec<JobId>),
    Refused(StoreErrorKind, Option<&'static str>),
}

impl Step {
    /// Does the step on a store. Time and handles are the caller's.
    pub(super) async fn apply(&self, store: &dyn Store) -> Answer {
        self.call(store).await.unwrap_or_else(|error| {
            Answer::Refused(
                error.kind(),
                error.invalid_input().map(|input| input.field()),
            )
        })
    }

    async fn call(&self, store: &dyn Store) -> Result<Answer> {
        let (jobs, nodes) = (store.jobs(), store.nodes());
        let (queues, locks) = (store.queues(), store.locks());
        Ok(match self {
            Self::Enqueue(batch) => Answer::Enqueued(jobs.enqueue(batch).await?),
            Self::Claim(request) => Answer::Claimed(jobs.claim_next_batch(request).await?),
            Self::ClaimLean(request) => {
                Answer::Lean(jobs.claim_next_batch_optimized(request).await?)
            }
            Self::Load(tokens) => Answer::Inputs(jobs.load_inputs(tokens).await?),
            Self::Settle(batch) => Answer::Fenced(jobs.settle(batch).await?),
            Self::Report(batch) => Answer::Reported(jobs.report(batch).await?),
            Self::Reclaim(request) => {
                let mut lost = jobs.reclaim(request).await?;
                lost.sort_by_key(|one| one.token);
                Answer::Reclaimed(lost)
            }
            Self::Act(selector, action) => Answer::Acted(jobs.act(selector, *action).await?),
            Self::Get(ids) => Answer::Jobs(jobs.get(ids).await?),
            Self::List(filter, page) => {
                let page = jobs.list(filter, page).await?;
                Answer::Page(page.jobs, page.next)
            }
            Self::Purge(request) => Answer::Purged(jobs.purge(request).await?),
            Self::Beat(heartbeat) => {
                let mut reply = nodes.heartbeat(heartbeat).await?;
                reply.cancel_requested.sort();
                Answer::Reply(reply)
            }
            Self::SetStatus(node, status) => {
                Answer::Changed(nodes.set_node_status(*node, *status).await?)
            }
            Self::Sweep(sweep) => {
                let mut swept = nodes.sweep_nodes(sweep).await?;
                if let Guarded::Done(swept) = &mut swept {
                    swept.died.sort();
                }
                Answer::Swept(swept)
            }
            Self::Pause(queue) => Answer::Changed(queues.pause_queue(queue).await?),
            Self::Resume(queue) => Answer::Changed(queues.resume_queue(queue).await?),
            Self::Acquire(name, owner, ttl) => {
                Answer::Acquired(locks.acquire(name, owner, *ttl).await?)
            }
            Self::Renew(name, owner, fence, ttl) => {
                Answer::Fenced(vec![locks.renew(name, owner, *fence, *ttl).await?])
            }
            Self::Release(name, owner, fence) => {
                Answer::Fenced(vec![locks.release(name, owner, *fence).await?])
            }
            Self::Advance(_) | Self::Reopen => Answer::Nothing,
            Self::CreateBatch(_) | Self::CloseBatch(_) | Self::PurgeBatches(_) => {
                match store.workflows() {
                    Some(workflows) => self.call_workflows(workflows).await?,
                    None => Answer::Nothing,
                }
            }
            Self::Deliver(_) | Self::Expire => match store.signals() {
                Some(signals) => self.call_signals(signals).await?,
                None => Answer::Nothing,
            },
        })
    }

    async fn call_workflows(&self, workflows: &dyn WorkflowStore) -> Result<Answer> {
        Ok(match self {
            Self::CreateBatch(batch) => Answer::Changed(workflows.create_batch(*batch).await?),
            Self::CloseBatch(batch) => Answer::BatchClosed(workflows.close_batch(*batch).await?),
            Self::PurgeBatches(request) => Answer::Purged(workflows.purge_batches(request).await?),
            _ => Answer::Nothing,
        })
    }

    async fn call_signals(&self, signals: &dyn SignalStore) -> Result<Answer> {
        Ok(match self {
            Self::Deliver(signal) => Answer::Delivered(signals.deliver(signal).await?),
            Self::Expire => Answer::Expired(signals.expire(1_000).await?),
            _ => Answer::Nothing,
        })
    }
}
