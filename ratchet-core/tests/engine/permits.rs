//! Permits: of the jobs that need a resource, no more bodies run in the cluster than are allowed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::{JobError, JobState, RetryPolicy};
use tokio::time::{sleep, timeout};

use crate::kit::{Started, World};

const MILLI: Duration = Duration::from_millis(1);

/// Counts the bodies that run, also those that are dropped.
#[derive(Clone, Default)]
struct Gauge {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct Running(Gauge);

impl Gauge {
    fn enter(&self) -> Running {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Running(self.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_bodies_run_than_there_are_permits_though_a_node_is_killed() {
    const MAX: u32 = 3;
    let world = World::new();
    let nodes: Vec<Started> = (0..3)
        .map(|_| Started::new(world.builder().concurrency(8).build().unwrap()))
        .collect();
    let client = nodes[0].node.client().clone();
    client.set_permits("api", MAX).await.unwrap();
    let gauge = Gauge::default();
    let mut all = Vec::new();
    for number in 0..60_u32 {
        let job = world.job(&number.to_string(), {
            let gauge = gauge.clone();
            move |ctx| {
                let running = gauge.enter();
                async move {
                    sleep((20 + number % 7 * 40) * MILLI).await;
                    drop(running);
                    match number % 5 == 3 && ctx.attempt() == 1 {
                        true => Err(JobError::from("again")),
                        false => Ok(()),
                    }
                }
            }
        });
        let queue = if number % 2 == 0 { "default" } else { "q" };
        let retry = RetryPolicy::fixed(3, 50 * MILLI);
        all.push(
            world
                .enqueue(job.permit("api").queue(queue).retry(retry))
                .await,
        );
    }
    let mut nodes = nodes.into_iter();
    sleep(300 * MILLI).await;
    nodes.next().unwrap().kill().await;
    for id in all {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    assert_eq!(
        gauge.most.load(Ordering::SeqCst),
        3,
        "all permits were used"
    );
    let listed = client.permits().await.unwrap();
    assert_eq!((listed.len(), listed[0].max, listed[0].held), (1, MAX, 0));
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_holder_of_a_permit_does_not_wait_for_a_poll() {
    let world = World::new();
    let node = world.start();
    node.node.client().set_permits("api", 1).await.unwrap();
    let mut last = None;
    for number in 0..100 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        last = Some(world.enqueue(job.permit("api")).await);
    }
    // A poll interval each would be ten seconds.
    let ended = timeout(Duration::from_secs(1), world.ended(last.unwrap()));
    ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn more_permits_are_used_at_once() {
    let world = World::new();
    let poll = Duration::from_secs(3_600);
    let node = Started::new(world.builder().poll_interval(poll, poll).build().unwrap());
    let client = node.node.client();
    client.set_permits("api", 0).await.unwrap();
    let job = world.job("job", |_| async { Ok(()) });
    let id = client.enqueue(job.permit("api")).await.unwrap().id();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.read(id).await.state, JobState::Pending);
    client.set_permits("api", 1).await.unwrap();
    let ended = timeout(Duration::from_secs(1), world.ended(id));
    ended.await.unwrap();
}
