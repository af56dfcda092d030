//! What operators can observe of a cluster.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::model::{BatchClosed, Detail, NodeStatus, NodeTotals, Parent};
use ratchet_core::schedule::ZoneData;
use ratchet_core::store::{LockStore, NodeStore};
use ratchet_core::{
    Client, Condition, JobError, JobResult, JobState, Name, NewJob, Ratchet, RetryPolicy,
};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

fn client(world: &World) -> Client {
    Ratchet::client(Arc::new(world.store.clone()))
}

#[tokio::test(start_paused = true)]
async fn heartbeats_say_what_was_done_and_which_kinds_run() {
    let world = World::new();
    let fine = || world.job("fine", |_| async { Ok(()) });
    let bad = world.job("bad", |_| async { Err::<(), _>(JobError::from("no")) });
    let fixed = RetryPolicy::fixed(2, SECOND);
    // The job waits for three seconds before a node exists that can claim it.
    let first = world.enqueue(fine()).await;
    sleep(3 * SECOND).await;
    let node = world.start();
    world.ended(first).await;
    world.ended(world.enqueue(bad.retry(fixed)).await).await;
    world.ended(world.enqueue(fine()).await).await;
    node.stop().await.unwrap();

    let nodes = client(&world).nodes().await.unwrap();
    let kinds = nodes[0].profile.kinds.as_deref().unwrap();
    assert_eq!(kinds, [Name::new("kind", "scripted").unwrap()]);
    assert_eq!(nodes[0].profile.zone_data, Some(ZoneData::in_use()));
    let totals = nodes[0].load.totals.unwrap();
    let counts = NodeTotals::new(4, totals.waited_ms, 2, 1, 1);
    assert_eq!(totals, counts);
    // Each of the other claims waited for at most one poll.
    assert!((3_000..6_000).contains(&totals.waited_ms), "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_runs_no_jobs_has_no_kinds() {
    let world = World::new();
    let node = Started::new(world.builder().roles(["maintenance"]).build().unwrap());
    let client = client(&world);
    while client.leaders(&[]).await.unwrap().is_empty() {
        sleep(SECOND).await;
    }
    let nodes = client.nodes().await.unwrap();
    assert_eq!(nodes[0].profile.kinds, Some(Vec::new()));
    let leaders = client.leaders(&[]).await.unwrap();
    assert_eq!(leaders.len(), 1);
    assert_eq!(leaders[0].role.as_str(), "maintenance");
    assert_eq!(leaders[0].node, Some(nodes[0].node));
    assert!(
        leaders[0]
            .remaining
            .is_some_and(|left| left > Duration::ZERO)
    );
    node.stop().await.unwrap();
    let leaders = client.leaders(&[]).await.unwrap();
    assert_eq!((leaders[0].node, leaders[0].remaining), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_no_node_has_a_handler_for_is_stranded() {
    let world = World::new();
    let client = client(&world);
    world.enqueue(NewJob::new("unknown", &())).await;
    let later = NewJob::new("later", &()).delay(60 * SECOND);
    world.enqueue(later).await;
    sleep(2 * SECOND).await;
    assert_eq!(
        client.stranded().await.unwrap(),
        [],
        "expected no stranded job, because there is \
         no node"
    );
    let due = client.due_routes().await.unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].overdue, 2 * SECOND);

    let node = world.start();
    let live = async || {
        let nodes = world.store.nodes().await.unwrap();
        nodes.iter().any(|node| node.status == NodeStatus::Active)
    };
    while !live().await {
        sleep(SECOND).await;
    }
    let stranded = client.stranded().await.unwrap();
    assert_eq!(stranded.len(), 1);
    assert_eq!(stranded[0].route.kind.as_str(), "unknown");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn leaders_are_found_among_any_number_of_locks() {
    let world = World::new();
    let name = |text: String| Name::new("name", text).unwrap();
    let owner = name("me".to_owned());
    for lock in 0..250 {
        for kind in ["a", "leader", "leader/role", "z"] {
            let lock = name(format!("{kind}-{lock:03}"));
            world.store.acquire(&lock, &owner, SECOND).await.unwrap();
        }
    }
    let leaders = client(&world).leaders(&[]).await.unwrap();
    assert_eq!(leaders.len(), 250);
    assert!(leaders.is_sorted_by(|a, b| a.role < b.role));
    assert_eq!(leaders[249].role.as_str(), "role-249");
}

#[tokio::test(start_paused = true)]
async fn a_client_reads_what_the_store_remembers() {
    let world = World::new();
    let client = client(&world);
    let name = |text| Name::new("name", text).unwrap();
    let locks = &world.store;
    locks
        .acquire(&name("b"), &name("me"), SECOND)
        .await
        .unwrap();
    locks
        .acquire(&name("a"), &name("me"), SECOND)
        .await
        .unwrap();
    let listed = client.locks().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);

    let bumped = client.bump("prices").await.unwrap();
    let versions = client.versions(&[name("none"), name("prices")]).await;
    assert_eq!(versions.unwrap(), [0, bumped]);
    let before = client.database_time().await.unwrap();
    sleep(SECOND).await;
    let later = client.database_time().await.unwrap();
    assert_eq!((later - before).num_milliseconds(), 1_000);

    let batch = client.create_batch().await.unwrap();
    let parent = world
        .enqueue(NewJob::new("parent", &()).in_batch(batch))
        .await;
    let child = world
        .enqueue(NewJob::new("child", &()).after(parent, Condition::Ended))
        .await;
    let links = client
        .children_of(Parent::Job(parent), 10, None)
        .await
        .unwrap();
    assert_eq!(links.len(), 1);
    assert_eq!(links[0].child, child);
    let behind = client.children_of(Parent::Job(parent), 10, Some(child));
    assert_eq!(behind.await.unwrap(), []);
    let batches = client.recent_batches(10, None).await.unwrap();
    assert_eq!((batches.len(), batches[0].id), (1, batch));
    assert_eq!(client.recent_batches(10, Some(batch)).await.unwrap(), []);
    assert_ne!(
        client.close_batch(batch).await.unwrap(),
        BatchClosed::NotFound
    );
    let jobs = client
        .jobs(&[child, ratchet_core::JobId::new(), parent], Detail::Whole)
        .await;
    let found: Vec<_> = jobs
        .unwrap()
        .into_iter()
        .map(|job| job.map(|job| job.id))
        .collect();
    assert_eq!(found, [Some(child), None, Some(parent)]);
}

#[tokio::test(start_paused = true)]
async fn the_fair_keys_with_the_most_jobs_come_first() {
    let world = World::new();
    let client = client(&world);
    let keyed = |job: NewJob, key: &str| job.queue("render").fair_key(key);
    let waiting = |key: &str, jobs: usize| -> Vec<NewJob> {
        let job = || keyed(NewJob::new("no node runs this", &()), key);
        std::iter::repeat_with(job).take(jobs).collect()
    };
    let endless = world.job("endless", |_| std::future::pending::<JobResult>());
    let running = world.enqueue(keyed(endless, "b")).await;
    let node = world.start();
    world
        .until(running, |job| job.state == JobState::Running)
        .await;
    for (key, jobs) in [("a", 1), ("b", 1), ("c", 3)] {
        client.enqueue_all(&waiting(key, jobs)).await.unwrap();
    }
    let cancelled = world.enqueue(waiting("a", 1).remove(0)).await;
    client.cancel(cancelled).await.unwrap();
    world.enqueue(NewJob::new("without a key", &())).await;

    let usage = client.fair_keys(10).await.unwrap();
    let keys = usage.keys.iter();
    let keys: Vec<_> = keys
        .map(|info| (info.key.as_str(), info.running, info.waiting))
        .collect();
    assert_eq!(keys, [("c", 0, 3), ("b", 1, 1), ("a", 0, 1)]);
    assert!(usage.complete);
    assert_eq!(client.fair_keys(1).await.unwrap().keys, usage.keys[..1]);
    assert!(client.fair_keys(0).await.is_err());

    // Only the newest 10,000 jobs are read, and all jobs that run.
    client.enqueue_all(&waiting("flood", 10_000)).await.unwrap();
    let usage = client.fair_keys(10).await.unwrap();
    let keys = usage.keys.iter();
    let keys: Vec<_> = keys
        .map(|info| (info.key.as_str(), info.running, info.waiting))
        .collect();
    assert_eq!(keys, [("flood", 0, 10_000), ("b", 1, 0)]);
    assert!(!usage.complete);
    node.kill().await;
}
