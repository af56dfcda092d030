//! Commands that fail, get no reply, or are killed. The tests use fail points of the server, which
//! affect only the connections with the name of the test.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use ratchet_conformance::kit::{
    assert_kind, enqueue, exists, job, name, pause_of_queue, request_all,
};
use ratchet_core::cluster::{Election, ElectionOutcome, LeaderTimings, Wakeup};
use ratchet_core::model::{
    Detail, Fenced, Heartbeat, JobFilter, NodeStatus, Outcome, PageRequest, Settlement,
};
use ratchet_core::store::{
    Acquired, Changed, Checked, JobStore, LockStore, NodeStore, QueueStore, SharedStore, Store,
};
use ratchet_core::{JobId, JobState, Name, NodeId, StoreErrorKind};
use ratchet_store_mongo::{Builder, MongoStore};

use crate::open;
use crate::server::Space;

/// A fail point of the server: commands that fail or are delayed.
pub(crate) struct Fault {
    admin: mongodb::Database,
    turns: mongodb::Collection<Document>,
    name: String,
    mode: Document,
    data: Document,
    /// How often commands had hit the fail point before this test activated it.
    met: i64,
}

impl Fault {
    /// Creates a fail point that affects these commands, once.
    pub(crate) fn new(space: &Space, commands: &[&str]) -> Self {
        let name = format!("test {}", JobId::new());
        Self {
            admin: space.database.client().database("admin"),
            turns: space.database.collection("turns"),
            data: doc! { "failCommands": commands, "appName": &name },
            name,
            mode: doc! { "times": 1 },
            met: 0,
        }
    }

    /// Makes the fail point affect this many commands.
    fn times(mut self, times: i32) -> Self {
        self.mode = doc! { "times": times };
        self
    }

    /// Makes the fail point skip this many commands, and affect all later ones.
    pub(crate) fn behind(mut self, first: i32) -> Self {
        self.mode = doc! { "skip": first };
        self
    }

    pub(crate) fn always(self) -> Self {
        self.times(i32::MAX)
    }

    /// Makes the commands fail with this code, without an effect.
    pub(crate) fn code(mut self, code: i32) -> Self {
        self.data.insert("errorCode", code);
        self
    }

    /// Makes the server close the connection instead of replying.
    pub(crate) fn unheard(mut self) -> Self {
        self.data.insert("closeConnection", true);
        self
    }

    /// Makes the commands wait this long before they run.
    pub(crate) fn late(mut self, millis: i32) -> Self {
        self.data.insert("blockConnection", true);
        self.data.insert("blockTimeMS", millis);
        self
    }

    /// Makes the commands run, and then report a write concern error.
    fn unsafe_write(mut self, code: i32) -> Self {
        let error = doc! { "code": code, "codeName": "Late", "errmsg": "late" };
        self.data.insert("writeConcernError", error);
        self
    }

    /// Returns the name of the affected connections.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Activates the fail point. All tests share one fail point, so the tests take turns. A
    /// failed test keeps its turn for a minute at most.
    pub(crate) async fn set(mut self) -> Self {
        let turn = || {
            doc! { "$set": { "by": &self.name, "until": {
                "$add": [{ "$toLong": "$$NOW" }, 60_000_i64],
            } } }
        };
        let free = doc! { "_id": "turn", "until": { "$lt": i64::MAX } };
        self.turns
            .update_one(
                doc! { "_id": "turn" },
                doc! { "$setOnInsert": { "until": 0_i64 } },
            )
            .upsert(true)
            .await
            .unwrap();
        loop {
            let mut filter = free.clone();
            filter.insert("$expr", doc! { "$lt": ["$until", { "$toLong": "$$NOW" }] });
            let taken = self.turns.update_one(filter, vec![turn()]).await.unwrap();
            if taken.matched_count > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let set = doc! {
            "configureFailPoint": "failCommand",
            "mode": self.mode.clone(),
            "data": self.data.clone(),
        };
        let before = self.admin.run_command(set).await.unwrap();
        self.met = before.get_i32("count").unwrap().into();
        self
    }

    /// Waits until this many commands have hit the fail point.
    pub(crate) async fn met(&self, times: i64) {
        let wait = doc! {
            "waitForFailPoint": "failCommand",
            "timesEntered": self.met + times,
            "maxTimeMS": 30_000,
        };
        self.admin.run_command(wait).await.unwrap();
    }

    pub(crate) async fn lift(self) {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        self.admin.run_command(off).await.unwrap();
        let mine = doc! { "by": &self.name };
        let over = doc! { "$set": { "until": 0_i64 } };
        self.turns.update_one(mine, over).await.unwrap();
    }

    /// Returns a builder for a store whose connections the fail point affects.
    pub(crate) fn builder(&self, space: &Space) -> Builder {
        space.builder().application_name(&self.name)
    }

    pub(crate) async fn open(&self, space: &Space) -> Checked<MongoStore> {
        self.builder(space).connect().await.unwrap()
    }
}

const NETWORK: i32 = 6;
const NOT_PRIMARY: i32 = 10_107;
const KILLED: i32 = 11_601;
const CURSOR_KILLED: i32 = 237;

async fn state(store: &Checked<MongoStore>, id: JobId) -> JobState {
    store.get(&[id], Detail::Whole).await.unwrap()[0]
        .clone()
        .unwrap()
        .state
}

pub(crate) async fn a_lost_connection_is_repeated_and_leaves_one_job(space: Arc<Space>) {
    let plain = open(&space).await;
    let several = [job(), job().lane("l"), job().idempotency_key("i")];
    for jobs in [&[job()][..], &several] {
        for unheard in [true, false] {
            let fault = Fault::new(&space, &["insert"]).times(2);
            let fault = if unheard {
                fault.unheard()
            } else {
                fault.code(NETWORK)
            };
            let store = fault.open(&space).await;
            // Store the route first, so that the fail point affects the insert of the jobs.
            plain.enqueue(&[job()]).await.unwrap();
            let fault = fault.set().await;
            let jobs: Vec<_> = jobs.iter().map(ratchet_core::NewJob::another).collect();
            store.enqueue(&jobs).await.unwrap();
            fault.lift().await;
        }
    }
    let all = plain
        .list(&JobFilter::all(), &PageRequest::first(100))
        .await;
    // Two single jobs, three jobs of the first batch, two jobs of the second batch, whose third job
    // has a used idempotency key, and the four jobs that `plain` stored in between.
    assert_eq!(all.unwrap().jobs.len(), 2 + 3 + 2 + 4);
}

pub(crate) async fn an_election_is_waited_for(space: Arc<Space>) {
    let fault = Fault::new(&space, &["update", "aggregate", "findAndModify"]);
    let fault = fault.code(NOT_PRIMARY).times(3);
    let store = fault.open(&space).await;
    let id = enqueue(&store, job()).await;
    let fault = fault.set().await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed[0].claim.token.job, id);
    let token = claimed[0].claim.token;
    fault.lift().await;
    let done = Settlement::new(token, Outcome::Succeeded { result: None });
    assert_eq!(store.settle(&[done]).await.unwrap(), [Fenced::Applied]);
    assert_eq!(state(&store, id).await, JobState::Succeeded);
}

pub(crate) async fn an_unheard_commit_is_committed_once(space: Arc<Space>) {
    let fault = Fault::new(&space, &["commitTransaction"])
        .times(2)
        .unheard();
    let store = fault.open(&space).await;
    let fault = fault.set().await;
    let jobs = [job().lane("l"), job().lane("l"), job().idempotency_key("i")];
    let created = store.enqueue(&jobs).await.unwrap();
    fault.lift().await;
    let again = store.enqueue(&jobs).await.unwrap();
    assert_eq!(again, created);
    let all = store.list(&JobFilter::all(), &PageRequest::first(10)).await;
    assert_eq!(all.unwrap().jobs.len(), 3);
}

pub(crate) async fn a_claim_whose_answer_is_lost_is_not_made_again(space: Arc<Space>) {
    let fault = Fault::new(&space, &["update"]).unheard();
    let store = fault.open(&space).await;
    store.enqueue(&[job(), job()]).await.unwrap();
    let fault = fault.set().await;
    let one = request_all().limit(1);
    let error = store.claim_next_batch(&one).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    fault.lift().await;
    let running = JobFilter::all().state(JobState::Running);
    let running = store.list(&running, &PageRequest::first(10)).await.unwrap();
    assert!(
        running.jobs.len() <= 1,
        "expected at most one claim, because a lost reply must not \
         repeat the call"
    );
}

pub(crate) async fn a_killed_operation_is_a_timeout(space: Arc<Space>) {
    let fault = Fault::new(&space, &["find", "aggregate", "update", "insert"]);
    let fault = fault.code(KILLED).times(4);
    let store = fault.open(&space).await;
    let id = enqueue(&store, job()).await;
    let fault = fault.set().await;
    let errors = [
        store.get(&[id], Detail::Whole).await.unwrap_err(),
        store.enqueue(&[job()]).await.unwrap_err(),
        store.claim_next_batch(&request_all()).await.unwrap_err(),
        Store::queues(&store).queues().await.unwrap_err(),
    ];
    for error in errors {
        assert_kind(&error, StoreErrorKind::Timeout);
    }
    fault.lift().await;
    assert!(exists(&store, id).await);
}

pub(crate) async fn a_killed_cursor_is_opened_again(space: Arc<Space>) {
    let fault = Fault::new(&space, &["getMore"]).code(CURSOR_KILLED);
    let store = fault
        .builder(&space)
        .wakeups(false)
        .connect()
        .await
        .unwrap();
    // The jobs are too large for one reply.
    let payload = "x".repeat(250 * 1024);
    let jobs: Vec<_> = (0..70)
        .map(|_| ratchet_core::NewJob::new("kind", &payload))
        .collect();
    store.enqueue(&jobs).await.unwrap();
    let fault = fault.set().await;
    let page = store
        .list(&JobFilter::all(), &PageRequest::first(100))
        .await;
    assert_eq!(page.unwrap().jobs.len(), 70);
    fault.lift().await;
}

pub(crate) async fn a_silent_server_is_a_timeout(space: Arc<Space>) {
    let fault = Fault::new(&space, &["insert"]).late(5_000);
    // Create the collections first, because creating them may take longer than the deadline below.
    fault.builder(&space).connect().await.unwrap();
    let builder = fault.builder(&space).deadline(Duration::from_secs(3));
    let store = builder.connect().await.unwrap();
    enqueue(&store, job()).await;
    let fault = fault.set().await;
    let late = job();
    let error = store
        .enqueue(std::slice::from_ref(&late))
        .await
        .unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    fault.lift().await;
    // The store still works, and the call can be repeated.
    store.enqueue(std::slice::from_ref(&late)).await.unwrap();
    assert!(exists(&store, late.id()).await);
}

pub(crate) async fn a_majority_that_does_not_answer_is_a_timeout(space: Arc<Space>) {
    let fault = Fault::new(&space, &["insert", "update"])
        .unsafe_write(64)
        .times(2);
    let store = fault.open(&space).await;
    let id = enqueue(&store, job()).await;
    let token = store.claim_next_batch(&request_all()).await.unwrap()[0]
        .claim
        .token;
    let fault = fault.set().await;
    let error = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    let done = Settlement::new(token, Outcome::Succeeded { result: None });
    let error = store.settle(std::slice::from_ref(&done)).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    fault.lift().await;
    // The settlement took effect although its call failed: a repeated call reports it as applied.
    assert_eq!(store.settle(&[done]).await.unwrap(), [Fenced::Applied]);
    assert_eq!(state(&store, id).await, JobState::Succeeded);
}

/// Occupies the only connection of the pool with a write that waits for a transaction of another
/// client.
pub(crate) async fn a_pool_taken_by_others_leaves_heartbeats_locks_and_elections(
    space: Arc<Space>,
) {
    let builder = space.builder().max_connections(1);
    let store = builder
        .deadline(Duration::from_secs(120))
        .connect()
        .await
        .unwrap();
    let mut session = space.database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let pauses = space.of_majority("pauses");
    let paused = pauses.insert_one(doc! { "_id": { "scope": 0, "name": "q" } });
    paused.session(&mut session).await.unwrap();
    let waits = {
        let store = store.clone();
        tokio::spawn(async move { store.pause(&pause_of_queue("q")).await.unwrap() })
    };
    // Once a call gets no connection, the write occupies the only connection.
    let some_time = Duration::from_millis(500);
    while tokio::time::timeout(some_time, enqueue(&store, job()))
        .await
        .is_ok()
    {}

    let node = NodeId::new();
    let second = Duration::from_secs(1);
    let beat = Heartbeat::new(node, name("n"), NodeStatus::Active, second);
    store.heartbeat(&beat).await.unwrap();
    store.database_time().await.unwrap();
    let (lock, owner) = (name("l"), name("o"));
    let acquired = store.acquire(&lock, &owner, 60 * second).await.unwrap();
    let Acquired::Acquired { fence } = acquired else {
        panic!("{acquired:?}");
    };
    let renewed = store.renew(&lock, &owner, fence, 60 * second).await;
    assert_eq!(renewed.unwrap(), Fenced::Applied);
    let released = store.release(&lock, &owner, fence).await;
    assert_eq!(released.unwrap(), Fenced::Applied);
    let shared: SharedStore = Arc::new(store.clone());
    let mut election = Election::new(shared, &name("role"), LeaderTimings::default()).unwrap();
    let elected = election.turn(node).await.unwrap();
    assert!(
        matches!(elected, ElectionOutcome::Elected(_)),
        "{elected:?}"
    );
    let again = election.turn(node).await.unwrap();
    assert!(
        matches!(again, ElectionOutcome::AlreadyLeader(_)),
        "{again:?}"
    );
    election.resign().await.unwrap();

    assert!(
        !waits.is_finished(),
        "expected the other call to wait for the connection"
    );
    session.abort_transaction().await.unwrap();
    assert_eq!(waits.await.unwrap(), Changed::Changed);
    enqueue(&store, job()).await;
}

pub(crate) async fn wakeups_survive_a_lost_stream(space: Arc<Space>) {
    let fault = Fault::new(&space, &["getMore"])
        .code(CURSOR_KILLED)
        .times(3);
    let store = fault.open(&space).await;
    let coordinator = store.coordinator().unwrap();
    let mut wakeups = coordinator.subscribe();
    let queue = Name::new("queue", "q").unwrap();
    // The stream does not contain wakeups that were sent before it was opened. So send wakeups
    // until one arrives.
    loop {
        coordinator.notify(Wakeup::queue(queue.clone())).await;
        let first = tokio::time::timeout(Duration::from_millis(500), wakeups.next());
        if let Ok(first) = first.await {
            assert_eq!(first.queue, Some(queue.clone()));
            break;
        }
    }
    let fault = fault.set().await;
    // Whatever happens to the stream, either each wakeup arrives, or a wakeup for all queues
    // arrives instead.
    for _ in 0..5 {
        coordinator.notify(Wakeup::queue(queue.clone())).await;
        let wakeup = wakeups.next().await;
        assert!(wakeup.queue.is_none_or(|named| named == queue));
    }
    fault.lift().await;
}
