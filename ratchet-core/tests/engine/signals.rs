//! Tests that jobs with overdue signals fail even if other calls of the store fail or time out.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::memory::Fault;
use ratchet_core::store::{Layered, SignalStore, Store, StoreLayer};
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

/// A store whose `expire` times out if its limit is more than `most`. Each limit is recorded in
/// `asked`.
#[derive(Debug)]
struct Slow {
    store: MemoryStore,
    most: usize,
    asked: Arc<Mutex<Vec<usize>>>,
}

#[async_trait]
impl StoreLayer for Slow {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        self.asked.lock().unwrap().push(limit);
        if limit > self.most {
            return Err(StoreError::new(StoreErrorKind::Timeout, "expire"));
        }
        self.store.expire(limit).await
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
    let node = Ratchet::builder(Arc::new(Layered::new(store)))
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
