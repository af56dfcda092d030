//! Calls that are blocked in the middle of a statement, after the statement took its snapshot,
//! while another connection changes something. `docs/races.md` lists the interleavings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_conformance::kit::{enqueue, job, name};
use ratchet_core::cluster::LeaderTimings;
use ratchet_core::model::{
    ActionOutcome, ClaimRequest, Detail, Enqueued, Fenced, Guarded, JobSelector, Outcome,
    PurgeRequest, Settlement,
};
use ratchet_core::store::{Acquired, Checked, JobStore, LockStore, NodeStore};
use ratchet_core::{
    Job, JobAction, JobContext, JobId, JobRecord, JobResult, JobState, Name, NewJob, NodeId,
    Ratchet, Requires, Selection,
};
use ratchet_store_postgres::PostgresStore;
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection, PgConnection};
use tokio::sync::{oneshot, watch};

use crate::server::{self, Schema};

/// The pause between two polls.
const MOMENT: Duration = Duration::from_millis(5);

/// A database clock that the test can hold. While it is held, every statement that reads the clock
/// blocks, after it has taken its snapshot.
struct Held(Arc<Schema>);

impl Held {
    async fn new(schema: Arc<Schema>) -> Self {
        let clock = "CREATE FUNCTION {schema}.held_now() RETURNS bigint VOLATILE LANGUAGE plpgsql
                     AS $$ BEGIN
                         PERFORM pg_advisory_xact_lock_shared(hashtext('{key}'));
                         RETURN (SELECT now_ms FROM {schema}.test_clock);
                     END $$;
                     CREATE VIEW {schema}.held_clock AS SELECT {schema}.held_now() AS now_ms";
        let clock = clock.replace("{key}", &schema.name);
        schema.execute(&clock).await.unwrap();
        Self(schema)
    }

    /// Opens a store whose statements wait while the clock is held.
    async fn store(&self) -> Checked<PostgresStore> {
        let builder = self.0.builder().application_name(&self.0.name);
        builder.clock_table("held_clock").connect().await.unwrap()
    }

    /// Opens a store whose statements never wait for the clock.
    async fn other(&self) -> Checked<PostgresStore> {
        let builder = self.0.builder().application_name(self.other_name());
        builder.clock_table("test_clock").connect().await.unwrap()
    }

    fn other_name(&self) -> String {
        format!("{}o", self.0.name)
    }

    async fn hold(&self) {
        self.advisory("pg_advisory_lock").await;
    }

    async fn let_go(&self) {
        self.advisory("pg_advisory_unlock").await;
    }

    async fn advisory(&self, function: &str) {
        let call = format!("SELECT {function}(hashtext('{}'))", self.0.name);
        self.0.execute(&call).await.unwrap();
    }

    /// Waits until a statement of the store from [`Held::store`] waits for the clock.
    async fn waits(&self) {
        self.waits_for(&self.0.name, "advisory").await;
    }

    /// Waits until a statement of the store from [`Held::other`] waits for a transaction of the
    /// first store.
    async fn other_waits(&self) {
        self.waits_for(&self.other_name(), "transactionid").await;
    }

    async fn waits_for(&self, application: &str, event: &str) {
        let waiting = format!(
            "SELECT FROM pg_stat_activity WHERE application_name = '{application}'
             AND wait_event_type = 'Lock' AND wait_event = '{event}'"
        );
        let seen = async {
            while self.0.rows(&waiting).await.unwrap().is_empty() {
                tokio::time::sleep(MOMENT).await;
            }
        };
        let seen = tokio::time::timeout(Duration::from_secs(20), seen).await;
        seen.expect("a statement waits");
    }

    async fn advance(&self, millis: u64) {
        let later = format!("UPDATE {{schema}}.test_clock SET now_ms = now_ms + {millis}");
        self.0.execute(&later).await.unwrap();
    }
}

async fn act(store: &Checked<PostgresStore>, job: JobId, action: JobAction) -> ActionOutcome {
    let by_id = JobSelector::Ids(vec![job]);
    store.act(&by_id, action).await.unwrap()[0].outcome
}

async fn end(store: &Checked<PostgresStore>, outcome: Outcome) -> JobId {
    let request = ClaimRequest::new(NodeId::new(), 1);
    let claimed = store.claim_next_batch(&request).await.unwrap();
    let token = claimed[0].claim.token;
    let end = [Settlement::new(token, outcome)];
    assert_eq!(store.settle(&end).await.unwrap(), [Fenced::Applied]);
    token.job
}

pub(crate) async fn a_claim_passes_over_what_has_changed_since_it_looked(schema: Arc<Schema>) {
    let held = Held::new(schema).await;
    let (claiming, other) = (held.store().await, held.other().await);
    // The change `move` moves jobs to the queue of this job.
    let elsewhere = enqueue(&other, job().queue("elsewhere")).await;
    let queue = Name::new("queue", "q").unwrap();
    let request = ClaimRequest::new(NodeId::new(), 10).queues(Selection::Only(vec![queue]));
    for change in ["cancel", "pause", "postpone", "move"] {
        let id = enqueue(&other, job().queue("q")).await;
        held.hold().await;
        let claim = tokio::spawn({
            let (claiming, request) = (claiming.clone(), request.clone());
            async move { claiming.claim_next_batch(&request).await }
        });
        held.waits().await;
        let state = match change {
            "cancel" => {
                let acted = act(&other, id, JobAction::Cancel).await;
                assert_eq!(acted, ActionOutcome::Became(JobState::Cancelled));
                JobState::Cancelled
            }
            "pause" => {
                let acted = act(&other, id, JobAction::Pause).await;
                assert_eq!(acted, ActionOutcome::Became(JobState::Paused));
                JobState::Paused
            }
            // Changes the row by SQL, as an operator might.
            "postpone" => {
                let later = "UPDATE {schema}.jobs SET run_at = run_at + 3600000 WHERE id = '{id}'";
                let later = later.replace("{id}", &id.to_string());
                held.0.execute(&later).await.unwrap();
                JobState::Pending
            }
            _ => {
                let moved = "UPDATE {schema}.jobs AS job SET route = other.route
                             FROM {schema}.jobs AS other
                             WHERE job.id = '{id}' AND other.id = '{elsewhere}'";
                let moved = moved.replace("{id}", &id.to_string());
                let moved = moved.replace("{elsewhere}", &elsewhere.to_string());
                held.0.execute(&moved).await.unwrap();
                JobState::Pending
            }
        };
        held.let_go().await;
        assert_eq!(claim.await.unwrap().unwrap(), [], "{change}");
        let stored = other
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .pop()
            .flatten()
            .unwrap();
        assert_eq!((stored.state, stored.claim_seq), (state, 0), "{change}");
    }
}

pub(crate) async fn a_cancel_waits_for_a_requeue_and_ends_what_it_brought_back(
    schema: Arc<Schema>,
) {
    let held = Held::new(schema).await;
    let (requeueing, other) = (held.store().await, held.other().await);
    let id = enqueue(&other, job().unique_key("u")).await;
    let error = "it failed".to_owned();
    assert_eq!(end(&other, Outcome::Failed { error }).await, id);
    held.hold().await;
    let requeue = tokio::spawn({
        let requeueing = requeueing.clone();
        async move { act(&requeueing, id, JobAction::Requeue).await }
    });
    held.waits().await;
    let cancel = tokio::spawn({
        let other = other.clone();
        async move { act(&other, id, JobAction::Cancel).await }
    });
    held.other_waits().await;
    held.let_go().await;
    let requeued = requeue.await.unwrap();
    assert_eq!(requeued, ActionOutcome::Became(JobState::Pending));
    let cancelled = cancel.await.unwrap();
    assert_eq!(cancelled, ActionOutcome::Became(JobState::Cancelled));
    // The cancel released the key.
    let next = [job().unique_key("u")];
    let enqueued = other.enqueue(&next).await.unwrap();
    assert_eq!(enqueued, [Enqueued::Created(next[0].id())]);
}

pub(crate) async fn an_enqueue_waits_for_a_requeue_and_finds_its_key_taken(schema: Arc<Schema>) {
    let held = Held::new(schema).await;
    let (requeueing, other) = (held.store().await, held.other().await);
    let id = enqueue(&other, job().unique_key("u")).await;
    let error = "it failed".to_owned();
    end(&other, Outcome::Failed { error }).await;
    held.hold().await;
    let requeue = tokio::spawn({
        let requeueing = requeueing.clone();
        async move { act(&requeueing, id, JobAction::Requeue).await }
    });
    held.waits().await;
    let enqueue = tokio::spawn({
        let other = other.clone();
        async move { other.enqueue(&[job().unique_key("u")]).await }
    });
    held.other_waits().await;
    held.let_go().await;
    let requeued = requeue.await.unwrap();
    assert_eq!(requeued, ActionOutcome::Became(JobState::Pending));
    assert_eq!(enqueue.await.unwrap().unwrap(), [Enqueued::Duplicate(id)]);
}

pub(crate) async fn a_key_stays_the_first_jobs_before_during_and_after_its_purge(
    schema: Arc<Schema>,
) {
    let held = Held::new(schema).await;
    let (purging, other) = (held.store().await, held.other().await);
    let again = || job().idempotency_key("k");
    let first = enqueue(&other, again()).await;
    end(&other, Outcome::Succeeded { result: None }).await;
    held.advance(3_600_000).await;
    let taken = [Enqueued::Duplicate(first)];
    // A transaction of the application that enqueues before the purge and commits after it.
    let mut application = PgConnection::connect(&held.0.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    assert_eq!(other.enqueue_in(&mut tx, &[again()]).await.unwrap(), taken);
    held.hold().await;
    let purge = tokio::spawn(async move {
        let old = PurgeRequest::new(JobState::Succeeded, Duration::from_secs(60), 10);
        purging.purge(&old).await
    });
    held.waits().await;
    assert_eq!(other.enqueue(&[again()]).await.unwrap(), taken);
    held.let_go().await;
    assert_eq!(purge.await.unwrap().unwrap(), Guarded::Done(1));
    assert_eq!(other.enqueue_in(&mut tx, &[again()]).await.unwrap(), taken);
    tx.commit().await.unwrap();
    assert_eq!(other.enqueue(&[again()]).await.unwrap(), taken);
    assert_eq!(other.get(&[first], Detail::Whole).await.unwrap(), [None]);
    let left = held.0.rows("SELECT FROM {schema}.jobs").await.unwrap();
    assert!(
        left.is_empty(),
        "expected no job to be left, found {}",
        left.len()
    );
}

pub(crate) async fn a_renewal_and_a_takeover_that_meet_at_the_expiry_agree(schema: Arc<Schema>) {
    let held = Held::new(schema).await;
    let (slow, other) = (held.store().await, held.other().await);
    let (a, b, ttl) = (name("a"), name("b"), Duration::from_secs(1));

    // A renewal that was sent in time but runs after the expiry.
    let lock = name("renewed late");
    let Acquired::Acquired { fence } = slow.acquire(&lock, &a, ttl).await.unwrap() else {
        panic!("expected the lock to be free");
    };
    held.hold().await;
    let renewal = tokio::spawn({
        let (slow, lock, a) = (slow.clone(), lock.clone(), a.clone());
        async move { slow.renew(&lock, &a, fence, ttl).await }
    });
    held.waits().await;
    held.advance(1_000).await;
    let taken = other.acquire(&lock, &b, ttl).await.unwrap();
    assert!(matches!(taken, Acquired::Acquired { fence: next } if next > fence));
    held.let_go().await;
    assert_eq!(renewal.await.unwrap().unwrap(), Fenced::Stale);

    // A takeover that begins when the lock is about to expire, and races with its renewal.
    let lock = name("renewed in time");
    let Acquired::Acquired { fence } = other.acquire(&lock, &a, ttl).await.unwrap() else {
        panic!("expected the lock to be free");
    };
    held.hold().await;
    let takeover = tokio::spawn({
        let (slow, lock, b) = (slow.clone(), lock.clone(), b.clone());
        async move { slow.acquire(&lock, &b, ttl).await }
    });
    held.waits().await;
    held.advance(999).await;
    let renewed = other.renew(&lock, &a, fence, ttl).await.unwrap();
    assert_eq!(renewed, Fenced::Applied);
    // Advances the clock past the expiry time that the takeover's snapshot still shows.
    held.advance(1).await;
    held.let_go().await;
    let takeover = takeover.await.unwrap().unwrap();
    assert!(matches!(takeover, Acquired::Held(by) if by.owner == a));
}

/// The state that the bodies of the `Hog` jobs share.
#[derive(Clone)]
struct Pool {
    pool: PgPool,
    taken: Arc<AtomicUsize>,
    give_back: watch::Receiver<bool>,
}

/// A job whose body holds a connection of the pool until the test lets it return the connection.
#[derive(Serialize, Deserialize)]
struct Hog;

impl Job for Hog {
    const KIND: &'static str = "hog";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let mut shared = ctx.state::<Pool>().clone();
        let _connection = shared.pool.acquire().await?;
        shared.taken.fetch_add(1, Ordering::SeqCst);
        let _ = shared.give_back.wait_for(|given| *given).await;
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Pool>()
    }
}

/// Returns whether the only node has renewed its lock and heartbeat at the current time.
async fn is_renewed(store: &Checked<PostgresStore>, ttl: Duration) -> bool {
    let lock = Name::new("lock", "leader/maintenance").unwrap();
    let holder = store
        .inspect(&lock)
        .await
        .unwrap()
        .and_then(|lock| lock.holder);
    let now = store.database_time().await.unwrap();
    let nodes = store.nodes().await.unwrap();
    holder.is_some_and(|holder| holder.remaining == ttl) && nodes[0].last_seen == now
}

fn has_succeeded(job: &JobRecord) -> bool {
    (job.state, job.claim_seq) == (JobState::Succeeded, 1)
}

pub(crate) async fn a_leader_whose_bodies_hold_every_connection_keeps_its_term(
    schema: Arc<Schema>,
) {
    let held = Held::new(schema).await;
    let other = held.other().await;
    let url = server::pooler().unwrap_or_else(|| held.0.url.clone());
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_millis(500));
    let pool = pool.connect(&url).await.unwrap();
    let store = PostgresStore::pool_builder(pool.clone()).schema(&held.0.name);
    let store = store.direct(&held.0.url).clock_table("test_clock");
    let store = store.connect().await.unwrap();
    let (give_back, given) = watch::channel(false);
    let taken = Arc::new(AtomicUsize::new(0));
    let ttl = Duration::from_secs(6);
    let node = Ratchet::builder(Arc::new(store))
        .register::<Hog>()
        .state(Pool {
            pool: pool.clone(),
            taken: Arc::clone(&taken),
            give_back: given,
        })
        .leader_timings(LeaderTimings::of_ttl(ttl))
        .heartbeat_interval(Duration::from_secs(1))
        .build()
        .unwrap();
    let hogs: [NewJob; 2] = [Hog.into_job(), Hog.into_job()];
    let ids = [hogs[0].id(), hogs[1].id()];
    other.enqueue(&hogs).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run_until(stopped).await }
    });
    let leadership = node.leadership("maintenance").unwrap();
    while taken.load(Ordering::SeqCst) < 2 || !leadership.is_leader() {
        tokio::time::sleep(MOMENT).await;
    }
    assert!(
        pool.try_acquire().is_none(),
        "expected the bodies to hold all connections"
    );
    let term = leadership.term();
    // Advances the clock by twice the TTL of the lock, in steps of half the TTL.
    for _ in 0..4 {
        held.advance(u64::try_from(ttl.as_millis()).unwrap() / 2)
            .await;
        while !is_renewed(&other, ttl).await {
            tokio::time::sleep(MOMENT).await;
        }
        assert!(leadership.is_leader());
    }
    assert_eq!(leadership.term(), term);
    assert_eq!(taken.load(Ordering::SeqCst), 2);
    give_back.send_replace(true);
    while !other
        .get(&ids, Detail::Whole)
        .await
        .unwrap()
        .iter()
        .flatten()
        .all(has_succeeded)
    {
        tokio::time::sleep(MOMENT).await;
    }
    drop(stop);
    running.await.unwrap().unwrap();
}
