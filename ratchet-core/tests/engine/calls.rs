//! How many calls of the store the loops of a node make.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::MemoryStore;
use ratchet_core::memory::Fault;
use tokio::time::sleep;

use crate::kit::{Started, World};

#[tokio::test(start_paused = true)]
async fn short_jobs_add_no_heartbeats_to_those_of_the_interval() {
    let heartbeats = Arc::new(AtomicUsize::new(0));
    let mut world = World::new();
    let count = Arc::clone(&heartbeats);
    world.store = MemoryStore::clone(&world.store).with_faults(move |operation| {
        count.fetch_add(usize::from(operation == "heartbeat"), Ordering::SeqCst);
        Fault::None
    });
    // A leader is never at rest.
    let node = world.builder().promotable(false).build().unwrap();
    let node = Started::new(node);
    let job = world.job("short", |_| async { Ok(()) });
    world.ended(world.enqueue(job.clone()).await).await;
    let before = heartbeats.load(Ordering::SeqCst);
    for _ in 0..600 {
        node.node.enqueue(job.another()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    let during = heartbeats.load(Ordering::SeqCst) - before;
    // One every five seconds of the minute, and one more at either end.
    assert!((12..=14).contains(&during), "{during} heartbeats");
    node.stop().await.unwrap();
}
