//! Stores whose calls contend with a transaction that stays open, or are slow.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::memory::Fault;
use ratchet_core::model::{Fenced, ReclaimRequest, Settlement};
use ratchet_core::store::{CallPolicy, Layered, Store, StoreLayer};
use ratchet_core::{
    JobId, JobState, MemoryStore, NewJob, Ratchet, Result, StoreError, StoreErrorKind, time,
};
use tokio::time::sleep;

use crate::kit::{Scripted, Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// A store that cannot settle the jobs in `held`: a `settle` call with one of these jobs takes a
/// second and settles nothing.
#[derive(Clone, Debug)]
struct Contended {
    store: MemoryStore,
    held: Arc<Mutex<BTreeSet<JobId>>>,
    /// The error of such a call. If it is `None`, the call returns `Stale` for all its settlements.
    kind: Option<StoreErrorKind>,
    /// The number of settlements in such calls.
    refused: Arc<AtomicUsize>,
}

impl Contended {
    fn holds(&self, settlements: &[Settlement]) -> bool {
        let held = self.held.lock().unwrap();
        settlements.iter().any(|one| held.contains(&one.token.job))
    }
}

#[async_trait]
impl StoreLayer for Contended {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn call_policy(&self) -> CallPolicy {
        CallPolicy::within(20 * SECOND).retries(0)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        if self.holds(settlements) {
            sleep(SECOND).await;
            self.refused.fetch_add(settlements.len(), Ordering::SeqCst);
            return match self.kind {
                Some(kind) => Err(StoreError::new(kind, "settle")),
                None => Ok(vec![Fenced::Stale; settlements.len()]),
            };
        }
        self.inner().jobs().settle(settlements).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_contends_holds_up_no_other() {
    for kind in [StoreErrorKind::Contention, StoreErrorKind::Timeout] {
        two_ends_contend(kind).await;
    }
}

async fn two_ends_contend(kind: StoreErrorKind) {
    let world = World::new();
    let store = Contended {
        store: world.store.clone(),
        held: Arc::default(),
        kind: Some(kind),
        refused: Arc::default(),
    };
    let job = |name: &str| {
        world.job(name, |_| async {
            sleep(SECOND).await;
            Ok(())
        })
    };
    let mut ids = Vec::new();
    for number in 0..10 {
        let job = job(&format!("first {number}"));
        let job = if number < 5 {
            job.lane(&format!("{number}"))
        } else {
            job
        };
        ids.push(world.enqueue(job).await);
    }
    let held = [ids[0], ids[1]];
    store.held.lock().unwrap().extend(held);
    let builder = Ratchet::builder(Arc::new(Layered::new(store.clone()))).register::<Scripted>();
    let node = builder.state(world.scripts.clone()).seed(7).concurrency(16);
    let node = Started::new(node.build().unwrap());
    // The jobs `ids[2..]` are settled in one batch with the contending jobs. Some are in lanes.
    let began = time::monotonic();
    for id in &ids[2..] {
        assert_eq!(world.ended(*id).await.state, JobState::Succeeded);
    }
    assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
    // More jobs are enqueued later, while two settlements still contend.
    for number in 0..5 {
        let began = time::monotonic();
        let id = world
            .enqueue(job(&format!("later {number}")).lane("later"))
            .await;
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
        assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    }
    for id in held {
        assert_eq!(world.read(id).await.state, JobState::Running);
    }
    store.held.lock().unwrap().clear();
    for id in held {
        let job = world.ended(id).await;
        assert_eq!((job.state, job.claim_seq), (JobState::Succeeded, 1));
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_as_long_as_its_store_tries() {
    let fault = |operation: &str| match operation {
        "enqueue" => Fault::Delay(15 * SECOND),
        _ => Fault::None,
    };
    let store = Contended {
        store: MemoryStore::new().with_faults(fault),
        held: Arc::default(),
        kind: Some(StoreErrorKind::Contention),
        refused: Arc::default(),
    };
    let client = Ratchet::client(Arc::new(Layered::new(store)));
    let began = time::monotonic();
    client.enqueue(NewJob::new("kind", &1)).await.unwrap();
    assert_eq!(began.elapsed(), 15 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_can_fail_no_job_ends() {
    let world = World::new();
    let limit = ReclaimRequest::new().limit;
    let mut killed = BTreeSet::new();
    for number in 0..limit {
        let job = world.job(&number.to_string(), |_| async {
            sleep(3_600 * SECOND).await;
            Ok(())
        });
        killed.insert(world.enqueue(job).await);
    }
    let first = world.builder().concurrency(limit).build().unwrap();
    let first = Started::new(first);
    for id in &killed {
        world.until(*id, |job| job.state == JobState::Running).await;
    }
    first.kill().await;
    let store = Contended {
        store: world.store.clone(),
        held: Arc::new(Mutex::new(killed)),
        kind: None,
        refused: Arc::default(),
    };
    let builder = Ratchet::builder(Arc::new(Layered::new(store.clone()))).register::<Scripted>();
    let builder = builder.state(world.scripts.clone()).max_crashes(0);
    let _second = Started::new(builder.build().unwrap());
    // If each pass began with the first claim again, the node would try to settle all held claims
    // every second.
    sleep(60 * SECOND).await;
    let passes = store.refused.load(Ordering::SeqCst) / limit;
    assert!(
        (1..20).contains(&passes),
        "expected 1 to 19 passes in a minute, found {passes}"
    );
}
