//! How many calls of the store the loops of a node make.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::MemoryStore;
use ratchet_core::memory::Fault;
use tokio::time::sleep;

use crate::kit::{Started, World};

/// The calls of a store by operation.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Calls {
    fn counted(&self) -> World {
        let mut world = World::new();
        let calls = self.clone();
        world.store = MemoryStore::clone(&world.store).with_faults(move |operation| {
            *calls.0.lock().unwrap().entry(operation).or_default() += 1;
            Fault::None
        });
        world
    }

    /// Returns how many of them there were since this was last asked.
    fn take(&self, operation: &'static str) -> usize {
        self.0.lock().unwrap().remove(operation).unwrap_or(0)
    }
}

#[tokio::test(start_paused = true)]
async fn short_jobs_add_no_heartbeats_to_those_of_the_interval() {
    let calls = Calls::default();
    let world = calls.counted();
    // A leader is never at rest.
    let node = world.builder().promotable(false).build().unwrap();
    let node = Started::new(node);
    let job = world.job("short", |_| async { Ok(()) });
    world.ended(world.enqueue(job.clone()).await).await;
    calls.take("heartbeat");
    for _ in 0..600 {
        node.node.enqueue(job.another()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    // One every five seconds of the minute, and one more at either end.
    let during = calls.take("heartbeat");
    assert!((12..=14).contains(&during), "{during} heartbeats");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn candidates_write_nothing_while_another_node_leads() {
    let calls = Calls::default();
    let world = calls.counted();
    let leader = world.start();
    sleep(Duration::from_secs(1)).await;
    assert!(calls.take("acquire") > 0);
    let others: Vec<Started> = (0..9).map(|_| world.start()).collect();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(calls.take("acquire"), 0);
    assert!(calls.take("inspect") > 0);
    for node in others.into_iter().chain([leader]) {
        node.stop().await.unwrap();
    }
}
