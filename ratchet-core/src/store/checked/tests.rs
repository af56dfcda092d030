mod gather;

use std::sync::Mutex;

use super::*;
use crate::error::InvalidInput;
use crate::memory::{Fault, MemoryStore};
use crate::model::{
    ArchiveFilter, ArchivePurge, BatchPurge, ClaimRequest, Condition, Detail, Guard, JobFilter,
    JobSelector, Outcome, PageRequest, Parent, PauseRequest, PauseScope, PurgeRequest, RateRequest,
    ReclaimRequest, RecurringClaimRequest, RecurringFiring, RecurringToken, Report, ReportKind,
    RetireRecurring, Settlement, Signal, SignalTarget,
};
use crate::{
    BatchId, ClaimToken, Fence, Incarnation, JobAction, JobId, JobState, Json, Name, NodeId, Rate,
};

const CONTENTION: StoreErrorKind = StoreErrorKind::Contention;

type Calls = Arc<Mutex<Vec<&'static str>>>;

/// A memory store with its own call policy. It counts the calls that the door or a client dropped
/// at their deadline.
#[derive(Debug)]
struct Probe {
    memory: MemoryStore,
    policy: CallPolicy,
    timed_out: Arc<Mutex<u32>>,
}

impl Store for Probe {
    fn info(&self) -> StoreInfo {
        self.memory.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        Store::jobs(&self.memory)
    }

    fn queues(&self) -> &dyn QueueStore {
        Store::queues(&self.memory)
    }

    fn nodes(&self) -> &dyn NodeStore {
        Store::nodes(&self.memory)
    }

    fn locks(&self) -> &dyn LockStore {
        Store::locks(&self.memory)
    }

    fn versions(&self) -> &dyn VersionStore {
        Store::versions(&self.memory)
    }

    fn call_policy(&self) -> CallPolicy {
        self.policy
    }

    fn lacks(&self, feature: StoreFeature) -> Option<&'static str> {
        (feature == StoreFeature::Lanes).then_some("its server is too old")
    }

    fn call_timed_out(&self) {
        *self.timed_out.lock().unwrap() += 1;
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        Store::workflows(&self.memory)
    }
}

/// Returns a checked store whose inner store answers each call with `fault`, and the list of the
/// calls that reach the inner store.
fn failing(policy: CallPolicy, fault: Fault) -> (Checked<Probe>, Calls) {
    let calls = Calls::default();
    let seen = Arc::clone(&calls);
    let memory = MemoryStore::new().with_faults(move |operation| {
        seen.lock().unwrap().push(operation);
        fault
    });
    let probe = Probe {
        memory,
        policy,
        timed_out: Arc::default(),
    };
    (Checked::new(probe), calls)
}

/// Returns a checked store, and the list of the calls that reach its inner store. It is for tests
/// in which no call may reach the inner store.
fn unseen() -> (Checked<MemoryStore>, Calls) {
    let calls = Calls::default();
    let seen = Arc::clone(&calls);
    let memory = MemoryStore::new().with_faults(move |operation| {
        seen.lock().unwrap().push(operation);
        Fault::None
    });
    (Checked::new(memory), calls)
}

fn token() -> ClaimToken {
    ClaimToken::new(JobId::new(), 1, Some(NodeId::new()), time::from_millis(0))
}

fn name(text: &str) -> Name {
    Name::new("name", text).unwrap()
}

#[track_caller]
fn assert_refused<T: fmt::Debug>(answer: Result<T>, operation: &str, field: &str) {
    let error = answer.unwrap_err();
    let refused = error.invalid_input().map(InvalidInput::field);
    assert_eq!((error.operation(), refused), (operation, Some(field)));
}

#[tokio::test]
async fn what_is_refused_reaches_no_store() {
    let (store, calls) = unseen();
    let many = crate::limits::MAX_BATCH + 1;
    let empty_queue = NewJob::new("kind", &1).queue("");
    assert_refused(store.enqueue(&[empty_queue]).await, "enqueue", "queue");
    let request = ClaimRequest::new(NodeId::new(), many);
    assert_refused(
        store.claim_next_batch(&request).await,
        "claim_next_batch",
        "limit",
    );
    assert_refused(
        store.claim_next_batch_optimized(&request).await,
        "claim_next_batch_optimized",
        "limit",
    );
    let tokens = vec![token(); many];
    assert_refused(store.load_inputs(&tokens).await, "load_inputs", "tokens");
    let ends = vec![Settlement::new(token(), Outcome::Cancelled); many];
    assert_refused(store.settle(&ends).await, "settle", "settlements");
    let told = vec![Report::new(token(), ReportKind::Alive); many];
    assert_refused(store.report(&told).await, "report", "reports");
    let ids = vec![JobId::new(); many];
    assert_refused(
        store
            .act(&JobSelector::Ids(ids.clone()), JobAction::Cancel)
            .await,
        "act",
        "ids",
    );
    assert_refused(store.get(&ids, Detail::Whole).await, "get", "ids");
    let acted = store.act_on(&ids, &JobState::ALL, JobAction::Cancel).await;
    assert_refused(acted, "act", "ids");
    let none = PageRequest::first(0);
    assert_refused(store.list(&JobFilter::all(), &none).await, "list", "limit");
    assert_refused(
        store.select(&JobFilter::all(), &none).await,
        "list",
        "limit",
    );
    let beyond = PageRequest::first(many + 1);
    let selected = store.select(&JobFilter::all(), &beyond).await;
    assert_refused(selected, "list", "limit");
    let old = PurgeRequest::new(JobState::Running, Duration::ZERO, 1);
    assert_refused(store.purge(&old).await, "purge", "state");
    assert_refused(
        ArchiveStore::archive(&store, &old).await,
        "archive",
        "state",
    );
    assert_refused(store.archived(&ids).await, "archived", "ids");
    let (lock, owner) = (name("lock"), name("owner"));
    let acquired = store.acquire(&lock, &owner, Duration::ZERO).await;
    assert_refused(acquired, "acquire", "ttl");
    assert_refused(store.list_locks(None, 0).await, "list_locks", "limit");
    let pause = || PauseRequest::new(PauseScope::Kind(name("kind")));
    assert_refused(store.pause(&pause().by("")).await, "pause", "by");
    let long = "x".repeat(crate::limits::MAX_REASON_BYTES + 1);
    assert_refused(store.pause(&pause().reason(long)).await, "pause", "reason");
    let names = vec![name("namespace"); many];
    assert_refused(
        VersionStore::versions(&store, &names).await,
        "versions",
        "namespaces",
    );
    assert_refused(store.definitions(None, 0).await, "definitions", "limit");
    let rate = Rate::new(1, Duration::from_secs(1));
    let rates = vec![RateRequest::new(name("key"), rate); many];
    assert_refused(store.take(&rates).await, "take", "requests");
    assert_refused(store.forget_idle(0).await, "forget_idle", "limit");
    let separated = store.separate_queues(0).await;
    assert_refused(separated, "separate_queues", "limit");
    let batches = vec![BatchId::new(); many];
    assert_refused(store.batches(&batches).await, "batches", "ids");
    assert_refused(
        store.recent_batches(0, None).await,
        "recent_batches",
        "limit",
    );
    assert_refused(store.parents_of(&ids).await, "parents_of", "ids");
    assert_refused(store.expire(0).await, "expire", "limit");
    assert_eq!(*calls.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn limits_of_passes_and_pages_are_checked() {
    let (store, calls) = unseen();
    let request = ReclaimRequest::new().limit(0);
    assert_refused(store.reclaim(&request).await, "reclaim", "limit");
    let none = PageRequest::first(0);
    let listed = store.list_archived(&ArchiveFilter::all(), &none).await;
    assert_refused(listed, "list_archived", "limit");
    let request = ArchivePurge::new(Duration::ZERO, 0);
    assert_refused(
        store.purge_archive(&request).await,
        "purge_archive",
        "limit",
    );
    let request = BatchPurge::new(Duration::ZERO, 0);
    assert_refused(
        store.purge_batches(&request).await,
        "purge_batches",
        "limit",
    );
    let children = store.children_of(Parent::Job(JobId::new()), 0, None).await;
    assert_refused(children, "children_of", "limit");
    let request = RecurringClaimRequest::new(NodeId::new(), 0);
    let due = store.claim_due_recurring(&request).await;
    assert_refused(due, "claim_due_recurring", "limit");
    let (lock, owner) = (name("lock"), name("owner"));
    let renewed = store.renew(&lock, &owner, Fence(1), Duration::ZERO).await;
    assert_refused(renewed, "renew", "ttl");
    assert_eq!(*calls.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn what_is_too_large_reaches_no_store() {
    let (store, calls) = unseen();
    let many = crate::limits::MAX_BATCH + 1;
    let guard = Guard {
        lock: name("lock"),
        owner: name("owner"),
        fence: Fence(1),
    };
    let request = RetireRecurring::new(vec![name("known"); many], NodeId::new(), guard);
    assert_refused(store.retire(&request).await, "retire", "known");
    let text = "x".repeat(crate::limits::MAX_RESULT_BYTES);
    let signal = Signal::new(
        SignalTarget::Job(JobId::new()),
        Json::encode("text", &text).unwrap(),
    );
    assert_refused(store.deliver(&signal).await, "deliver", "payload");
    let firing = RecurringFiring {
        token: RecurringToken {
            name: name("recurring"),
            incarnation: Incarnation::new(),
            revision: 1,
        },
        jobs: vec![NewJob::new("kind", &1).queue("")],
        next_fire: None,
        missed: false,
    };
    assert_refused(store.fire(&[firing]).await, "fire", "queue");
    assert_eq!(*calls.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn what_needs_no_store_reaches_none() {
    let (store, calls) = unseen();
    assert!(store.enqueue(&[]).await.unwrap().is_empty());
    let request = ClaimRequest::new(NodeId::new(), 0);
    assert!(store.claim_next_batch(&request).await.unwrap().is_empty());
    let lean = store.claim_next_batch_optimized(&request).await;
    assert!(lean.unwrap().is_empty());
    assert!(store.load_inputs(&[]).await.unwrap().is_empty());
    assert!(store.settle(&[]).await.unwrap().is_empty());
    assert!(store.report(&[]).await.unwrap().is_empty());
    let nothing = JobSelector::Ids(Vec::new());
    assert!(
        store
            .act(&nothing, JobAction::Cancel)
            .await
            .unwrap()
            .is_empty()
    );
    let acted = store.act_on(&[], &JobState::ALL, JobAction::Cancel).await;
    assert!(acted.unwrap().is_empty());
    assert!(store.get(&[], Detail::Whole).await.unwrap().is_empty());
    assert!(store.archived(&[]).await.unwrap().is_empty());
    assert!(
        VersionStore::versions(&store, &[])
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(store.count_due(&name("queue"), 0).await.unwrap(), 0);
    assert!(store.fire(&[]).await.unwrap().is_empty());
    assert!(store.take(&[]).await.unwrap().is_empty());
    assert!(store.batches(&[]).await.unwrap().is_empty());
    assert!(store.parents_of(&[]).await.unwrap().is_empty());
    assert_eq!(*calls.lock().unwrap(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_contended_call_is_repeated_as_often_as_the_store_says() {
    let policy = CallPolicy::default().retries(3);
    let (store, calls) = failing(policy, Fault::Failure(CONTENTION));
    let error = store.get(&[JobId::new()], Detail::Whole).await.unwrap_err();
    assert_eq!(error.kind(), CONTENTION);
    assert_eq!(*calls.lock().unwrap(), ["get"; 4]);
}

#[tokio::test(start_paused = true)]
async fn other_failures_are_returned_at_once() {
    for fault in [
        Fault::Failure(StoreErrorKind::Timeout),
        Fault::ErrorBeforeCommit,
        Fault::ErrorAfterCommit,
    ] {
        let (store, calls) = failing(CallPolicy::default(), fault);
        store.get(&[JobId::new()], Detail::Whole).await.unwrap_err();
        assert_eq!(*calls.lock().unwrap(), ["get"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_can_make_in_parts_is_repeated_for_a_tenth_of_the_deadline() {
    let policy = CallPolicy::default().retries(u32::MAX);
    let ends = [token(), token()].map(|token| Settlement::new(token, Outcome::Cancelled));
    let (store, _) = failing(policy, Fault::Failure(CONTENTION));
    let began = time::monotonic();
    let error = store.settle(&ends).await.unwrap_err();
    assert_eq!(error.kind(), CONTENTION);
    let tenth = policy.deadline / 10;
    let took = began.elapsed();
    assert!(tenth <= took && took < tenth * 2, "{took:?}");
    // A settlement of one claim cannot be split, so it is repeated until the deadline. The error is
    // `Timeout`, unless the last try ends in the same millisecond as the deadline.
    let began = time::monotonic();
    store.settle(&ends[..1]).await.unwrap_err();
    assert_eq!(began.elapsed(), policy.deadline);
}

#[tokio::test(start_paused = true)]
async fn claims_and_purges_are_repeated_briefly_and_not_after_they_took_effect() {
    let policy = CallPolicy::default().retries(u32::MAX);
    let request = ClaimRequest::new(NodeId::new(), 10);
    let old = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 10);
    let (store, _) = failing(policy, Fault::Failure(CONTENTION));
    let began = time::monotonic();
    store.claim_next_batch(&request).await.unwrap_err();
    store
        .claim_next_batch_optimized(&request)
        .await
        .unwrap_err();
    store.purge(&old).await.unwrap_err();
    let took = began.elapsed();
    let brief = policy.brief_patience();
    assert!(brief * 3 <= took && took < brief * 4, "{took:?}");
    let (store, calls) = failing(policy, Fault::ErrorAfterCommit);
    store.claim_next_batch(&request).await.unwrap_err();
    store.purge(&old).await.unwrap_err();
    assert_eq!(*calls.lock().unwrap(), ["claim_next_batch", "purge"]);
}

#[test]
fn a_call_that_ends_in_time_leaves_a_tenth_of_the_deadline() {
    let began = time::monotonic();
    let policy = CallPolicy::within(Duration::from_secs(10));
    let last_try = began + policy.brief_patience();
    let left = began + policy.deadline - policy.timely_end(last_try);
    assert_eq!(left, Duration::from_secs(1));
    assert!(CallPolicy::within(Duration::MAX).timely_end(began) > began);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_the_deadline_and_the_store_is_told() {
    let policy = CallPolicy::within(Duration::from_secs(3));
    let (store, _) = failing(policy, Fault::Delay(Duration::from_secs(60)));
    let began = time::monotonic();
    let error = store.get(&[JobId::new()], Detail::Whole).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "get: timed out: the store did not answer within 3s"
    );
    assert_eq!(began.elapsed(), policy.deadline);
    assert_eq!(*store.timed_out.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_told_of_a_call_that_the_engine_drops_sooner() {
    let policy = CallPolicy::within(Duration::from_secs(3));
    let (store, _) = failing(policy, Fault::Delay(Duration::from_secs(60)));
    let calls = crate::client::Calls::new(Arc::new(store.clone()), Duration::from_secs(1));
    let read = calls.call("nodes", |store| store.nodes().nodes());
    assert_eq!(read.await.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert_eq!(*store.timed_out.lock().unwrap(), 1);
    // If the caller sets a deadline shorter than the usual one, a timeout is not reported to the
    // store.
    let moment = Duration::from_millis(100);
    let read = calls.call_within(moment, "nodes", |store| store.nodes().nodes());
    assert_eq!(read.await.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert_eq!(*store.timed_out.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_part_that_is_not_there_is_neither_shown_nor_called() {
    let (store, calls) = failing(CallPolicy::default(), Fault::None);
    assert!(Store::workflows(&store).is_some());
    assert!(Store::signals(&store).is_none());
    let target = SignalTarget::Job(JobId::new());
    let signal = Signal::new(target, Json::null());
    let error = store.deliver(&signal).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let waits = NewJob::new("kind", &1).wait_for("signal", Duration::from_secs(1));
    assert_refused(store.enqueue(&[waits]).await, "enqueue", "signal");
    let in_lane = NewJob::new("kind", &1).lane("l");
    assert_refused(store.enqueue(&[in_lane]).await, "enqueue", "lane");
    assert!(Store::lacks(&store, StoreFeature::Lanes).is_some());
    assert_eq!(*calls.lock().unwrap(), [""; 0]);
    let child = NewJob::new("kind", &1).after(JobId::new(), Condition::Ended);
    // The door accepts the job; the store then refuses it, because its parent does not exist.
    assert_refused(store.enqueue(&[child]).await, "enqueue", "parent");
    assert_eq!(*calls.lock().unwrap(), ["enqueue"]);
}

#[test]
fn a_store_gets_one_door() {
    let store = Checked::shared(Arc::new(MemoryStore::new()));
    assert!(store.is_checked() && !MemoryStore::new().is_checked());
    assert!(Arc::ptr_eq(&store, &Checked::shared(Arc::clone(&store))));
}
