//! A step of a history, how the step runs on a store, and the store's answer.

use std::time::Duration;

use ratchet_core::model::*;
use ratchet_core::store::{
    Acquired, ArchiveStore, Changed, IfKnown, RecurringStore, SignalStore, WorkflowStore,
};
use ratchet_core::{
    BatchId, ClaimToken, Enqueued, Fence, JobAction, JobId, JobRecord, Name, NewJob, NodeId,
    Result, Store, StoreErrorKind,
};

/// A step of a random history: a call with its arguments, a change of the clock, or a reopening of
/// the store.
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
    Count(JobFilter),
    Archive(PurgeRequest),
    Archived(Vec<JobId>),
    ListArchived(ArchiveFilter, PageRequest),
    PurgeArchive(ArchivePurge),
    Beat(Heartbeat),
    SetStatus(NodeId, NodeStatus),
    Sweep(NodeSweep),
    Pause(PauseRequest),
    Resume(PauseScope),
    SeparateQueues,
    Acquire(Name, Name, Duration),
    Renew(Name, Name, Fence, Duration),
    Release(Name, Name, Fence),
    PutRecurring(Box<PutRecurring>),
    ClaimRecurring(RecurringClaimRequest),
    Fire(Vec<RecurringFiring>),
    PauseRecurring(Name, bool),
    DeleteRecurring(Name),
    Retire(RetireRecurring),
    SetPermits(Name, u32, IfKnown),
    SetFairLimit(FairScope, Option<u32>),
    Take(Vec<RateRequest>),
    ForgetRates,
    CreateBatch(BatchId),
    CloseBatch(BatchId),
    PurgeBatches(BatchPurge),
    Deliver(Signal),
    Expire,
    ExpireJobs,
    /// Moves the clock forward by this duration.
    Advance(Duration),
    /// Replaces the handle on the store with a new one.
    Reopen,
}

/// The result of running a [`Step`].
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
    Counts(StateCounts),
    Archived(Vec<Option<ArchivedJob>>),
    ArchivePage(ArchivePage),
    Acquired(Acquired),
    Put(PutOutcome),
    Due(DueRecurring),
    Fired(Vec<Fired>),
    Retired(Guarded<Vec<Name>>),
    Rates(Vec<RateAnswer>),
    Forgotten(u64),
    BatchClosed(BatchClosed),
    Delivered(Delivered),
    Expired(Vec<JobId>),
    Refused(StoreErrorKind, Option<&'static str>),
}

impl Answer {
    /// Clears the flags `awaited` and `limited` in every claim for which the model's answer does
    /// not set them. The flags tell whether other jobs wait for the claimed job. A store may set
    /// them although no job waits.
    pub(super) fn allowing_for(mut self, model: &Self) -> Self {
        match (&mut self, model) {
            (Self::Claimed(mine), Self::Claimed(model)) => {
                for (mine, model) in mine.iter_mut().zip(model) {
                    mine.claim.awaited &= model.claim.awaited;
                    mine.claim.limited &= model.claim.limited;
                }
            }
            (Self::Lean(mine), Self::Lean(model)) => {
                for (mine, model) in mine.iter_mut().zip(model) {
                    mine.awaited &= model.awaited;
                    mine.limited &= model.limited;
                }
            }
            _ => {}
        }
        self
    }
}

/// Evaluates `$does` with the step's list of items, such as jobs or tokens. Evaluates `$otherwise`
/// if the step has no list.
macro_rules! with_items {
    ($step:expr, $items:ident => $does:expr, $otherwise:expr) => {
        match $step {
            Step::Enqueue($items) => $does,
            Step::Load($items) => $does,
            Step::Settle($items) => $does,
            Step::Report($items) => $does,
            Step::Act(JobSelector::Ids($items), _) => $does,
            Step::Get($items) | Step::Archived($items) => $does,
            Step::Fire($items) => $does,
            Step::Take($items) => $does,
            _ => $otherwise,
        }
    };
}

impl Step {
    /// Returns the number of items in the step's list, such as jobs or tokens. Returns 0 if the
    /// step has no list.
    pub(super) fn items(&self) -> usize {
        with_items!(self, items => items.len(), 0)
    }

    /// Removes the item at the index `item` from the step's list.
    pub(super) fn remove_item(&mut self, item: usize) {
        with_items!(self, items => { items.remove(item); }, ());
    }

    /// Runs the step on a store and returns the result. `Advance` and `Reopen` have no effect here;
    /// the caller performs them.
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
            Self::Reclaim(request) => Answer::Reclaimed(jobs.reclaim(request).await?),
            Self::Act(selector, action) => Answer::Acted(jobs.act(selector, *action).await?),
            Self::Get(ids) => Answer::Jobs(jobs.get(ids, Detail::Whole).await?),
            Self::List(filter, page) => {
                let page = jobs.list(filter, page).await?;
                Answer::Page(page.jobs, page.next)
            }
            Self::Purge(request) => Answer::Purged(jobs.purge(request).await?),
            Self::ExpireJobs => Answer::Expired(jobs.expire_jobs(1_000).await?),
            Self::Count(filter) => Answer::Counts(jobs.count_jobs(filter).await?),
            Self::Archive(request) => Answer::Purged(archive(store).archive(request).await?),
            Self::Archived(ids) => Answer::Archived(archive(store).archived(ids).await?),
            Self::ListArchived(filter, page) => {
                Answer::ArchivePage(archive(store).list_archived(filter, page).await?)
            }
            Self::PurgeArchive(request) => {
                Answer::Purged(archive(store).purge_archive(request).await?)
            }
            Self::Beat(heartbeat) => Answer::Reply(nodes.heartbeat(heartbeat).await?),
            Self::SetStatus(node, status) => {
                Answer::Changed(nodes.set_node_status(*node, *status).await?)
            }
            Self::Sweep(sweep) => Answer::Swept(nodes.sweep_nodes(sweep).await?),
            Self::Pause(request) => Answer::Changed(queues.pause(request).await?),
            Self::Resume(scope) => Answer::Changed(queues.resume(scope).await?),
            Self::SeparateQueues => {
                // How many jobs move depends on the store.
                queues.separate_queues(2).await?;
                Answer::Nothing
            }
            Self::Acquire(name, owner, ttl) => {
                Answer::Acquired(locks.acquire(name, owner, *ttl).await?)
            }
            Self::Renew(name, owner, fence, ttl) => {
                Answer::Fenced(vec![locks.renew(name, owner, *fence, *ttl).await?])
            }
            Self::Release(name, owner, fence) => {
                Answer::Fenced(vec![locks.release(name, owner, *fence).await?])
            }
            Self::PutRecurring(put) => Answer::Put(recurring(store).put(put).await?),
            Self::ClaimRecurring(request) => {
                Answer::Due(recurring(store).claim_due_recurring(request).await?)
            }
            Self::Fire(firings) => Answer::Fired(recurring(store).fire(firings).await?),
            Self::PauseRecurring(name, paused) => {
                Answer::Changed(recurring(store).set_paused(name, *paused).await?)
            }
            Self::DeleteRecurring(name) => Answer::Changed(recurring(store).delete(name).await?),
            Self::Retire(request) => Answer::Retired(recurring(store).retire(request).await?),
            Self::SetPermits(resource, max, if_known) => match store.permits() {
                None => Answer::Nothing,
                Some(permits) => {
                    Answer::Changed(permits.set_permits(resource, *max, *if_known).await?)
                }
            },
            Self::SetFairLimit(scope, max) => match store.fair() {
                None => Answer::Nothing,
                Some(fair) => Answer::Changed(fair.set_fair_limit(scope, *max).await?),
            },
            Self::Take(requests) => match store.rates() {
                None => Answer::Nothing,
                Some(rates) => Answer::Rates(rates.take(requests).await?),
            },
            Self::ForgetRates => match store.rates() {
                None => Answer::Nothing,
                Some(rates) => Answer::Forgotten(rates.forget_idle(100).await?),
            },
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

/// Returns the part of the store for recurring definitions. Panics if the store has no such part.
fn recurring(store: &dyn Store) -> &dyn RecurringStore {
    let recurring = store.recurring();
    recurring.expect(
        "the store should support recurring definitions, because the suite lists the \
         power Recurring",
    )
}

/// Returns the archive of the store. Panics if the store has no archive.
fn archive(store: &dyn Store) -> &dyn ArchiveStore {
    store.archive().expect(
        "the store should have an archive, because the suite lists the power \
         Archive",
    )
}
