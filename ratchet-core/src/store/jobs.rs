use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{ClaimToken, JobId};
use crate::limits::MAX_BATCH;
use crate::model::{
    Acted, ActionOutcome, Attempt, Claim, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced,
    Guarded, JobFilter, JobInput, JobOrder, JobPage, JobRecord, JobSelector, NewJob, PageRequest,
    PurgeRequest, ReclaimRequest, Reclaimed, Report, Reported, Settlement, StateCounts,
};
use crate::state::{JobAction, JobState, Response};

/// Stores jobs, from their enqueue to their purge.
///
/// Most methods work on several jobs in one call. The [module](super) lists the clauses that hold
/// for every method.
#[async_trait]
pub trait JobStore: Debug + Send + Sync {
    /// Stores jobs, all of them or, on an error, none.
    ///
    /// # Contract
    /// - **[enqueue.created]** Each job is stored as it was given, and its answer is `Created` with
    ///   its id. It is `Blocked` if it has to wait for other jobs, a batch or a signal, and
    ///   `Pending` otherwise. The answers are in the order of the jobs. A call without jobs does
    ///   nothing.
    /// - **[enqueue.atomic]** The call stores all of its new jobs with their keys, or nothing. A
    ///   refused call stores nothing. If the answer of a call is lost, the caller does not know
    ///   which of the two happened.
    /// - **[enqueue.repeat]** If the id of a job is already stored, the answer is `Created`, and
    ///   the job is not stored again. So a caller can repeat an enqueue whose outcome is unknown. A
    ///   purged job does not count as stored: a new enqueue stores it again, unless its idempotency
    ///   key prevents this. Nor does a job that replaced a payload (`[keys.replace]`).
    /// - **[enqueue.due]** The due time of `RunAt::Now` and `RunAt::In` is computed from the
    ///   database's clock.
    /// - **[expiry.enqueue]** A job with an [expiry](NewJob::expiry) is stored with the time at which
    ///   it expires. An expiry of `RunAt::In` is measured from the enqueue, by the database's
    ///   clock.
    /// - **[enqueue.validate]** The door refuses jobs that [`NewJob::validate_all`] refuses, and
    ///   jobs that need a feature which the store does not have, so a store never receives them.
    /// - **[keys.idempotency]** If the idempotency key of a job was ever used, the job is not
    ///   stored, and its answer is `Duplicate` with the id of the first job that used the key. This
    ///   also holds within one call, and after the first job has ended or was purged. So if a
    ///   purged job with a key is enqueued again, the answer is `Duplicate` with its own id.
    /// - **[keys.expire]** If a job was enqueued with a [lifetime](NewJob::key_lifetime) of its
    ///   idempotency key, the key is free from this long after the enqueue, by the database's
    ///   clock, whether or not the job has ended. Then the next job with the key is stored, and the
    ///   key is the key of that job. Until then, `[keys.idempotency]` holds.
    /// - **[keys.unique]** While an unfinished job, the holder, has a unique key, another job with
    ///   this key is not stored, and its answer is `Duplicate` with the id of the holder. The
    ///   idempotency key of the other job then stays unused. [`OnConflict`](crate::OnConflict) may
    ///   say otherwise; [`TakenKeys`](crate::model::TakenKeys) decides.
    /// - **[keys.replace]** With `Replace`, `Debounce` or `Restart`, a holder of the same kind that
    ///   is `Pending`, `Blocked` or `Paused` gets the payload of the new job and its version, and
    ///   loses its checkpoint and its progress. The new job is not stored, and its answer is
    ///   `Replaced` with the id of the holder. Every later claim of the holder has the new payload.
    ///   The store does not remember the new job: if the call is repeated, it decides and replaces
    ///   anew, even if another call has replaced the payload in between.
    /// - **[keys.debounce]** With `Debounce`, this holder is also due when the new job would be
    ///   due, but not later than `max_delay` after its own enqueue, and never earlier than before.
    ///   With `Replace` and `Restart`, it is due as before.
    /// - **[keys.follow]** With `Replace`, `Debounce` or `Restart`, a holder of the same kind that
    ///   is `Running` loses its unique key. The new job gets the key. It is stored with a link to
    ///   the holder whose condition is `Ended`, after its own links. The payload of the holder does
    ///   not change.
    /// - **[keys.restart]** With `Restart`, the call also requests the cancellation of a holder
    ///   that is `Running`. With the other values, it does not.
    /// - **[expiry.replace]** With `Replace`, `Debounce` or `Restart`, a holder that gets a new
    ///   payload also gets the [expiry](NewJob::expiry) of the new job, or loses its own, whether or
    ///   not it has begun.
    /// - **[keys.kind]** If the holder is of another kind, the answer is `Duplicate` as with
    ///   `Keep`, and the holder does not change.
    /// - **[keys.both]** If the idempotency key and the unique key of a new job belong to two
    ///   different jobs, the answer is `Duplicate` with the id of the one that has the idempotency
    ///   key.
    /// - **[keys.all]** If a job that asks for [all or nothing](NewJob::all_or_nothing) is a
    ///   duplicate, the call stores nothing: no job, no key and no number of a lane. The answers of
    ///   the jobs that the call would otherwise have stored are `Withheld` with their ids. If such
    ///   a job has a key that another job of the call needs, the answer of the other job is still
    ///   `Duplicate` with its id.
    /// - **[tag.set]** A stored job has exactly the tags that it was enqueued with, byte for byte.
    ///   If a job is not stored, its tags are not stored either.
    /// - **[keys.race]** Of concurrent enqueues with the same key, exactly one gets the answer
    ///   `Created`.
    /// - **[lane.sequence]** A job that is stored with a lane gets the next sequence number of this
    ///   lane; a queue and a lane name identify a lane. The store assigns the numbers in the order
    ///   of the calls and, within a call, in the order of the jobs. The clock does not matter. A
    ///   job that is not stored gets no number.
    /// - **[lane.head]** At every moment, the head of a lane (its unfinished job with the lowest
    ///   sequence) is `Pending`, `Paused` or `Running`, and the other unfinished jobs of the lane
    ///   are `Blocked`. This holds even if many callers enqueue, claim, settle and act at the same
    ///   time. A blocked job keeps its `run_at`.
    /// - **[permit.unknown]** If a job needs a permit of a resource whose number of permits was
    ///   never set, the call is `Invalid` (field `permit`) and stores no job. This holds even if
    ///   that job would be a duplicate.
    /// - **[enqueue.refusals]** If a call must be refused for several reasons, the error names an
    ///   unknown permit first, then a parent that does not exist, then a batch that does not exist
    ///   or is closed.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>>;

    /// Claims due jobs.
    ///
    /// # Contract
    /// - **[claim.exclusive]** After a call has returned a job, no other call returns the job until
    ///   its claim has ended.
    /// - **[claim.due]** A call returns only `Pending` jobs whose `run_at` is not after the
    ///   database's time.
    /// - **[claim.limit]** A call returns at most `limit` jobs, and fewer only if fewer jobs are
    ///   due, match the request and get the permits that they need. With a limit of 0, a call
    ///   returns no job.
    /// - **[claim.order]** A call returns the first jobs in the order of
    ///   [`ClaimRank`](crate::priority::ClaimRank), sorted in the same order: effective priority
    ///   descending, then `run_at` ascending, then id ascending.
    /// - **[claim.aging]** [`Aging`](crate::Aging) computes the effective priority, and a claim
    ///   never changes the stored priority.
    /// - **[claim.match]** A call returns only jobs whose route matches the request
    ///   ([`Route::matches`](crate::Route::matches)).
    /// - **[claim.paused]** A call returns no job of a paused queue or a paused kind.
    /// - **[claim.live]** If the store has a row of the node, the node gets jobs only while its
    ///   status is `Active`.
    /// - **[claim.running]** Each returned job is `Running`, is owned by the node, and has a
    ///   `claim_seq` one higher than before. Its token contains this number, the node and the time
    ///   of the claim.
    /// - **[claim.route]** The claim contains the route with which the job was enqueued. This holds
    ///   even if the database has lost routes that a process has cached, and other routes have
    ///   their ids.
    /// - **[claim.version]** The claim contains the version of the payload with which the job was
    ///   enqueued.
    /// - **[claim.whole]** If the request asks for payloads, each claim contains the payload and
    ///   the last checkpoint.
    /// - **[claim.awaited]** [`Claim::awaited`](crate::model::Claim::awaited) is true if the job is
    ///   in a batch, or if another job was linked to the job before the claim. The store may also
    ///   set it to true for other jobs.
    /// - **[expiry.claim]** A job may be claimed before and after its expiry. It keeps its expiry,
    ///   and [`Claim::expires_at`](crate::model::Claim::expires_at) contains it. For a job without
    ///   an expiry, such as one that has begun, this is `None`.
    /// - **[claim.damaged]** If a due job cannot be read, the call does not return the job. It ends
    ///   the job as `Failed`, with an error that says so, and with everything that follows from an
    ///   end: its lane, its children and its batch move on, and its unique key is free. Whether the
    ///   same call returns the next job of its lane is unspecified.
    /// - **[claim.optimized]** A request without payloads claims exactly the same jobs, and the
    ///   answer leaves out only the inputs, which [`load_inputs`](Self::load_inputs) reads.
    /// - **[fair.turn]** Of the jobs with a [fair key](crate::NewJob::fair_key) of one route and
    ///   priority, a call takes the first in the order (turn, key, id). `[claim.order]` compares
    ///   the next of them with other jobs. The turns are those of [`fair`](crate::fair): an enqueue
    ///   gives them to its own due jobs, and a claim to the due jobs without a turn whose routes
    ///   match the request, the longest due first, at most
    ///   [`WOKEN_BY_A_CLAIM`](crate::fair::WOKEN_BY_A_CLAIM).
    /// - **[fair.bound]** While a job is the first of its key, at most one job of each other key of
    ///   equal weight is claimed before it, or two if that key falls idle in between, besides those
    ///   of calls in progress.
    /// - **[fair.weight]** While two keys always have due jobs, their claimed jobs differ from the
    ///   ratio of their weights by at most one turn each.
    /// - **[fair.idle]** A key saves up no turns while it has no due job, and jobs that were
    ///   cancelled or deleted cost it none.
    /// - **[fair.due]** A delayed, retried or rescheduled job takes part from its due time on, as
    ///   soon as a claim has given it a turn. If `n` jobs without a turn are due before it in the
    ///   routes that match, whatever their keys, this is the claim number `n` /
    ///   [`WOKEN_BY_A_CLAIM`](crate::fair::WOKEN_BY_A_CLAIM) + 1 at the latest. So until then,
    ///   those jobs may go ahead of it.
    /// - **[fair.plain]** Jobs without a key are claimed as if there were no others, except where
    ///   `[claim.order]` puts others between them.
    /// - **[fair.act]** A pause, another due time and another priority take the turn of a job away,
    ///   whichever call sets them. The job gets another turn as soon as it can be claimed. A call
    ///   that sets the due time or the priority that the job already has leaves the turn, and so
    ///   does a new payload (`[keys.replace]`).
    /// - **[permit.max]** At every moment, at most as many jobs with a permit of a resource are
    ///   `Running` as [`set_permits`](super::PermitStore::set_permits) allows. This holds for the
    ///   whole database, even if many callers claim, settle and reclaim at the same time. After the
    ///   number was lowered, `[permit.change]` applies.
    /// - **[permit.order]** A call examines the due jobs in claim order, and skips each job whose
    ///   resource has no free permit at that point. So the first jobs in claim order get the
    ///   permits of a resource, and a resource without free permits delays only the jobs that need
    ///   it.
    ///
    /// # Errors
    /// A failure of the store. The call may have claimed jobs nevertheless. The node's next
    /// heartbeat lists these claims (`[node.claims]`), and the engine releases them.
    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>>;

    /// Claims due jobs without reading their payloads. Use this method for large payloads and large
    /// batches.
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

    /// Reads the payloads and checkpoints of several claims.
    ///
    /// # Contract
    /// - **[claim.load]** The call returns one answer per token, in order: the input of the claim,
    ///   or `None` if the token is stale. A token may occur more than once.
    ///
    /// The provided implementation reads the whole jobs with [`get`](Self::get).
    ///
    /// # Errors
    /// A failure of the store.
    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        let ids: Vec<JobId> = tokens.iter().map(|token| token.job).collect();
        let jobs = self.get(&ids, Detail::Whole).await;
        let jobs = jobs.map_err(|error| error.during("load_inputs"))?;
        let input = |(token, job): (&ClaimToken, Option<JobRecord>)| {
            let holds =
                |job: &JobRecord| job.state == JobState::Running && Claim::of(job).token == *token;
            let job = job.filter(holds)?;
            Some(JobInput {
                payload: job.spec.payload,
                checkpoint: job.checkpoint,
            })
        };
        Ok(tokens.iter().zip(jobs).map(input).collect())
    }

    /// Ends claims and stores their outcomes. The settlements of one call may have different
    /// outcomes.
    ///
    /// # Contract
    /// - **[settle.effect]** The call writes the values that [`Settlement::effect`] returns: the
    ///   state, `run_at`, attempts, error and result, and `finished_at` for a terminal state. The
    ///   claim has then ended.
    /// - **[settle.mixed]** The call returns one answer per settlement, in order, and a stale
    ///   settlement does not affect the others.
    /// - **[settle.token]** A settlement applies only if its job is `Running` and has the
    ///   `claim_seq`, node and `claimed_at` of the token; otherwise it is `Stale` and changes
    ///   nothing. This holds even if the settlement comes from the node that now holds the claim.
    ///   The only exception is `[settle.repeat]`.
    /// - **[settle.repeat]** If a settlement has the token of the last settled claim of its job,
    ///   the answer is `Applied` and nothing changes, not even the history. This holds whatever the
    ///   outcome in the settlement. So a caller can repeat a call whose outcome is unknown. The
    ///   answer stays `Applied` while a later claim of the job runs. Once the later claim is
    ///   settled, the earlier token is `Stale`.
    /// - **[settle.cancel]** If the cancellation of a job was requested, a settlement ends the job
    ///   as `Cancelled`, without a result, whatever the outcome.
    /// - **[settle.keys]** The write that gives a job a terminal state also frees its unique key.
    /// - **[settle.history]** Each settlement that ends a claim adds one [`Attempt`] to the job's
    ///   history.
    /// - **[lane.promote]** When the head of a lane ends, by whichever method, the same write makes
    ///   the lane's blocked job with the lowest sequence `Pending`. That job keeps its own
    ///   `run_at`, and no other job is promoted. A stale or repeated settlement promotes no job.
    /// - **[lane.hold]** If the claim of a head ends and the job itself has not ended, the job
    ///   stays the head. This is the case after a retry, a snooze, a release or a reclaim.
    /// - **[settle.validate]** The door refuses settlements that [`Settlement::validate_all`]
    ///   refuses, so a store never receives them.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After a failure, none, some or all of the settlements
    /// may have been applied. The call can be repeated.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>>;

    /// Stores the reports of running bodies.
    ///
    /// # Contract
    /// - **[report.life]** Every report shows that the body has begun, and restarts the job's stall
    ///   timeout.
    /// - **[expiry.begun]** A report removes the expiry of its job, in the same write. A claim, a
    ///   settlement or a reclaim leaves the expiry. So a node sends a report before it runs the
    ///   body of a job with an expiry. Then a job never expires after its body has begun, and a job
    ///   whose claim ended without a report still expires.
    /// - **[report.progress]** A report of progress or of a checkpoint replaces the earlier one.
    ///   The store keeps both after the claim has ended, and a later claim gets the checkpoint as
    ///   input.
    /// - **[report.token]** A report with a stale token is `Stale` and changes nothing.
    /// - **[report.cancel]** The answer says whether the cancellation of the job was requested.
    /// - **[report.validate]** The door refuses reports that [`Report::validate_all`] refuses, so a
    ///   store never receives them.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>>;

    /// Ends lost claims, such as those of dead nodes, so that their jobs can run again.
    ///
    /// # Contract
    /// - **[reclaim.dead]** A claim is `OwnerLost` if its node is `Dead` or silent
    ///   ([`NodeRecord::is_silent`](crate::model::NodeRecord::is_silent)), unless `[reclaim.left]`
    ///   applies.
    /// - **[reclaim.left]** A claim is `OwnerLeft` if its node is `Left`, or was draining when it
    ///   fell silent. Such a claim counts no crash.
    /// - **[reclaim.unknown]** A claim whose node has no row is `OwnerLost` if the claim and the
    ///   oldest row of any node are both older than `dead_after`. If the store has no rows of
    ///   nodes, only the age of the claim counts. So if all rows were deleted, live nodes have the
    ///   time `dead_after` to register again.
    /// - **[reclaim.silence]** If the request says that silence does not count, the pass reclaims
    ///   no claim of a live node or of a node without a row, whatever the reason. After an outage
    ///   or a step of the clock, a long silence or a high age does not prove that a node or a body
    ///   has stopped.
    /// - **[reclaim.step]** For each step forward of the database's clock that
    ///   [`ReclaimRequest::clock`](crate::model::ReclaimRequest::clock) lists, the pass subtracts
    ///   the size of the step from the age of every time that was stored before the step. If the
    ///   database's clock is later than `clock` allows, the clock has stepped again, and silence
    ///   does not count.
    /// - **[reclaim.live]** A live node keeps its claim, however long the body runs, unless one of
    ///   the next three clauses applies.
    /// - **[reclaim.start]** A claim is `NotStarted` if it is older than `start_timeout` and had no
    ///   report, unless another clause makes it `OwnerLost` or `OwnerLeft`.
    /// - **[reclaim.stall]** A claim whose body has begun is `Stalled` if its job has a stall
    ///   timeout and the last report is older than this timeout.
    /// - **[reclaim.overdue]** A claim whose body has begun is `Overdue` if its job has a timeout
    ///   and the claim is older than `start_timeout` + timeout + `overdue_after`.
    /// - **[reclaim.requeue]** A reclaimed job is `Pending` with its old `run_at` and attempts, and
    ///   with the `crash_count` that [`ReclaimRequest::judge`] returns. If cancellation was
    ///   requested and `[reclaim.exhausted]` does not apply, the job is `Cancelled` instead. The
    ///   old token is stale, and the history entry of the claim has the outcome `Lost`.
    /// - **[reclaim.exhausted]** If a crash raises the count above `max_crashes`, the pass gives
    ///   the claim up: the job stays `Running`, without an owner. Until the claim is settled, this
    ///   pass and every later pass return it as `exhausted`, with the same crash count. This also
    ///   holds if a later pass allows more crashes. Only the returned token, which names no node,
    ///   is then valid.
    /// - **[reclaim.given_up]** The token that a pass returns for a claim that was given up is also
    ///   valid for reports and for reading inputs. Later passes return the claim even after reports
    ///   with this token. The history entry of the claim names no node.
    /// - **[reclaim.once]** Concurrent passes reclaim each claim only once.
    /// - **[reclaim.limit]** A pass returns at most `limit` claims. Claims that have an owner come
    ///   before claims that earlier passes gave up, so the given-up claims never delay the others.
    ///   Apart from this rule, the store chooses which claims a limited pass returns.
    /// - **[reclaim.order]** A pass returns the claims in the order of their tokens.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>>;

    /// Applies an operator's action to jobs, each independently.
    ///
    /// # Contract
    /// - **[act.respond]** The action changes each job as
    ///   [`JobState::respond`](crate::JobState::respond) returns for the job's state. Nothing else
    ///   changes.
    /// - **[act.select]** With ids, the call returns one answer per id, in order; with a filter, it
    ///   acts on up to `limit` matching jobs and returns only their answers. These are the oldest
    ///   matching jobs after the job `after` that do not refuse the action, oldest first. An empty
    ///   answer to a filter means that there was no such job.
    /// - **[act.twice]** If an id is given twice, the call acts on the job twice: the second action
    ///   sees the result of the first.
    /// - **[cancel.waiting]** A waiting job that was cancelled is never claimed, and its unique key
    ///   is free.
    /// - **[cancel.running]** A running job whose cancellation is requested keeps its claim, and
    ///   the node that runs the job learns of the request from its next heartbeat or report.
    /// - **[requeue.fresh]** A requeued job is due now, its attempts and crashes are 0, and it has
    ///   no error. It can be claimed like any other job, unless `[lane.requeue]` or
    ///   `[link.requeue]` makes it `Blocked`. Its `claim_seq` and its history do not change.
    /// - **[expiry.requeue]** A requeued job has no expiry.
    /// - **[requeue.key]** A requeued job gets its unique key again, unless another job has the
    ///   key. In that case the answer is `KeyTaken`, and the requeued job does not change.
    /// - **[requeue.pass]** In a requeue by filter, a job that is `KeyTaken` counts towards `limit`
    ///   and has an answer. So a caller that continues after the last job of the answers does not
    ///   act on this job again.
    /// - **[pause.job]** A paused job is not claimed, and a resumed job has its old `run_at`.
    /// - **[reschedule.job]** A rescheduled job is due at its new time, which is computed from the
    ///   database's clock and counts in the claim order. A claim made after the call has returned
    ///   does not return the job before it is due.
    /// - **[priority.job]** After a change of its priority, a job is claimed by the new priority. A
    ///   running job keeps its claim, and its token stays valid.
    /// - **[delete.job]** After a job was deleted, no read returns the job, its history or its
    ///   tags, and its idempotency key stays used. An unfinished job is never deleted.
    /// - **[lane.requeue]** A dead letter of a lane that is requeued gets a new sequence, at the
    ///   end of the lane. It becomes `Pending` if the lane has no other unfinished job, and
    ///   `Blocked` otherwise. The answer contains the new state.
    /// - **[lane.reschedule]** A head that is rescheduled stays the head, and its lane waits for
    ///   it. A blocked job that is rescheduled stays blocked and keeps its sequence number.
    /// - **[lane.cancel]** A blocked job that is cancelled leaves its lane; the other jobs of the
    ///   lane do not change.
    ///
    /// The provided implementation calls [`select`](Self::select) and [`act_on`](Self::act_on),
    /// page by page, until a page has a job that does not refuse the action.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After an error, nothing has changed.
    async fn act(&self, jobs: &JobSelector, action: JobAction) -> Result<Vec<Acted>> {
        act(self, jobs, action)
            .await
            .map_err(|error| error.during("act"))
    }

    /// Applies an action to these jobs, in one transaction.
    ///
    /// # Contract
    /// - **[act.from]** If the state of a job is not in `from`, the job does not change and the
    ///   answer is `NotFound`: its state has changed since it was selected. If `from` does not
    ///   contain every state, the caller must give each id only once.
    ///
    /// The clauses of [`act`](Self::act) hold as well. Errors name `act` as the operation, because
    /// applications call `act`.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After an error, nothing has changed.
    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>>;

    /// Reads jobs.
    ///
    /// # Contract
    /// - **[get.whole]** The call returns one answer per id, in order: the job with all its data,
    ///   or `None` if there is no such job. Any number of ids up to the batch limit works.
    /// - **[get.outline]** With [`Detail::Outline`], each answer is the
    ///   [outline](JobRecord::outline) of the job. A store should not read the other data of the
    ///   job: they may be large, and lists are read often.
    ///
    /// # Errors
    /// `Invalid` if there are too many ids, or a failure of the store.
    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>>;

    /// Reads one page of the jobs that match the filter.
    ///
    /// # Contract
    /// - **[page.order]** A page has at most `limit` jobs that come after the job `after`, in the
    ///   requested order.
    /// - **[page.walk]** A caller that reads page after page, until `next` is `None`, gets every
    ///   matching job exactly once, in both orders.
    /// - **[page.filter]** The listed jobs are exactly those that match the filter
    ///   ([`JobFilter::matches`]).
    /// - **[page.outline]** [`PageRequest::detail`] selects whether the page has whole jobs or
    ///   their [outlines](JobRecord::outline).
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
    /// - **[select.page]** The call returns the ids of at most `limit` jobs after the job `after`,
    ///   in the requested order. It returns the ids of the jobs that [`list`](Self::list) returns,
    ///   and also of damaged jobs that `list` cannot read. The limit is at least 1. It may be one
    ///   more than the maximum for a page, because `list` asks for one job more.
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
    ///   ([`JobFilter::matches`]), each once, under its state. States without jobs are not in the
    ///   answer.
    ///
    /// The provided implementation reads all matching jobs with [`list`](Self::list).
    ///
    /// # Errors
    /// A failure of the store.
    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        let mut counts = StateCounts::new();
        let mut page = PageRequest::first(MAX_BATCH);
        page = page.order(JobOrder::OldestFirst).detail(Detail::Outline);
        loop {
            let read = self.list(filter, &page).await;
            let read = read.map_err(|error| error.during("count_jobs"))?;
            for job in read.jobs {
                *counts.entry(job.state).or_default() += 1;
            }
            if read.next.is_none() {
                return Ok(counts);
            }
            page = page.after(read.next);
        }
    }

    /// Reads the history of a job: its ended claims, first to last.
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
    /// - **[purge.old]** A purge deletes only jobs in the given terminal state that finished more
    ///   than `older_than` ago, the earliest end first. It deletes exactly `limit` jobs if that
    ///   many qualify, and fewer otherwise. The order of jobs that finished at the same time is
    ///   unspecified.
    /// - **[purge.awaited]** A purge does not delete a job before all its children have ended,
    ///   because the children may read the job's result. The purge deletes other jobs nevertheless.
    /// - **[purge.whole]** After a job was deleted, by this or any other method, only its
    ///   idempotency key and the links of its children remain. If its id is enqueued again, the new
    ///   job has no data of the deleted job.
    /// - **[purge.keys]** The idempotency keys of purged jobs stay used. The call may delete those
    ///   that are free again (`[keys.expire]`).
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>>;

    /// Cancels jobs that have not begun before their expiry: up to `limit` jobs, the longest
    /// overdue first.
    ///
    /// # Contract
    /// - **[expiry.pass]** A job that is `Pending`, `Blocked` or `Paused` at its expiry, and not
    ///   before, becomes `Cancelled`. No attempt is counted or added to its history. As for any
    ///   other end, its unique key is freed, its lane continues, its batch counts it, and the links
    ///   on it are decided. A `Running` job does not change. Of concurrent calls, only one ends the
    ///   job. Each call returns the jobs that it ended, in order of id.
    /// - **[expiry.limit]** A call ends at most `limit` jobs, and fewer only if fewer are overdue,
    ///   or if other calls or transactions are changing some of them. It need not wait for these
    ///   jobs, which a later call ends.
    /// - **[expiry.kept]** A job that was cancelled before it began keeps its expiry, also in the
    ///   archive, so [`JobRecord::is_expired`] tells why it ended.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn expire_jobs(&self, limit: usize) -> Result<Vec<JobId>>;
}

/// Implements [`JobStore::act`] with [`JobStore::select`] and [`JobStore::act_on`], as the clause
/// `[act.select]` requires.
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
    // A filter with an empty list of states would select every state.
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
        // Other calls may have changed all jobs of the page before this call could. An empty result
        // would wrongly mean that no job matches, so read the next page.
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

    /// Returns a store that runs `first` before its first call of `act_on`, and a list in which the
    /// store records its calls.
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
