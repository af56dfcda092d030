use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{ClaimToken, JobId};
use crate::model::{
    Acted, ActionOutcome, Attempt, Claim, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced,
    Guarded, JobFilter, JobInput, JobOrder, JobPage, JobRecord, JobSelector, NewJob, PageRequest,
    PurgeRequest, ReclaimRequest, Reclaimed, Report, Reported, Settlement, StateCounts,
};
use crate::state::{JobAction, JobState, Response};

/// Stores jobs, from their enqueue to their purge.
///
/// Batches are the primitive; a single job is a batch of one. See the [module](super) for the
/// clauses that hold for every method.
#[async_trait]
pub trait JobStore: Debug + Send + Sync {
    /// Stores jobs, all of them or, on an error, none.
    ///
    /// # Contract
    /// - **[enqueue.created]** Each job is stored as it was given, `Pending` (or `Blocked`, if it
    ///   has to wait for other jobs, a batch or a signal), and is answered `Created` with its id.
    ///   The answers are in the order of the jobs. An empty batch does nothing.
    /// - **[enqueue.atomic]** The call stores all of its new jobs with their keys, or nothing. If
    ///   it is refused, nothing is stored; if its answer is lost, either may be the case.
    /// - **[enqueue.repeat]** A job whose id is already stored is answered `Created` and not stored
    ///   again, so a caller can repeat an enqueue whose outcome is unknown. A purged job no longer
    ///   counts as stored: if it is enqueued again, it is stored again, unless its idempotency key
    ///   prevents that.
    /// - **[enqueue.due]** `RunAt::Now` and `RunAt::In` are resolved on the database's clock.
    /// - **[enqueue.validate]** The door refuses jobs that [`NewJob::validate_all`] refuses, and
    ///   jobs that need a feature which the store does not have, so a store never receives them.
    /// - **[keys.idempotency]** A job whose idempotency key was ever used is not stored and is
    ///   answered `Duplicate` with the id of the first job that used the key. This also holds
    ///   within one batch, and after the first job has ended or was purged. So a purged job that is
    ///   enqueued again is a `Duplicate` of itself.
    /// - **[keys.unique]** While an unfinished job has a unique key, another job with this key is
    ///   not stored and is answered `Duplicate` with the id of the unfinished job. The idempotency
    ///   key of the other job then stays unused.
    /// - **[keys.both]** If the two keys of a job belong to different jobs, it is answered
    ///   `Duplicate` with the id of the job that has the idempotency key.
    /// - **[tag.set]** A stored job has exactly the tags that it was enqueued with, byte for byte.
    ///   A job that is not stored has none.
    /// - **[keys.race]** Of concurrent enqueues with the same key, exactly one is answered
    ///   `Created`.
    /// - **[lane.sequence]** A job that is stored with a lane gets the next sequence number of this
    ///   lane; a queue and a lane name identify a lane. The store assigns the numbers in the order
    ///   of the enqueues, and of the jobs in a batch, whatever the clock says. A job that is not
    ///   stored gets no number.
    /// - **[lane.head]** At every moment, the head of a lane (its unfinished job with the lowest
    ///   sequence) is `Pending`, `Paused` or `Running`, and the other unfinished jobs of the lane
    ///   are `Blocked`. This holds however many callers enqueue, claim, settle and act at once. A
    ///   blocked job keeps its `run_at`.
    /// - **[permit.unknown]** An enqueue with a job that needs a permit of a resource that was
    ///   never set is `Invalid` (field `permit`), and stores no job of the batch. This holds even
    ///   if that job would be a duplicate.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>>;

    /// Claims due jobs.
    ///
    /// # Contract
    /// - **[claim.exclusive]** A job is returned to one claimer only, until its claim has ended.
    /// - **[claim.due]** A claim returns only `Pending` jobs whose `run_at` is not after the
    ///   database's time.
    /// - **[claim.limit]** A claim returns at most `limit` jobs, and no fewer while enough jobs are
    ///   due, match and get the permits that they need. A limit of 0 returns none.
    /// - **[claim.order]** A claim returns the jobs that come first in the order of
    ///   [`ClaimRank`](crate::priority::ClaimRank), and in this order: effective priority
    ///   descending, then `run_at` ascending, then id ascending.
    /// - **[claim.aging]** The effective priority is the one that [`Aging`](crate::Aging) computes;
    ///   a claim never changes the stored priority.
    /// - **[claim.match]** A claim returns only jobs whose route matches the request
    ///   ([`Route::matches`](crate::Route::matches)).
    /// - **[claim.paused]** A claim returns no job of a paused queue.
    /// - **[claim.live]** A node that has a row gets jobs only while its status is `Active`.
    /// - **[claim.running]** Each returned job is `Running`, is owned by the node, and has a
    ///   `claim_seq` one higher than before. Its token contains this number, the node and the time
    ///   of the claim.
    /// - **[claim.version]** The claim contains the payload version that the job was enqueued with.
    /// - **[claim.whole]** If the request asks for payloads, each claim contains the payload and
    ///   the last checkpoint.
    /// - **[claim.optimized]** A request without payloads claims exactly the same jobs, and leaves
    ///   out only the inputs, which [`load_inputs`](Self::load_inputs) reads.
    /// - **[permit.max]** At every moment, at most as many jobs with a permit of a resource are
    ///   `Running` as [`set_permits`](super::PermitStore::set_permits) allows. This holds for the
    ///   whole database, however many callers claim, settle and reclaim at once. If the number was
    ///   lowered, `[permit.change]` applies.
    /// - **[permit.order]** A claim goes through the due jobs in claim order, and skips each job
    ///   whose resource has no permit left at that point. So the permits of a resource go to its
    ///   first jobs in claim order, and a resource without permits delays only the jobs that need
    ///   it.
    ///
    /// # Errors
    /// A failure of the store. Claims may have been made nevertheless: the node's next heartbeat
    /// lists them (`[node.claims]`), and the engine gives them back.
    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>>;

    /// Claims due jobs without reading their payloads. Use it for large payloads and large batches.
    ///
    /// The provided implementation calls [`claim_next_batch`](Self::claim_next_batch) with
    /// [`payloads(false)`](ClaimRequest::payloads).
    ///
    /// # Errors
    /// The same as [`claim_next_batch`](Self::claim_next_batch).
    async fn claim_next_batch_optimized(&self, request: &ClaimRequest) -> Result<Vec<Claim>> {
        let request = request.clone().payloads(false);
        let jobs = self.claim_next_batch(&request).await?;
        Ok(jobs.into_iter().map(|job| job.claim).collect())
    }

    /// Reads the payloads and checkpoints of claims, many at a time.
    ///
    /// # Contract
    /// - **[claim.load]** The call returns one answer per token, in order: the input of the claim,
    ///   or `None` if the token is stale.
    ///
    /// # Errors
    /// A failure of the store.
    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>>;

    /// Ends claims, many at a time and in different ways.
    ///
    /// # Contract
    /// - **[settle.effect]** The call writes what [`Settlement::effect`] says: the state, `run_at`,
    ///   attempts, error and result, and for a terminal state `finished_at`. The claim has then
    ///   ended.
    /// - **[settle.mixed]** The call returns one answer per settlement, in order; a stale
    ///   settlement does not affect the others.
    /// - **[settle.token]** A settlement applies only if its job is `Running` and has the
    ///   `claim_seq`, node and `claimed_at` of the token; otherwise it is `Stale` and changes
    ///   nothing. This holds even if the settlement comes from the node that now holds the claim.
    ///   The only exception is `[settle.repeat]`.
    /// - **[settle.repeat]** A settlement with the token that was the last to settle the job is
    ///   `Applied` and changes nothing, not even the history, whatever its outcome. So a caller can
    ///   repeat a call whose outcome is unknown. This holds while a later claim of the job runs,
    ///   and ends when that claim is settled: then the earlier token is `Stale`.
    /// - **[settle.cancel]** If the cancellation of a job was requested, its settlement ends it as
    ///   `Cancelled`, without a result, whatever the outcome.
    /// - **[settle.keys]** The write that gives a job a terminal state also frees its unique key.
    /// - **[settle.history]** Each settlement that ends a claim adds one [`Attempt`] to the job's
    ///   history.
    /// - **[lane.promote]** When the head of a lane ends, by whichever method, the same write makes
    ///   the lane's blocked job with the lowest sequence `Pending` with its own `run_at`, and
    ///   promotes no other job. A stale or repeated settlement promotes none.
    /// - **[lane.hold]** A head whose claim ends stays the head if the job itself has not ended (it
    ///   was retried, snoozed, released or reclaimed).
    /// - **[settle.validate]** The door refuses settlements that [`Settlement::validate_all`]
    ///   refuses, so a store never receives them.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After a failure, none, some or all of the settlements
    /// may have been applied, and the call can be repeated.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>>;

    /// Stores the reports of running bodies.
    ///
    /// # Contract
    /// - **[report.life]** Every report shows that the body has begun, and restarts the job's stall
    ///   timeout.
    /// - **[report.progress]** A report of progress or of a checkpoint replaces the earlier one.
    ///   Both outlive the claim, and a later claim gets the checkpoint as input.
    /// - **[report.token]** A report with a stale token is `Stale` and changes nothing.
    /// - **[report.cancel]** The answer says whether the cancellation of the job was requested.
    /// - **[report.validate]** The door refuses reports that [`Report::validate_all`] refuses, so a
    ///   store never receives them.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>>;

    /// Reclaims claims whose jobs no node works on any more.
    ///
    /// # Contract
    /// - **[reclaim.dead]** A claim is `OwnerLost` if its node is `Dead` or silent
    ///   ([`NodeRecord::is_silent`](crate::model::NodeRecord::is_silent)), unless `[reclaim.left]`
    ///   applies.
    /// - **[reclaim.left]** A claim is `OwnerLeft` if its node is `Left`, or was draining when it
    ///   fell silent. This counts no crash.
    /// - **[reclaim.unknown]** A claim whose node has no row is `OwnerLost` if the claim and the
    ///   oldest row of any node are both older than `dead_after`. If there are no rows, only the
    ///   age of the claim counts. So after the registry was emptied, live nodes have this time to
    ///   register again.
    /// - **[reclaim.silence]** If the request says that silence does not count, the pass takes no
    ///   claim, for whatever reason, from a live node or from a node without a row. After an outage
    ///   or a step of the clock, neither silence nor age proves that a node or a body has stopped.
    /// - **[reclaim.step]** [`ReclaimRequest::clock`](crate::model::ReclaimRequest::clock) names
    ///   the steps of the database's clock that the node knows: for each step forward, the pass
    ///   subtracts its size from the age of every time that was stored before it. If the clock is
    ///   later than that value allows, it has stepped again, and silence does not count.
    /// - **[reclaim.live]** However long a body runs, a live node keeps its claim, except for the
    ///   next three clauses.
    /// - **[reclaim.start]** A claim is `NotStarted` if it is older than `start_timeout` and had no
    ///   report, unless another clause makes it `OwnerLost` or `OwnerLeft`.
    /// - **[reclaim.stall]** A claim whose body has begun is `Stalled` if its job has a stall
    ///   timeout and the last report is older than this timeout.
    /// - **[reclaim.overdue]** A claim whose body has begun is `Overdue` if its job has a timeout
    ///   and the claim is older than `start_timeout` + timeout + `overdue_after`.
    /// - **[reclaim.requeue]** A reclaimed job is `Pending` with its old `run_at` and attempts, and
    ///   with the `crash_count` that [`ReclaimRequest::judge`] says. If cancellation was requested
    ///   and `[reclaim.exhausted]` does not apply, the job is `Cancelled` instead. The old token is
    ///   stale, and the history says `Lost`.
    /// - **[reclaim.exhausted]** If a crash raises the count above `max_crashes`, the pass gives
    ///   the claim up: the job stays `Running`, without an owner. This pass and every later pass
    ///   returns the claim as `exhausted`, with the same crash count, until it is settled, even if
    ///   a later pass allows more crashes. From then on, only the returned token, which names no
    ///   node, is valid.
    /// - **[reclaim.given_up]** The token that a pass returns for a claim that was given up is also
    ///   valid for reports and for reading inputs. Later passes return the claim even if reports
    ///   with this token came. The history entry of the claim names no node.
    /// - **[reclaim.once]** Concurrent passes reclaim each claim only once.
    /// - **[reclaim.limit]** A pass takes at most `limit` claims. It takes claims that have an
    ///   owner before claims that earlier passes gave up, so the latter never delay the former.
    ///   Otherwise the store chooses which claims a limited pass takes.
    /// - **[reclaim.order]** A pass returns the claims in the order of their tokens.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>>;

    /// Applies an operator's action to jobs, each independently.
    ///
    /// # Contract
    /// - **[act.respond]** The action changes each job as
    ///   [`JobState::respond`](crate::JobState::respond) says for the job's state; nothing else
    ///   changes.
    /// - **[act.select]** With ids, the call returns one answer per id, in order; with a filter, it
    ///   acts on the oldest matching jobs that do not refuse the action, and answers only these.
    ///   With a filter, it takes up to `limit` jobs that come after the job `after`, and returns
    ///   their answers oldest first. An empty answer to a filter means that there was no such job.
    /// - **[act.twice]** If an id is given twice, the call acts on the job twice: the second action
    ///   sees the result of the first.
    /// - **[cancel.waiting]** A waiting job that was cancelled is never claimed, and its unique key
    ///   is free.
    /// - **[cancel.running]** A running job whose cancellation is requested keeps its claim; its
    ///   node learns of the request from its next heartbeat or report.
    /// - **[requeue.fresh]** A requeued job is due now, its attempts and crashes are 0, and it has
    ///   no error. It can be claimed like any other job, unless `[lane.requeue]` or
    ///   `[link.requeue]` makes it `Blocked`. Its `claim_seq` and history stay.
    /// - **[requeue.key]** A requeued job takes its unique key again; if another job has the key,
    ///   the answer is `KeyTaken` and the requeued job does not change.
    /// - **[requeue.pass]** In a requeue by filter, a job that is `KeyTaken` counts towards `limit`
    ///   and is answered. So a caller that continues after the last answered job gets past it.
    /// - **[pause.job]** A paused job is not claimed; after it was resumed, it has its old
    ///   `run_at`.
    /// - **[reschedule.job]** A rescheduled job is due at its new time, resolved on the database's
    ///   clock, and this time counts in the claim order. A claim made after the call has returned
    ///   does not return the job before it is due.
    /// - **[priority.job]** After its priority was changed, a job is claimed by the new priority. A
    ///   running job keeps its claim, and its token stays valid.
    /// - **[delete.job]** After a job was deleted, no read returns the job, its history or its
    ///   tags; its idempotency key stays used. An unfinished job is never deleted.
    /// - **[lane.requeue]** A dead letter of a lane that is requeued gets a new sequence, at the
    ///   end of the lane. It becomes `Pending` if the lane is empty and `Blocked` otherwise, and
    ///   the answer says which.
    /// - **[lane.reschedule]** A head that is rescheduled stays the head, and its lane waits for
    ///   it. A blocked job that is rescheduled stays blocked and keeps its place.
    /// - **[lane.cancel]** A blocked job that is cancelled leaves its lane; the other jobs of the
    ///   lane do not change.
    ///
    /// The provided implementation calls [`select`](Self::select) and [`act_on`](Self::act_on),
    /// page by page, until a page has a job that does not refuse the action.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store; then nothing has changed.
    async fn act(&self, jobs: &JobSelector, action: JobAction) -> Result<Vec<Acted>> {
        act(self, jobs, action)
            .await
            .map_err(|error| error.during("act"))
    }

    /// Applies an action to these jobs, in one transaction.
    ///
    /// # Contract
    /// - **[act.from]** A job that is in none of the states `from` does not change and is answered
    ///   `NotFound`: its state has changed since it was selected. A caller that leaves a state out
    ///   of `from` must give each id only once.
    ///
    /// The clauses of [`act`](Self::act) hold as well. Errors name `act` as the operation, because
    /// applications call `act`.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store; then nothing has changed.
    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>>;

    /// Reads jobs.
    ///
    /// # Contract
    /// - **[get.whole]** The call returns one answer per id, in order: the job with everything
    ///   known about it, or `None` if there is no such job. Any number of ids up to the batch limit
    ///   works.
    /// - **[get.outline]** With [`Detail::Outline`], each answer is the
    ///   [outline](JobRecord::outline) of the job. A store should not read the rest: it may be
    ///   large, and lists are read often.
    ///
    /// # Errors
    /// `Invalid` if there are too many ids, or a failure of the store.
    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>>;

    /// Reads one page of the jobs that match the filter.
    ///
    /// # Contract
    /// - **[page.order]** A page has at most `limit` jobs, in the requested order, from the first
    ///   one after the job `after`.
    /// - **[page.walk]** A walk that follows `next` until it is `None` visits every matching job
    ///   exactly once, in both orders.
    /// - **[page.filter]** The listed jobs are exactly those that match the filter
    ///   ([`JobFilter::matches`]).
    /// - **[page.outline]** The page has whole jobs or their [outlines](JobRecord::outline), as
    ///   [`PageRequest::detail`] says.
    ///
    /// The provided implementation calls [`select`](Self::select) and [`get`](Self::get).
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn list(&self, filter: &JobFilter, page: &PageRequest) -> Result<JobPage> {
        let one_more = PageRequest {
            limit: page.read_limit(),
            ..*page
        };
        let mut ids = self.select(filter, &one_more).await?;
        let next = page.cut(&mut ids).copied();
        let jobs = match &ids[..] {
            [] => Vec::new(),
            ids => self
                .get(ids, page.detail)
                .await
                .map_err(|error| error.during("list"))?,
        };
        // A job may have changed since it was selected, and may no longer match.
        let jobs = jobs.into_iter().flatten().filter(|job| filter.matches(job));
        let jobs = jobs.collect();
        Ok(JobPage { jobs, next })
    }

    /// Reads the ids of one page of the jobs that match the filter.
    ///
    /// # Contract
    /// - **[select.page]** The call returns the ids of at most `limit` jobs, in the requested
    ///   order, after the job `after`: of the jobs that [`list`](Self::list) returns, and of
    ///   damaged jobs that it cannot return. The limit is at least 1 and at most one more than that
    ///   of a page, because `list` asks for one more.
    ///
    /// Errors name `list` as the operation, because applications call `list`.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>>;

    /// Counts the jobs that match the filter, by state.
    ///
    /// # Contract
    /// - **[count.filter]** The call counts exactly the jobs that match the filter
    ///   ([`JobFilter::matches`]), each once, under its state. States without jobs are absent.
    ///
    /// # Errors
    /// A failure of the store.
    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts>;

    /// Reads the ended claims of a job, first to last.
    ///
    /// # Contract
    /// - **[history.order]** The attempts are in the order of their claim numbers. The history of a
    ///   job that does not exist is empty.
    ///
    /// # Errors
    /// A failure of the store.
    async fn history(&self, job: JobId) -> Result<Vec<Attempt>>;

    /// Deletes old finished jobs with their history and their tags, and returns how many.
    ///
    /// # Contract
    /// - **[purge.old]** A purge deletes only jobs in the given terminal state that finished longer
    ///   ago than `older_than`, the longest finished first. It deletes exactly `limit` jobs if that
    ///   many qualify, and fewer otherwise. The order of jobs that finished at the same time is
    ///   unspecified.
    /// - **[purge.awaited]** A purge does not delete a job before all its children have ended,
    ///   because they may read its result. Such a job does not keep the purge from deleting other
    ///   jobs.
    /// - **[purge.whole]** A job that was deleted, by this or any other method, leaves only its
    ///   idempotency key and the links of its children. If its id is enqueued again, the new job
    ///   has nothing of the deleted one.
    /// - **[purge.keys]** The idempotency keys of purged jobs stay used.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>>;
}

/// Implements [`JobStore::act`] with [`JobStore::select`] and [`JobStore::act_on`]
/// (`[act.select]`).
async fn act(
    store: &(impl JobStore + ?Sized),
    jobs: &JobSelector,
    action: JobAction,
) -> Result<Vec<Acted>> {
    let (filter, after, limit) = match jobs {
        JobSelector::Ids(ids) => return store.act_on(ids, &JobState::ALL, action).await,
        JobSelector::Matching {
            filter,
            after,
            limit,
        } => (filter, *after, *limit),
    };
    let mut filter = filter.clone();
    filter.states = filter.wanted_states();
    filter
        .states
        .retain(|state| state.respond(action) != Response::Refuse);
    // An empty list would select every state.
    if filter.states.is_empty() {
        return Ok(Vec::new());
    }
    let mut page = PageRequest::first(limit)
        .order(JobOrder::OldestFirst)
        .after(after);
    loop {
        let ids = store.select(&filter, &page).await?;
        let Some(last) = ids.last() else {
            return Ok(Vec::new());
        };
        let mut acted = store.act_on(&ids, &filter.states, action).await?;
        acted.retain(|one| {
            !matches!(
                one.outcome,
                ActionOutcome::Refused(_) | ActionOutcome::NotFound
            )
        });
        // Other calls may have changed all jobs of the page before this one. An empty result would
        // wrongly mean that no job matches, so read the next page.
        if !acted.is_empty() {
            return Ok(acted);
        }
        page.after = Some(*last);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;

    use super::*;
    use crate::limits::MAX_BATCH;
    use crate::memory::{Fault, MemoryStore};
    use crate::store::Checked;

    type Calls = Arc<Mutex<Vec<&'static str>>>;

    /// Returns a store that runs `first` before its first action, and the list of its calls.
    fn observed(
        store: &MemoryStore,
        first: impl Fn() + Send + Sync + 'static,
    ) -> (MemoryStore, Calls) {
        let calls = Calls::default();
        let seen = Arc::clone(&calls);
        let observed = store.clone().with_faults(move |operation| {
            let mut calls = seen.lock().unwrap();
            if operation == "act" && !calls.contains(&operation) {
                first();
            }
            calls.push(operation);
            Fault::None
        });
        (observed, calls)
    }

    #[tokio::test]
    async fn a_page_that_others_were_first_to_act_on_is_followed_by_the_next() {
        let store = MemoryStore::new();
        let jobs: Vec<NewJob> = (0..3).map(|number| NewJob::new("kind", &number)).collect();
        let ids: Vec<JobId> = jobs.iter().map(NewJob::id).collect();
        store.enqueue(&jobs).await.unwrap();
        let (others, page) = (store.clone(), JobSelector::Ids(ids[..2].to_vec()));
        let (observed, calls) = observed(&store, move || {
            let acted = others.act(&page, JobAction::Cancel).now_or_never();
            assert_eq!(acted.unwrap().unwrap().len(), 2);
        });
        let all = JobSelector::matching(JobFilter::all(), 2);
        let acted = observed.act(&all, JobAction::Cancel).await.unwrap();
        let last = Acted {
            job: ids[2],
            outcome: ActionOutcome::Became(JobState::Cancelled),
        };
        assert_eq!(acted, [last]);
        assert_eq!(*calls.lock().unwrap(), ["list", "act", "list", "act"]);
    }

    #[tokio::test]
    async fn where_nothing_matches_nothing_else_is_asked() {
        let (store, calls) = observed(&MemoryStore::new(), || {});
        let all = JobSelector::matching(JobFilter::all(), 2);
        assert_eq!(store.act(&all, JobAction::Cancel).await.unwrap(), []);
        let page = store.list(&JobFilter::all(), &PageRequest::first(2)).await;
        assert_eq!(page.unwrap().jobs, []);
        assert_eq!(*calls.lock().unwrap(), ["list"; 2]);
        // A succeeded job cannot be cancelled, so there is no state to select.
        let ended = JobSelector::matching(JobFilter::all().state(JobState::Succeeded), 2);
        assert_eq!(store.act(&ended, JobAction::Cancel).await.unwrap(), []);
        assert_eq!(*calls.lock().unwrap(), ["list"; 2]);
    }

    #[tokio::test]
    async fn errors_name_what_was_asked_for() {
        let store = MemoryStore::new();
        store.enqueue(&[NewJob::new("kind", &1)]).await.unwrap();
        let failing = |failing| {
            store.clone().with_faults(move |operation| match operation {
                _ if operation == failing => Fault::ErrorBeforeCommit,
                _ => Fault::None,
            })
        };
        let all = JobSelector::matching(JobFilter::all(), 2);
        let error = failing("list").act(&all, JobAction::Cancel).await;
        assert_eq!(error.unwrap_err().operation(), "act");
        let page = PageRequest::first(2);
        let error = failing("get").list(&JobFilter::all(), &page).await;
        assert_eq!(error.unwrap_err().operation(), "list");
    }

    #[tokio::test]
    async fn the_largest_page_can_be_listed_through_the_door() {
        let store = Checked::new(MemoryStore::new());
        let page = PageRequest::first(MAX_BATCH + 1);
        let ids = store.select(&JobFilter::all(), &page).await;
        assert_eq!(ids.unwrap(), []);
    }
}
