//! A node of a case: a handle on the store, with an identity and a short method for every call. If
//! the store returns an error, these methods fail the case.

use std::time::Duration;

use ratchet_core::model::{
    Acted, ActionOutcome, Attempt, BatchClosed, BatchRecord, Claim, ClaimRequest, ClaimedJob,
    Delivered, Detail, DueRecurring, DueRoute, Fenced, Fired, Guarded, Heartbeat, HeartbeatReply,
    JobFilter, JobInput, JobOrder, JobPage, JobSelector, Link, LinkState, NodeRecord, NodeStatus,
    NodeSweep, Outcome, PageRequest, PauseInfo, PauseRequest, PauseScope, PurgeRequest, PutOutcome,
    QueueInfo, ReclaimRequest, Reclaimed, RecurringClaimRequest, RecurringFiring, RecurringRecord,
    Report, ReportKind, Reported, Settlement, Signal, SignalTarget, SweptNodes,
};
use ratchet_core::store::{
    Acquired, Changed, JobStore, LockInfo, RecurringStore, SignalStore, WorkflowStore,
};
use ratchet_core::time::Timestamp;
use ratchet_core::{
    BatchId, ClaimToken, Enqueued, JobAction, JobId, JobRecord, JobState, Name, NewJob, NodeId,
    Recurring, Result, SharedStore, StoreError,
};

use crate::build::{
    MINUTE, {json, name, pause_of_kind, pause_of_queue, put},
};

/// Returns the value of `result`. Fails the case if `result` is an error.
pub(crate) fn ok<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("expected the store call to succeed, found: {error}"))
}

/// Returns the value of a guarded write. Fails the case if the store rejected the write because its
/// guard was stale.
pub(crate) fn landed<T>(written: Guarded<T>) -> T {
    match written {
        Guarded::Done(value) => value,
        Guarded::Stale => panic!("expected the write to be applied, found it refused as stale"),
    }
}

/// The cursors of the pages that a case has read from a listing. A repeated cursor fails the case,
/// because the listing would never end.
#[derive(Debug)]
pub(crate) struct Walk<T>(Vec<T>);

impl<T: PartialEq + std::fmt::Debug + Clone> Walk<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Records the cursor of the next page and returns it. Fails the case if an earlier page had
    /// the same cursor.
    pub(crate) fn on(&mut self, cursor: Option<T>) -> Option<T> {
        let next = cursor?;
        assert!(
            !self.0.contains(&next),
            "the cursor {next:?} of the listing comes for the second time, so its pages never end"
        );
        self.0.push(next.clone());
        Some(next)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TestNode {
    pub(crate) store: SharedStore,
    pub(crate) id: NodeId,
    pub(crate) label: Name,
}

impl TestNode {
    /// Heartbeat interval of a test node.
    pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

    pub(crate) fn new(store: SharedStore) -> Self {
        let id = NodeId::new();
        let label = name(&format!("node-{id}"));
        Self { store, id, label }
    }

    /// Creates another node that uses the same handle on the store.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(SharedStore::clone(&self.store))
    }

    pub(crate) fn jobs(&self) -> &dyn JobStore {
        self.store.jobs()
    }

    /// Returns the part of the store for recurring definitions. Panics if the store has no such
    /// part.
    pub(crate) fn recurring(&self) -> &dyn RecurringStore {
        let recurring = self.store.recurring();
        recurring.expect(
            "the store should support recurring definitions, because the suite lists \
             the power Recurring",
        )
    }

    /// Stores a new recurring definition and returns the stored record. Fails the case if the
    /// definition already exists.
    pub(crate) async fn define(&self, recurring: Recurring) -> RecurringRecord {
        let put = put(recurring);
        let outcome = ok(self.recurring().put(&put).await);
        assert_eq!(outcome, PutOutcome::Created);
        self.definition(put.definition.name().as_str()).await
    }

    /// Stores a new or changed recurring definition and returns the outcome.
    pub(crate) async fn put(&self, recurring: Recurring) -> PutOutcome {
        ok(self.recurring().put(&put(recurring)).await)
    }

    /// Returns the record of the recurring definition `named`. Fails the case if there is no such
    /// definition.
    pub(crate) async fn definition(&self, named: &str) -> RecurringRecord {
        let found = ok(self.recurring().find(&name(named)).await);
        found.unwrap_or_else(|| panic!("the recurring definition {named} should be stored"))
    }

    /// Claims up to `limit` due recurring definitions, with a lease of one minute.
    pub(crate) async fn claim_due(&self, limit: usize) -> DueRecurring {
        let request = RecurringClaimRequest::new(self.id, limit).lease(MINUTE);
        ok(self.recurring().claim_due_recurring(&request).await)
    }

    /// Claims the only due recurring definition and returns its planned firing. Fails the case
    /// unless exactly one definition is due.
    pub(crate) async fn plan_one(&self) -> RecurringFiring {
        let due = self.claim_due(10).await;
        assert_eq!(due.definitions.len(), 1, "expected one due definition");
        due.definitions[0]
            .plan(due.now)
            .expect("the definition should be due")
    }

    pub(crate) async fn fire(&self, firing: &RecurringFiring) -> Fired {
        let firings = std::slice::from_ref(firing);
        let mut answers = ok(self.recurring().fire(firings).await);
        assert_eq!(answers.len(), 1, "expected one answer per firing");
        answers.remove(0)
    }

    pub(crate) async fn set_definition_paused(&self, named: &str, paused: bool) -> Changed {
        ok(self.recurring().set_paused(&name(named), paused).await)
    }

    pub(crate) async fn delete_definition(&self, named: &str) -> Changed {
        ok(self.recurring().delete(&name(named)).await)
    }

    pub(crate) async fn now(&self) -> Timestamp {
        ok(self.store.nodes().database_time().await)
    }

    pub(crate) async fn enqueue(&self, jobs: &[NewJob]) -> Vec<Enqueued> {
        ok(self.jobs().enqueue(jobs).await)
    }

    /// Enqueues one job and returns its id. Fails the case if the store does not create the job.
    pub(crate) async fn add(&self, job: NewJob) -> JobId {
        let answers = self.enqueue(std::slice::from_ref(&job)).await;
        assert_eq!(answers, [Enqueued::Created(job.id())]);
        job.id()
    }

    /// Enqueues one job and returns the store's answer, which names a created job or a duplicate.
    pub(crate) async fn offer(&self, job: &NewJob) -> Enqueued {
        let answers = self.enqueue(std::slice::from_ref(job)).await;
        assert_eq!(answers.len(), 1, "expected one answer per job");
        answers[0]
    }

    /// Enqueues jobs and returns their ids. Fails the case if the store does not create all of
    /// them.
    pub(crate) async fn add_all(&self, jobs: &[NewJob]) -> Vec<JobId> {
        let ids: Vec<JobId> = jobs.iter().map(NewJob::id).collect();
        let created: Vec<Enqueued> = ids.iter().copied().map(Enqueued::Created).collect();
        assert_eq!(self.enqueue(jobs).await, created);
        ids
    }

    pub(crate) fn request(&self, limit: usize) -> ClaimRequest {
        ClaimRequest::new(self.id, limit)
    }

    pub(crate) async fn claim(&self, limit: usize) -> Vec<ClaimedJob> {
        self.claim_with(&self.request(limit)).await
    }

    pub(crate) async fn claim_with(&self, request: &ClaimRequest) -> Vec<ClaimedJob> {
        let claimed = ok(self.jobs().claim_next_batch(request).await);
        assert!(
            claimed.len() <= request.limit,
            "expected no more jobs than the limit of the claim"
        );
        claimed
    }

    pub(crate) async fn claim_lean(&self, request: &ClaimRequest) -> Vec<Claim> {
        let claimed = ok(self.jobs().claim_next_batch_optimized(request).await);
        assert!(
            claimed.len() <= request.limit,
            "expected no more jobs than the limit of the claim"
        );
        claimed
    }

    /// Claims one job and returns the job with its claim. Fails the case if no job is due.
    pub(crate) async fn claim_one(&self) -> ClaimedJob {
        let claimed = self.claim(1).await;
        assert_eq!(claimed.len(), 1, "expected one due job to be claimed");
        claimed.into_iter().next().expect("there should be one job")
    }

    /// Claims one job and returns the token of the claim. Fails the case if no job is due.
    pub(crate) async fn take(&self) -> ClaimToken {
        self.claim_one().await.claim.token
    }

    /// Claims up to `limit` jobs and returns their ids.
    pub(crate) async fn claim_ids(&self, limit: usize) -> Vec<JobId> {
        ids(&self.claim(limit).await)
    }

    pub(crate) async fn inputs(&self, tokens: &[ClaimToken]) -> Vec<Option<JobInput>> {
        ok(self.jobs().load_inputs(tokens).await)
    }

    pub(crate) async fn settle(&self, token: ClaimToken, outcome: Outcome) -> Fenced {
        let answers = self.settle_all(&[Settlement::new(token, outcome)]).await;
        assert_eq!(answers.len(), 1, "expected one answer per settlement");
        answers[0]
    }

    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Fenced> {
        ok(self.jobs().settle(settlements).await)
    }

    /// Returns a token for claim number `seq` of `job`, with this node as the owner. The time of
    /// the claim in the token is the time of the job's last stored claim.
    pub(crate) async fn token(&self, job: JobId, seq: u64) -> ClaimToken {
        let found = self.find(job).await;
        let claimed_at = found.and_then(|job| job.claimed_at);
        let claimed_at = claimed_at.unwrap_or(Timestamp::UNIX_EPOCH);
        ClaimToken::new(job, seq, Some(self.id), claimed_at)
    }

    /// Returns the token of the job's current claim, whichever node holds the claim.
    pub(crate) async fn present(&self, job: JobId) -> ClaimToken {
        Claim::of(&self.get(job).await).token
    }

    pub(crate) async fn succeed(&self, token: ClaimToken) {
        let outcome = Outcome::Succeeded { result: None };
        assert_eq!(self.settle(token, outcome).await, Fenced::Applied);
    }

    pub(crate) async fn fail(&self, token: ClaimToken) {
        let error = "it failed".to_owned();
        let outcome = Outcome::Failed { error };
        assert_eq!(self.settle(token, outcome).await, Fenced::Applied);
    }

    pub(crate) async fn release(&self, token: ClaimToken) {
        assert_eq!(self.settle(token, Outcome::Released).await, Fenced::Applied);
    }

    pub(crate) async fn report(&self, token: ClaimToken, kind: ReportKind) -> Reported {
        let answers = ok(self.jobs().report(&[Report::new(token, kind)]).await);
        assert_eq!(answers.len(), 1, "expected one answer per report");
        answers[0]
    }

    /// Reports that the body of a claimed job is alive. Fails the case if the store rejects the
    /// report as stale.
    pub(crate) async fn alive(&self, token: ClaimToken) {
        let answer = self.report(token, ReportKind::Alive).await;
        assert!(matches!(answer, Reported::Applied { .. }), "{answer:?}");
    }

    pub(crate) async fn reclaim(&self, request: &ReclaimRequest) -> Vec<Reclaimed> {
        ok(self.jobs().reclaim(request).await)
    }

    pub(crate) async fn act(&self, job: JobId, action: JobAction) -> ActionOutcome {
        let acted = self.act_on(&JobSelector::Ids(vec![job]), action).await;
        assert_eq!(acted.len(), 1, "expected one answer per id");
        assert_eq!(acted[0].job, job);
        acted[0].outcome
    }

    pub(crate) async fn act_on(&self, jobs: &JobSelector, action: JobAction) -> Vec<Acted> {
        ok(self.jobs().act(jobs, action).await)
    }

    /// Returns the record of a job. Fails the case if the job is not stored.
    pub(crate) async fn get(&self, job: JobId) -> JobRecord {
        let found = self.find(job).await;
        found.unwrap_or_else(|| panic!("the job {job} should be stored"))
    }

    pub(crate) async fn find(&self, job: JobId) -> Option<JobRecord> {
        let mut found = self.get_all(&[job]).await;
        assert_eq!(found.len(), 1, "expected one answer per id");
        found.remove(0)
    }

    pub(crate) async fn get_all(&self, jobs: &[JobId]) -> Vec<Option<JobRecord>> {
        ok(self.jobs().get(jobs, Detail::Whole).await)
    }

    pub(crate) async fn state(&self, job: JobId) -> JobState {
        self.get(job).await.state
    }

    pub(crate) async fn list(&self, filter: &JobFilter, page: &PageRequest) -> JobPage {
        ok(self.jobs().list(filter, page).await)
    }

    /// Returns the records of all jobs, oldest first. Reads them in several pages if necessary.
    pub(crate) async fn everything(&self) -> Vec<JobRecord> {
        let mut jobs = Vec::new();
        let mut page = PageRequest::first(1_000).order(JobOrder::OldestFirst);
        let mut walk = Walk::new();
        loop {
            let read = self.list(&JobFilter::all(), &page).await;
            jobs.extend(read.jobs);
            let Some(next) = walk.on(read.next) else {
                return jobs;
            };
            page = page.after(Some(next));
        }
    }

    /// Returns the ids of all jobs that match `filter`, read in pages of up to `limit` jobs.
    pub(crate) async fn walk(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        limit: usize,
    ) -> Vec<JobId> {
        let (mut visited, mut walk) = (Vec::new(), Walk::new());
        let mut page = PageRequest::first(limit).order(order);
        loop {
            let read = self.list(filter, &page).await;
            assert!(read.jobs.len() <= limit);
            visited.extend(read.jobs.iter().map(|job| job.id));
            let Some(next) = walk.on(read.next) else {
                return visited;
            };
            page = page.after(Some(next));
        }
    }

    pub(crate) async fn history(&self, job: JobId) -> Vec<Attempt> {
        ok(self.jobs().history(job).await)
    }

    pub(crate) async fn purge(&self, state: JobState, older_than: Duration, limit: usize) -> u64 {
        let request = PurgeRequest::new(state, older_than, limit);
        landed(ok(self.jobs().purge(&request).await))
    }

    pub(crate) fn heartbeat(&self, status: NodeStatus) -> Heartbeat {
        Heartbeat::new(self.id, self.label.clone(), status, Self::INTERVAL)
    }

    /// Sends a heartbeat of this node with the status `Joining`.
    pub(crate) async fn join(&self) -> HeartbeatReply {
        self.beat_with(&self.heartbeat(NodeStatus::Joining)).await
    }

    pub(crate) async fn beat(&self) -> HeartbeatReply {
        self.beat_with(&self.heartbeat(NodeStatus::Active)).await
    }

    pub(crate) async fn beat_with(&self, heartbeat: &Heartbeat) -> HeartbeatReply {
        ok(self.store.nodes().heartbeat(heartbeat).await)
    }

    pub(crate) async fn set_status(&self, node: NodeId, status: NodeStatus) -> Changed {
        ok(self.store.nodes().set_node_status(node, status).await)
    }

    /// Marks this node as dead, as if it had stopped sending heartbeats. The claims of the node can
    /// then be reclaimed.
    pub(crate) async fn die(&self) {
        let changed = self.set_status(self.id, NodeStatus::Dead).await;
        assert_eq!(changed, Changed::Changed);
    }

    pub(crate) async fn nodes(&self) -> Vec<NodeRecord> {
        ok(self.store.nodes().nodes().await)
    }

    /// Returns the record of a node, or `None` if the node is not stored.
    pub(crate) async fn node(&self, node: NodeId) -> Option<NodeRecord> {
        let nodes = self.nodes().await;
        nodes.into_iter().find(|record| record.node == node)
    }

    pub(crate) async fn sweep(&self, dead_after: Duration, forget_after: Duration) -> SweptNodes {
        let sweep = NodeSweep::new(dead_after, forget_after);
        landed(ok(self.store.nodes().sweep_nodes(&sweep).await))
    }

    pub(crate) async fn pause(&self, request: &PauseRequest) -> Changed {
        ok(self.store.queues().pause(request).await)
    }

    pub(crate) async fn pause_queue(&self, queue: &str) -> Changed {
        self.pause(&pause_of_queue(queue)).await
    }

    pub(crate) async fn resume_queue(&self, queue: &str) -> Changed {
        let scope = PauseScope::Queue(name(queue));
        ok(self.store.queues().resume(&scope).await)
    }

    pub(crate) async fn pause_kind(&self, kind: &str) -> Changed {
        self.pause(&pause_of_kind(kind)).await
    }

    pub(crate) async fn resume_kind(&self, kind: &str) -> Changed {
        let scope = PauseScope::Kind(name(kind));
        ok(self.store.queues().resume(&scope).await)
    }

    pub(crate) async fn pauses(&self) -> Vec<PauseInfo> {
        ok(self.store.queues().pauses().await)
    }

    pub(crate) async fn queues(&self) -> Vec<QueueInfo> {
        ok(self.store.queues().queues().await)
    }

    pub(crate) async fn due_routes(&self) -> Vec<DueRoute> {
        self.due_routes_within(Duration::ZERO).await
    }

    pub(crate) async fn due_routes_within(&self, within: Duration) -> Vec<DueRoute> {
        ok(self.store.queues().due_routes(within).await)
    }

    pub(crate) async fn count_due(&self, queue: &str, limit: u64) -> u64 {
        ok(self.store.queues().count_due(&name(queue), limit).await)
    }

    pub(crate) async fn list_locks(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(Name, LockInfo)> {
        let after = after.map(name);
        let locks = self.store.locks();
        ok(locks.list_locks(after.as_ref(), limit).await)
    }

    pub(crate) fn workflows(&self) -> &dyn WorkflowStore {
        let workflows = self.store.workflows();
        workflows.expect(
            "the store should support workflows, because the case requires the power \
             Workflows",
        )
    }

    pub(crate) fn signals(&self) -> &dyn SignalStore {
        let signals = self.store.signals();
        signals.expect(
            "the store should support signals, because the case requires the power \
             Signals",
        )
    }

    /// Creates an open batch and returns its id.
    pub(crate) async fn batch(&self) -> BatchId {
        let batch = BatchId::new();
        let created = ok(self.workflows().create_batch(batch).await);
        assert_eq!(created, Changed::Changed);
        batch
    }

    /// Closes a batch. Fails the case if the batch is not open.
    pub(crate) async fn close(&self, batch: BatchId) {
        let closed = ok(self.workflows().close_batch(batch).await);
        assert_eq!(closed, BatchClosed::Closed);
    }

    /// Returns the record of a batch. Fails the case if the batch is not stored.
    pub(crate) async fn read_batch(&self, batch: BatchId) -> BatchRecord {
        let mut found = ok(self.workflows().batches(&[batch]).await);
        assert_eq!(found.len(), 1, "expected one answer per id");
        let found = found.remove(0);
        found.unwrap_or_else(|| panic!("the batch {batch} should be stored"))
    }

    /// Returns four numbers of jobs in a batch: all jobs, succeeded jobs, failed jobs, cancelled
    /// jobs.
    pub(crate) async fn counts(&self, batch: BatchId) -> [u64; 4] {
        let batch = self.read_batch(batch).await;
        [batch.total, batch.succeeded, batch.failed, batch.cancelled]
    }

    pub(crate) async fn parents_of(&self, job: JobId) -> Vec<Link> {
        let mut links = ok(self.workflows().parents_of(&[job]).await);
        assert_eq!(links.len(), 1, "expected one answer per id");
        links.remove(0)
    }

    /// Returns the states of all links from `job` to its parents.
    pub(crate) async fn links(&self, job: JobId) -> Vec<LinkState> {
        let links = self.parents_of(job).await;
        links.iter().map(|link| link.state).collect()
    }

    pub(crate) async fn deliver(&self, target: SignalTarget, payload: &str) -> Delivered {
        let signal = Signal::new(target, json(payload));
        ok(self.signals().deliver(&signal).await)
    }

    /// Delivers the signal with the name `key` and with this payload.
    pub(crate) async fn signal(&self, key: &str, payload: &str) -> Delivered {
        self.deliver(SignalTarget::Key(name(key)), payload).await
    }

    /// Fails the jobs that have waited for a signal beyond their deadline, and returns their ids.
    pub(crate) async fn expire(&self) -> Vec<JobId> {
        ok(self.signals().expire(1_000).await)
    }

    /// Cancels up to `limit` waiting jobs that have expired, and returns their ids.
    pub(crate) async fn expire_jobs(&self, limit: usize) -> Vec<JobId> {
        ok(self.jobs().expire_jobs(limit).await)
    }

    /// Returns the states of these jobs, in the same order. Fails the case if a job is not stored.
    pub(crate) async fn states<const N: usize>(&self, jobs: [JobId; N]) -> [JobState; N] {
        let found = self.get_all(&jobs).await;
        let states = found.into_iter().flatten().map(|job| job.state);
        let states: Vec<JobState> = states.collect();
        states.try_into().expect("every job should be stored")
    }

    /// Returns once the job has this state.
    pub(crate) async fn until(&self, job: JobId, state: JobState) {
        while self.state(job).await != state {
            tokio::task::yield_now().await;
        }
    }

    /// Claims all due jobs, releases the claims of all jobs except `job`, and returns the token of
    /// the claim of `job`. Fails the case if `job` is not due.
    pub(crate) async fn take_job(&self, job: JobId) -> ClaimToken {
        let mut taken = None;
        for claimed in self.claim(1_000).await {
            let token = claimed.claim.token;
            if token.job == job {
                taken = Some(token);
            } else {
                self.release(token).await;
            }
        }
        taken.unwrap_or_else(|| panic!("the job {job} should be due"))
    }

    /// Claims a job and settles the claim with `outcome`. Fails the case if the job is not due.
    pub(crate) async fn end(&self, job: JobId, outcome: Outcome) {
        let token = self.take_job(job).await;
        assert_eq!(self.settle(token, outcome).await, Fenced::Applied);
    }

    /// Tries to acquire the lock `lock` for the duration `ttl`. The owner is the label of this
    /// node.
    pub(crate) async fn acquire(&self, lock: &str, ttl: Duration) -> Acquired {
        let locks = self.store.locks();
        ok(locks.acquire(&name(lock), &self.label, ttl).await)
    }

    pub(crate) async fn inspect(&self, lock: &str) -> Option<LockInfo> {
        ok(self.store.locks().inspect(&name(lock)).await)
    }
}

/// Returns the ids of the claimed jobs, in the same order.
pub(crate) fn ids(claimed: &[ClaimedJob]) -> Vec<JobId> {
    claimed.iter().map(|job| job.claim.token.job).collect()
}

/// Returns the input of a claimed job. Fails the case if the claim has no input.
pub(crate) fn input(claimed: &ClaimedJob) -> &JobInput {
    let input = claimed.input.as_ref();
    input.unwrap_or_else(|| {
        panic!(
            "the claim of {} should contain the job's input",
            claimed.claim.token.job
        )
    })
}

/// Asserts that the store refused a call because the argument `field` was invalid.
pub(crate) fn assert_refused<T: std::fmt::Debug>(result: Result<T, StoreError>, field: &str) {
    let error = match result {
        Ok(answer) => panic!("expected a bad {field} to be refused, found it accepted: {answer:?}"),
        Err(error) => error,
    };
    assert_eq!(
        error.kind(),
        ratchet_core::StoreErrorKind::Invalid,
        "expected a bad {field} to be refused as invalid, found: {error}"
    );
    let named = error.invalid_input().map(ratchet_core::InvalidInput::field);
    assert_eq!(
        named,
        Some(field),
        "expected the error to name the refused field: {error}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_goes_on_to_new_cursors_and_ends() {
        let mut walk = Walk::new();
        assert_eq!(
            [walk.on(Some(1)), walk.on(Some(2)), walk.on(None)],
            [Some(1), Some(2), None]
        );
    }

    #[test]
    #[should_panic(expected = "the cursor 1 of the listing comes for the second time")]
    fn a_walk_that_comes_back_fails() {
        let mut walk = Walk::new();
        for cursor in [1, 2, 1] {
            walk.on(Some(cursor));
        }
    }
}
