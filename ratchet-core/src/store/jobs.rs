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

/// Jobs: from their enqueue to their purge.
///
/// Batches are the primitive; a single job is a batch of one. See the [module](super) for what
/// holds for every method.
#[async_trait]
pub trait JobStore: Debug + Send + Sync {
    /// Stores jobs, all of them or, on an error, none.
    ///
    /// # Contract
    /// - **[enqueue.created]** Each job is stored `Pending` (`Blocked` if it has to wait for others
    ///   or for a signal) as it was given and answered `Created(its id)`; the answers are in the
    ///   order of the jobs. An empty batch does nothing.
    /// - **[enqueue.atomic]** If the call fails, no job of it is stored and no key is taken.
    /// - **[enqueue.repeat]** A job whose id is already stored is answered `Created` and not stored
    ///   again, so that an enqueue with an unknown outcome can be repeated. A job that was purged
    ///   is not stored any more: enqueued again, it is stored again, unless its idempotency key
    ///   prevents that.
    /// - **[enqueue.due]** `RunAt::Now` and `RunAt::In` are resolved on the database's clock.
    /// - **[enqueue.validate]** No store sees jobs that [`NewJob::validate_all`] refuses, or that
    ///   need a part which the store does not have.
    /// - **[keys.idempotency]** A job whose idempotency key was ever used is not stored and
    ///   answered `Duplicate(id of the first)`, also when the first has ended or was purged, and
    ///   also inside one batch. A purged job that is enqueued again is therefore a `Duplicate` of
    ///   itself.
    /// - **[keys.unique]** A job whose unique key an unfinished job has is not stored and answered
    ///   `Duplicate(id of that job)`; then its idempotency key is not used up.
    /// - **[keys.both]** If the two keys of a job belong to different jobs, the answer is
    ///   `Duplicate` of the one with the idempotency key.
    /// - **[tag.set]** The tags of a job are those it was enqueued with, to the letter. A job that
    ///   is not stored has none.
    /// - **[keys.race]** Of concurrent enqueues with one key exactly one is answered `Created`.
    /// - **[lane.sequence]** A lane is a queue and a lane name. A job that is stored with a lane
    ///   gets the next sequence of that lane, which the store assigns: in the order of the batch,
    ///   and in the order of the enqueues, whatever the clock says. One that is not stored gets
    ///   none.
    /// - **[lane.head]** Of the unfinished jobs of a lane the one with the lowest sequence, the
    ///   head, is `Pending`, `Paused` or `Running`; all others are `Blocked`, at every moment,
    ///   however many enqueue, claim, settle and act at once. A blocked job keeps its `run_at`.
    /// - **[permit.unknown]** A batch with a job whose permit is of a resource that was never set
    ///   is refused as `Invalid` (`permit`), and nothing of it is stored, even if that job would be
    ///   a duplicate.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>>;

    /// Claims due jobs.
    ///
    /// # Contract
    /// - **[claim.exclusive]** A job is returned to one claimer only, until its claim has ended.
    /// - **[claim.due]** Only `Pending` jobs with `run_at` not after the database's clock.
    /// - **[claim.limit]** At most `limit` jobs, and no fewer while enough are due, match and have
    ///   permits; 0 returns none.
    /// - **[claim.order]** The jobs first in [`ClaimRank`](crate::priority::ClaimRank), in that
    ///   order: effective priority descending, `run_at` ascending, id ascending.
    /// - **[claim.aging]** The effective priority is that of [`Aging`](crate::Aging); the stored
    ///   priority is never changed.
    /// - **[claim.match]** Only jobs whose [`Route::matches`](crate::Route::matches) the request.
    /// - **[claim.paused]** No job of a paused queue.
    /// - **[claim.live]** A node that has a row gets jobs only while its status is `Active`.
    /// - **[claim.running]** Each returned job is `Running`, owned by the node, with `claim_seq`
    ///   one higher than before and a token that carries it, the node and the time of the claim.
    /// - **[claim.version]** The claim carries the payload's version as it was given at the
    ///   enqueue.
    /// - **[claim.whole]** The payload and the last checkpoint come with the claim if the request
    ///   asks for payloads.
    /// - **[claim.optimized]** A request without payloads claims exactly the same jobs, and leaves
    ///   only the inputs to [`load_inputs`](Self::load_inputs).
    /// - **[permit.max]** At every moment at most as many jobs with the permit of a resource are
    ///   `Running` as [`set_permits`](super::PermitStore::set_permits) allows, in the whole
    ///   database, however many claim, settle and reclaim at once.
    /// - **[permit.order]** A claim goes through the due jobs in claim order and passes over those
    ///   of a resource that is used up by then: its permits go to the first in claim order, and a
    ///   resource that is used up keeps no other job back.
    ///
    /// # Errors
    /// A failure of the store. Claims may have been made all the same: the node's next heartbeat
    /// lists them (`[node.claims]`), and the engine hands them back.
    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>>;

    /// Claims due jobs without reading their payloads: for large payloads and large batches.
    ///
    /// Provided: [`claim_next_batch`](Self::claim_next_batch) with
    /// [`payloads(false)`](ClaimRequest::payloads).
    ///
    /// # Errors
    /// As for [`claim_next_batch`](Self::claim_next_batch).
    async fn claim_next_batch_optimized(&self, request: &ClaimRequest) -> Result<Vec<Claim>> {
        let request = request.clone().payloads(false);
        let jobs = self.claim_next_batch(&request).await?;
        Ok(jobs.into_iter().map(|job| job.claim).collect())
    }

    /// Reads the payloads and checkpoints of claims, many at a time.
    ///
    /// # Contract
    /// - **[claim.load]** One answer per token, in order: the input, or none if the token is stale.
    ///
    /// # Errors
    /// A failure of the store.
    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>>;

    /// Ends claims, many at a time and in different ways.
    ///
    /// # Contract
    /// - **[settle.effect]** Writes what [`Settlement::effect`] says: state, `run_at`, attempts,
    ///   error, result, and for terminal states `finished_at`. The claim is over.
    /// - **[settle.mixed]** One answer per settlement, in order; a stale one changes nothing for
    ///   the others.
    /// - **[settle.token]** A settlement applies only to a `Running` job whose `claim_seq`, node
    ///   and `claimed_at` are the token's; otherwise it is `Stale` and changes nothing, even from
    ///   the same node.
    /// - **[settle.repeat]** Settling again with the token that was the last to settle the job
    ///   changes nothing, not even the history, and is `Applied`, whatever the outcome, so that a
    ///   call with an unknown outcome can be repeated. This holds while a later claim of the job
    ///   runs, and ends when that claim is settled: then the earlier token is `Stale`.
    /// - **[settle.cancel]** If cancellation was requested the job ends `Cancelled`, whatever the
    ///   outcome, without a result.
    /// - **[settle.keys]** A terminal state frees the unique key in the same write.
    /// - **[settle.history]** Each applied settlement adds one [`Attempt`] to the job's history.
    /// - **[lane.promote]** When the head of a lane ends, by whichever method, the blocked job with
    ///   the lowest sequence becomes `Pending` with its own `run_at`, in the same write; no other
    ///   job does. A stale or repeated settlement promotes none.
    /// - **[lane.hold]** A head whose claim ends without ending the job (retried, snoozed,
    ///   released, reclaimed) stays the head.
    /// - **[settle.validate]** No store sees what [`Settlement::validate_all`] refuses.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store; then none, some or all may have been applied, and the
    /// call can be repeated.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>>;

    /// Stores the reports of running bodies.
    ///
    /// # Contract
    /// - **[report.life]** Every report says that the body has begun and restarts the job's stall
    ///   timeout.
    /// - **[report.progress]** Progress and checkpoint replace the earlier ones; they outlive the
    ///   claim, and a later claim gets the checkpoint as input.
    /// - **[report.token]** A report with a stale token is `Stale` and changes nothing.
    /// - **[report.cancel]** The answer says whether cancellation was requested.
    /// - **[report.validate]** No store sees what [`Report::validate_all`] refuses.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>>;

    /// Takes back claims whose jobs no node works on any more.
    ///
    /// # Contract
    /// - **[reclaim.dead]** A claim whose node is `Dead`, or silent as
    ///   [`NodeRecord::is_silent`](crate::model::NodeRecord::is_silent) says, is `OwnerLost`,
    ///   unless `[reclaim.left]` applies.
    /// - **[reclaim.left]** A claim whose node is `Left`, or was draining when it fell silent, is
    ///   `OwnerLeft`, which counts no crash.
    /// - **[reclaim.unknown]** A claim whose node has no row is `OwnerLost` once it is older than
    ///   `dead_after`, and so is the oldest row there is of any node: where the registry was
    ///   emptied, nodes that live have that time to register again.
    /// - **[reclaim.silence]** If the request says that silence does not count, a live node and a
    ///   node without a row lose no claim, for whatever reason: what could not be heard, or what a
    ///   step of the clock has aged, is no proof.
    /// - **[reclaim.step]** The pass ages every stored time as
    ///   [`ReclaimRequest::clock`](crate::model::ReclaimRequest::clock) says: one from before a
    ///   step from the step on. If the clock shows more than its `latest`, silence does not count.
    /// - **[reclaim.live]** However long a body runs, the claim of a live node stays, but for the
    ///   next three clauses.
    /// - **[reclaim.start]** A claim without a report for `start_timeout` since it was made is
    ///   `NotStarted`, unless the job has run out of patience otherwise.
    /// - **[reclaim.stall]** A begun claim of a job with a stall timeout, without a report for that
    ///   long, is `Stalled`.
    /// - **[reclaim.overdue]** A begun claim of a job with a timeout, made longer ago than
    ///   `start_timeout` + timeout + `overdue_after`, is `Overdue`.
    /// - **[reclaim.requeue]** A reclaimed job is `Pending` with its old `run_at` and attempts;
    ///   `crash_count` is what [`ReclaimRequest::judge`] says. If cancellation was requested it is
    ///   `Cancelled` instead. The old token is stale, and the history says `Lost`.
    /// - **[reclaim.exhausted]** A crash beyond `max_crashes` leaves the job `Running` without an
    ///   owner: its claim is given up. This pass and every later one returns it as `exhausted`,
    ///   with the same crash count, until it is settled, even if a later pass allows more crashes.
    ///   From then on only the returned token, which names no node, is valid.
    /// - **[reclaim.given_up]** The token of a claim that was given up is valid for reports and
    ///   inputs, too. A report with it keeps no later pass from returning the claim. The history
    ///   entry of the claim names no node.
    /// - **[reclaim.once]** Concurrent passes reclaim each claim once.
    /// - **[reclaim.limit]** At most `limit` claims a pass. Claims that have an owner go before
    ///   those that earlier passes gave up, which therefore keep no others waiting. Otherwise the
    ///   store chooses which claims a limited pass takes.
    /// - **[reclaim.order]** The claims are returned in order of their tokens.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>>;

    /// Does what an operator asks to jobs, each by itself.
    ///
    /// # Contract
    /// - **[act.respond]** Each job does what [`JobState::respond`](crate::JobState::respond) says
    ///   for its state; nothing else changes.
    /// - **[act.select]** Ids are answered each, in order. A filter acts on the oldest jobs it
    ///   matches, behind `after` and up to `limit`, that do not refuse, and answers only these,
    ///   oldest first. If it answers none, there was none.
    /// - **[act.twice]** An id that is given twice is acted on twice: the second action sees the
    ///   result of the first.
    /// - **[cancel.waiting]** A cancelled waiting job is never claimed, and its unique key is free.
    /// - **[cancel.running]** A cancelled running job keeps its claim; its node learns of it by
    ///   heartbeat and report.
    /// - **[requeue.fresh]** A requeued job is due now, with attempts and crashes at 0 and no
    ///   error, and can be claimed like any other; its `claim_seq` and history stay.
    /// - **[requeue.key]** A requeued job takes its unique key again, or is `KeyTaken` and
    ///   unchanged.
    /// - **[requeue.pass]** By filter, a job that is `KeyTaken` counts against `limit` and is
    ///   answered, so that a caller who goes on behind the last answered job gets past it.
    /// - **[pause.job]** A paused job is not claimed; resumed, it has its old `run_at`.
    /// - **[reschedule.job]** A rescheduled job is due at the new time, resolved on the database's
    ///   clock, and is claimed by it; no claim returns it that is made once this has returned,
    ///   unless it is due.
    /// - **[priority.job]** A job with a new priority is claimed by it. A running one keeps its
    ///   claim, and its token holds.
    /// - **[delete.job]** A deleted job is gone with its history and its tags, for every read;
    ///   idempotency keys stay used. Nothing deletes an unfinished job.
    /// - **[lane.requeue]** A dead letter of a lane is requeued with a new sequence, at the end of
    ///   the lane: `Pending` if the lane is empty and `Blocked` otherwise, which is what is
    ///   answered.
    /// - **[lane.reschedule]** A head that is rescheduled stays the head, and its lane waits for
    ///   it; a blocked job that is rescheduled stays blocked, at its place.
    /// - **[lane.cancel]** A blocked job that is cancelled leaves the lane as it is otherwise.
    ///
    /// Provided: [`select`](Self::select) and [`act_on`](Self::act_on), page by page, until a page
    /// has a job that did not refuse.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store; then nothing has changed.
    async fn act(&self, jobs: &JobSelector, action: JobAction) -> Result<Vec<Acted>> {
        act(self, jobs, action)
            .await
            .map_err(|error| error.during("act"))
    }

    /// Does an action to these jobs, in one transaction.
    ///
    /// # Contract
    /// - **[act.from]** A job that is in none of the states `from` is left unchanged and answered
    ///   `NotFound`: it has changed since it was selected. A caller that leaves a state out of
    ///   `from` gives each id once.
    ///
    /// What [`act`](Self::act) promises holds as well. Errors name `act` as the operation, since
    /// that is what applications call.
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
    /// - **[get.whole]** One answer per id, in order: the job with everything known about it, or
    ///   none. Any number of ids up to the batch limit works.
    /// - **[get.outline]** With [`Detail::Outline`], each answer is the
    ///   [outline](JobRecord::outline) of that job. A store should leave the rest unread: it may be
    ///   large, and lists are read often.
    ///
    /// # Errors
    /// `Invalid` if there are too many, or a failure of the store.
    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>>;

    /// Reads one page of the jobs that match the filter.
    ///
    /// # Contract
    /// - **[page.order]** In the order asked for, behind the given job, at most `limit`.
    /// - **[page.walk]** Walking by `next` until there is none visits every matching job exactly
    ///   once, in both orders.
    /// - **[page.filter]** Exactly the jobs that [`JobFilter::matches`].
    /// - **[page.outline]** Whole jobs, or their [outlines](JobRecord::outline), as
    ///   [`PageRequest::detail`] says.
    ///
    /// Provided: [`select`](Self::select) and [`get`](Self::get).
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
        // A job may have changed since it was selected.
        let jobs = jobs.into_iter().flatten().filter(|job| filter.matches(job));
        let jobs = jobs.collect();
        Ok(JobPage { jobs, next })
    }

    /// Reads the ids of one page of the jobs that match the filter.
    ///
    /// # Contract
    /// - **[select.page]** In the order asked for, after the given job, at most `limit`: the ids of
    ///   the jobs that [`list`](Self::list) shows, and of those that it cannot show because they
    ///   are damaged. The limit is at least 1 and at most one more than that of a page, since
    ///   `list` looks for one more.
    ///
    /// Errors name `list` as the operation, since that is what applications call.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>>;

    /// Counts the jobs that match the filter, by state.
    ///
    /// # Contract
    /// - **[count.filter]** Exactly the jobs that [`JobFilter::matches`], each once, under its
    ///   state; states without jobs are absent.
    ///
    /// # Errors
    /// A failure of the store.
    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts>;

    /// Reads the ended claims of a job, first to last.
    ///
    /// # Contract
    /// - **[history.order]** By claim number. Empty for a job that does not exist.
    ///
    /// # Errors
    /// A failure of the store.
    async fn history(&self, job: JobId) -> Result<Vec<Attempt>>;

    /// Deletes old finished jobs with their history and their tags, and says how many.
    ///
    /// # Contract
    /// - **[purge.old]** Only jobs in the given terminal state that finished longer ago than
    ///   `older_than`; the longest finished first. It deletes exactly `limit` jobs if that many
    ///   qualify, and fewer otherwise. The order of jobs that finished at the same time is
    ///   unspecified.
    /// - **[purge.awaited]** None whose children have not all ended, since those may read its
    ///   result; it keeps no other.
    /// - **[purge.whole]** A job that was deleted, by this or any other method, leaves only its
    ///   idempotency key and the links of its children: an id that is enqueued again begins anew.
    /// - **[purge.keys]** Idempotency keys stay used.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>>;
}

/// Acts through [`JobStore::select`] and [`JobStore::act_on`]. [act.select]
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
        // Other calls may have changed all jobs of the page first. An empty answer would say that
        // no job matches.
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

    /// A view of the store, what it was asked, and what happens before its first action.
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
        // No state can be both ended and cancelled.
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
