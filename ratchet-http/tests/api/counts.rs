//! Counts of matching jobs.

use std::time::Duration;

use ratchet_core::NewJob;
use serde_json::{Value, json};

use crate::kit::{self, World};

/// Enqueues three jobs of one kind and two jobs of another kind. One of the three jobs is paused.
async fn world() -> World {
    let world = World::new();
    let later = |kind: &str, n: u32| {
        let hour = Duration::from_secs(3_600);
        NewJob::new(kind, &n).queue("q").tag("t").delay(hour)
    };
    let first = world.enqueue(later("a", 0)).await;
    for job in [later("a", 1), later("a", 2), later("b", 3), later("b", 4)] {
        world.enqueue(job).await;
    }
    world.client.pause(first).await.unwrap();
    world
}

async fn count(world: &World, query: &str) -> Value {
    world.get(&format!("/api/jobs/count?{query}")).await.ok()
}

#[tokio::test]
async fn only_jobs_that_can_take_the_action_are_counted() {
    let world = world().await;
    for (query, jobs) in [
        ("", 5),
        ("kind=a", 3),
        ("kind=a&action=pause", 2),
        ("kind=a&action=resume", 1),
        ("kind=a&action=cancel", 3),
        ("kind=a&action=cancel&state=paused,failed", 1),
        ("kind=a&action=delete", 0),
        ("action=delete&state=pending", 0),
        ("queue=q&tag=t&kind=b&state=pending", 2),
    ] {
        let wanted = json!({ "jobs": jobs, "exact": true });
        assert_eq!(count(&world, query).await, wanted, "{query}");
    }
    for (query, field) in [
        ("action=explode", "action"),
        ("state=dead", "state"),
        ("batch=1", "batch"),
    ] {
        let answer = world.get(&format!("/api/jobs/count?{query}")).await;
        answer.invalid(field);
    }
}

#[tokio::test]
async fn a_count_of_many_jobs_says_at_least() {
    let world = World::new();
    for _ in 0..2 {
        let jobs: Vec<NewJob> = (0..6_000).map(|n| NewJob::new("k", &n)).collect();
        world.client.enqueue_all(&jobs).await.unwrap();
    }
    let most = json!({ "jobs": 10_000, "exact": false });
    assert_eq!(count(&world, "kind=k&action=cancel").await, most);
    let counts = world.get("/api/jobs/counts?kind=k").await.ok();
    let thousand = json!({ "jobs": 1_000, "exact": false });
    assert_eq!(counts["counts"]["pending"], thousand);
    assert_eq!(counts["counts_at"], Value::Null);
}

#[tokio::test]
async fn states_are_counted_for_a_request_or_in_the_background() {
    let world = world().await;
    let counts = world.get("/api/jobs/counts?kind=a&tag=t").await.ok();
    let exactly = |jobs: u32| json!({ "jobs": jobs, "exact": true });
    assert_eq!(counts["counts"]["pending"], exactly(2));
    assert_eq!(counts["counts"]["paused"], exactly(1));
    assert_eq!(counts["counts"]["failed"], exactly(0));
    // Jobs are counted in the background only after a request of a client, so wait for the count.
    for uri in [
        "/api/jobs/counts",
        "/api/jobs/counts?queue=q",
        "/api/jobs/counts?queue=none",
    ] {
        kit::until("jobs were counted in the background", || async {
            world.get(uri).await.ok()["counts_at"].is_string()
        })
        .await;
        let pending = if uri.ends_with("none") { 0 } else { 4 };
        let counts = world.get(uri).await.ok();
        assert_eq!(counts["counts"]["pending"], exactly(pending), "{uri}");
    }
}
