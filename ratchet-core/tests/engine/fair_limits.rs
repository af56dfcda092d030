//! Tests of limits of fair keys: they limit how many bodies of a key run at once in the cluster,
//! and a place that becomes free is used at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::model::FairScope;
use ratchet_core::store::Changed;
use ratchet_core::{JobError, JobState, RetryPolicy, time};
use tokio::time::sleep;

use crate::kit::{Started, World, stop_all};

const MILLI: Duration = Duration::from_millis(1);
/// A poll interval that no test waits for.
const RARE: Duration = Duration::from_secs(24 * 3_600);

fn each() -> FairScope {
    FairScope::queues("default").unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_more_bodies_of_a_key_run_than_its_limit_though_a_node_is_killed() {
    const MAX: usize = 3;
    let world = World::new();
    let nodes: Vec<Started> = (0..3)
        .map(|_| Started::new(world.builder().concurrency(8).build().unwrap()))
        .collect();
    let client = nodes[0].node.client().clone();
    let set = client.set_fair_limit(&each(), 3).await;
    assert_eq!(set.unwrap(), Changed::Changed);
    let running: [Arc<AtomicUsize>; 2] = std::array::from_fn(|_| Arc::default());
    let most: Arc<AtomicUsize> = Arc::default();
    let mut all = Vec::new();
    for number in 0..60_u32 {
        let key = usize::from(number % 5 == 0);
        let job = world.job(&number.to_string(), {
            let (running, most) = (Arc::clone(&running[key]), Arc::clone(&most));
            move |ctx| {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                let ended = Ended(Arc::clone(&running));
                async move {
                    sleep((20 + number % 7 * 40) * MILLI).await;
                    drop(ended);
                    match number % 5 == 3 && ctx.attempt() == 1 {
                        true => Err(JobError::from("again")),
                        false => Ok(()),
                    }
                }
            }
        });
        let retry = RetryPolicy::fixed(3, 50 * MILLI);
        let key = ["a", "b"][key];
        all.push(world.enqueue(job.fair_key(key).retry(retry)).await);
    }
    let mut nodes = nodes.into_iter();
    sleep(300 * MILLI).await;
    nodes.next().unwrap().kill().await;
    for id in all {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    assert_eq!(most.load(Ordering::SeqCst), MAX);
    stop_all(nodes).await;
}

/// Counts a body as ended when it is dropped.
struct Ended(Arc<AtomicUsize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_becomes_free_is_used_without_a_poll() {
    let world = World::new();
    let node = Started::new(world.builder().poll_interval(RARE, RARE).build().unwrap());
    let client = node.node.client().clone();
    client.set_fair_limit(&each(), 1).await.unwrap();
    let began = time::monotonic();
    let mut all = Vec::new();
    for number in 0..40 {
        let fails = number % 4 == 0;
        let job = world.job(&number.to_string(), move |_| async move {
            sleep(5 * MILLI).await;
            match fails {
                true => Err(JobError::from("again")),
                false => Ok(()),
            }
        });
        // The jobs that fail wait longer than this test takes.
        let job = job.fair_key("a").retry(RetryPolicy::fixed(2, RARE));
        let id = client.enqueue(job).await.unwrap().id();
        all.extend((!fails).then_some(id));
    }
    for id in all {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    // If each job waited until the leader looks for due jobs, the test would take 40 seconds.
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_is_used_without_a_poll() {
    let world = World::new();
    let node = Started::new(world.builder().poll_interval(RARE, RARE).build().unwrap());
    let client = node.node.client().clone();
    let began = time::monotonic();
    client.set_fair_limit(&each(), 0).await.unwrap();
    let job = world.job("job", |_| async { Ok(()) });
    let id = client.enqueue(job.fair_key("a")).await.unwrap().id();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.read(id).await.state, JobState::Pending);
    client.set_fair_limit(&each(), 1).await.unwrap();
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    client.set_fair_limit(&each(), 0).await.unwrap();
    let job = world.job("other", |_| async { Ok(()) });
    let id = client.enqueue(job.fair_key("a")).await.unwrap().id();
    sleep(Duration::from_secs(60)).await;
    client.remove_fair_limit(&each()).await.unwrap();
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    assert!(began.elapsed() < RARE, "{:?}", began.elapsed());
    node.stop().await.unwrap();
}
