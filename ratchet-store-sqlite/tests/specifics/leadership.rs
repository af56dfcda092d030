//! Leadership while job bodies keep the file busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratchet_conformance::kit::job;
use ratchet_core::cluster::{Election, ElectionOutcome, LeaderTimings};
use ratchet_core::memory::ManualClock;
use ratchet_core::model::Detail;
use ratchet_core::store::{Checked, JobStore, LockStore, NodeStore};
use ratchet_core::{
    Job, JobContext, JobResult, JobState, Name, NewJob, NodeId, Ratchet, Requires, SharedStore,
    time,
};
use ratchet_store_sqlite::SqliteStore;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::TempDatabase;

const TTL: Duration = Duration::from_secs(6);

/// The state that the job bodies share.
struct Busy {
    store: Checked<SqliteStore>,
    enqueued: AtomicU64,
    enough: AtomicBool,
}

/// A job that writes to the file without a pause.
#[derive(Serialize, Deserialize)]
struct Flood;

impl Job for Flood {
    const KIND: &'static str = "flood";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let busy = ctx.state::<Arc<Busy>>();
        while !busy.enough.load(Ordering::SeqCst) {
            let batch: Vec<NewJob> = (0..50).map(|_| job().queue("flooded")).collect();
            busy.store.enqueue(&batch).await?;
            busy.enqueued.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Busy>>()
    }
}

/// Waits until the condition is true.
async fn until(is: impl AsyncFn() -> bool) {
    let so = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let so = tokio::time::timeout(Duration::from_secs(60), so).await;
    so.expect("the condition should become true within 60 s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_bodies_keep_the_writer_busy_keeps_its_term() {
    let db = TempDatabase::new();
    let clock = ManualClock::new(time::from_millis(1_790_000_000_000));
    let open = async || {
        let builder = SqliteStore::builder(db.path()).manual_clock(clock.clone());
        builder.connect().await.unwrap()
    };
    let (store, other) = (open().await, open().await);
    let busy = Arc::new(Busy {
        store: store.clone(),
        enqueued: AtomicU64::new(0),
        enough: AtomicBool::new(false),
    });
    let node = Ratchet::builder(Arc::new(store))
        .register::<Flood>()
        .state(Arc::clone(&busy))
        .queues(["floods"])
        .leader_timings(LeaderTimings::of_ttl(TTL))
        .heartbeat_interval(Duration::from_secs(1))
        .build()
        .unwrap();
    let floods: Vec<NewJob> = (0..16).map(|_| Flood.into_job().queue("floods")).collect();
    other.enqueue(&floods).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run_until(stopped).await }
    });
    let leadership = node.leadership("maintenance").unwrap();
    until(async || leadership.is_leader() && busy.enqueued.load(Ordering::SeqCst) >= 16).await;
    let term = leadership.term();
    // In total, the clock moves by twice the TTL, after which another node could acquire the lock.
    for _ in 0..4 {
        clock.advance(TTL / 2);
        let before = busy.enqueued.load(Ordering::SeqCst);
        let lock = Name::new("lock", "leader/maintenance").unwrap();
        until(async || {
            let lock = other.inspect(&lock).await.unwrap();
            let renewed = lock.and_then(|lock| lock.holder);
            let renewed = renewed.is_some_and(|holder| holder.remaining == TTL);
            let now = other.database_time().await.unwrap();
            renewed && other.nodes().await.unwrap()[0].last_seen == now
        })
        .await;
        until(async || busy.enqueued.load(Ordering::SeqCst) > before + 16).await;
        assert!(leadership.is_leader());
    }
    assert_eq!(leadership.term(), term);
    busy.enough.store(true, Ordering::SeqCst);
    let ids: Vec<_> = floods.iter().map(NewJob::id).collect();
    until(async || {
        let jobs = other.get(&ids, Detail::Whole).await.unwrap();
        jobs.iter()
            .flatten()
            .all(|job| job.state == JobState::Succeeded && job.claim_seq == 1)
    })
    .await;
    drop(stop);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn while_an_application_keeps_the_file_locked_no_node_takes_over() {
    let db = TempDatabase::new();
    let role = Name::new("role", "pricing").unwrap();
    let mut candidates = Vec::new();
    for _ in 0..2 {
        let store: SharedStore = Arc::new(db.open_impatient().await);
        // The TTL is an hour, so that the test does not depend on the speed of the machine.
        let timings = LeaderTimings::of_ttl(Duration::from_secs(3_600));
        let election = Election::new(store, &role, timings).unwrap();
        candidates.push((election, NodeId::new()));
    }
    let (mut leader, id) = candidates.remove(0);
    let (mut standby, standby_id) = candidates.remove(0);
    let ElectionOutcome::Elected(term) = leader.turn(id).await.unwrap() else {
        panic!("the only candidate should be elected");
    };
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    leader.turn(id).await.unwrap_err();
    // The leader cannot renew its lock, and the standby still reads that the leader holds it.
    let seen = standby.turn(standby_id).await.unwrap();
    assert!(matches!(seen, ElectionOutcome::OtherLeader { .. }));
    assert!(!standby.leadership().is_leader());
    other.execute_batch("COMMIT").unwrap();
    let again = leader.turn(id).await.unwrap();
    assert_eq!(again, ElectionOutcome::AlreadyLeader(term));
}
