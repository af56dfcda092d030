//! Signals that do not come, where the store has trouble.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::memory::Fault;
use ratchet_core::model::{Delivered, Signal};
use ratchet_core::store::{
    JobStore, LockStore, NodeStore, QueueStore, SignalStore, Store, StoreInfo, VersionStore,
};
use ratchet_core::{JobId, JobState, MemoryStore, Ratchet, Result, StoreError, StoreErrorKind};
use tokio::time::{sleep, timeout};

use crate::kit::{Scripted, Scripts, Started, World};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_be_failed_keeps_no_signal_from_being_missed() {
    let world = World::new();
    let kills = world.job("kills", |_| async {
        sleep(3_600 * SECOND).await;
        Ok(())
    });
    let kills = world.enqueue(kills).await;
    for claims in 1..=4 {
        let doomed = Started::new(world.builder().label("n").build().unwrap());
        world.until(kills, |job| job.claim_seq == claims).await;
        doomed.kill().await;
    }
    let store = MemoryStore::clone(&world.store).with_faults(|operation| match operation {
        "settle" => Fault::Failure(StoreErrorKind::Other),
        _ => Fault::None,
    });
    let waits = world.job("waits", |_| async { Ok(()) });
    let waits = world.enqueue(waits.wait_for("s", SECOND)).await;
    let node = Started::new(world.builder_on(store).label("n").build().unwrap());
    let missed = timeout(120 * SECOND, world.ended(waits)).await.unwrap();
    assert_eq!(missed.state, JobState::Failed);
    assert_eq!(world.read(kills).await.state, JobState::Running);
    node.kill().await;
}

/// A store that has no time to fail more than so many jobs at once.
#[derive(Debug)]
struct Slow {
    store: MemoryStore,
    most: usize,
    asked: Arc<Mutex<Vec<usize>>>,
}

#[async_trait]
impl SignalStore for Slow {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        self.store.deliver(signal).await
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        self.asked.lock().unwrap().push(limit);
        if limit > self.most {
            return Err(StoreError::new(StoreErrorKind::Timeout, "expire"));
        }
        self.store.expire(limit).await
    }
}

impl Store for Slow {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        self.store.jobs()
    }

    fn queues(&self) -> &dyn QueueStore {
        Store::queues(&self.store)
    }

    fn nodes(&self) -> &dyn NodeStore {
        Store::nodes(&self.store)
    }

    fn locks(&self) -> &dyn LockStore {
        self.store.locks()
    }

    fn versions(&self) -> &dyn VersionStore {
        Store::versions(&self.store)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        Some(self)
    }
}

#[tokio::test(start_paused = true)]
async fn fewer_signals_are_missed_at_once_where_the_store_has_no_time_for_more() {
    let world = World::new();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let job = world.job("waits", |_| async { Ok(()) });
        ids.push(world.enqueue(job.wait_for("s", SECOND)).await);
    }
    sleep(2 * SECOND).await;
    let asked = Arc::<Mutex<Vec<usize>>>::default();
    let store = Slow {
        store: world.store.clone(),
        most: 1,
        asked: Arc::clone(&asked),
    };
    let node = Ratchet::builder(Arc::new(store))
        .register::<Scripted>()
        .state(Scripts::default());
    let node = Started::new(node.build().unwrap());
    for id in ids {
        assert_eq!(world.ended(id).await.state, JobState::Failed);
    }
    node.stop().await.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked[..9], [500, 62, 7, 1, 1, 1, 1, 1, 1]);
}
