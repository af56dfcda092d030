//! `/health`, `/ready` and `/leader`.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::{MemoryStore, NewJob, Ratchet};
use ratchet_http::Api;
use serde_json::json;

use crate::kit::{Flaky, Nap, Running, SECOND, build, builder, get, node, until_status};

fn reasons(answer: &crate::kit::Answer) -> Vec<String> {
    let reasons = answer.json()["reasons"].as_array().unwrap().clone();
    reasons
        .iter()
        .map(|reason| reason.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn health_answers_without_the_database() {
    let store = Flaky::new();
    store.take_away(true);
    let api = Api::builder(Ratchet::client(Arc::new(store.store.clone())))
        .build()
        .unwrap();
    let router = api.router();
    tokio::time::sleep(20 * SECOND).await;
    let before = store.calls();
    for _ in 0..100 {
        let answer = get(&router, "/health").await;
        assert_eq!(answer.status, 200);
        let expected = json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")});
        assert_eq!(answer.json(), expected);
    }
    assert_eq!(store.calls(), before);
    assert_eq!(get(&router, "/ready").await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_ready_from_joining_to_draining() {
    let node = node(MemoryStore::new(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .build()
        .unwrap();
    let router = api.router();
    let answer = get(&router, "/ready").await;
    assert_eq!(answer.status, 503);
    assert_eq!(reasons(&answer), ["not_running"]);
    let mut running = Running::start(&node);
    let answer = until_status(&router, "/ready", 200).await;
    assert_eq!(answer.json(), json!({"status": "ready"}));
    node.enqueue(NewJob::new(
        "nap",
        &Nap {
            ms: 5_000,
            fails: false,
        },
    ))
    .await
    .unwrap();
    while node.running() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop();
    let answer = until_status(&router, "/ready", 503).await;
    assert_eq!(reasons(&answer), ["draining"]);
    running.left().await;
    assert_eq!(reasons(&get(&router, "/ready").await), ["left"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_run_was_dropped_is_dead() {
    let node = node(MemoryStore::new(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .build()
        .unwrap();
    let router = api.router();
    let run = tokio::spawn({
        let node = node.clone();
        async move { node.run().await }
    });
    until_status(&router, "/ready", 200).await;
    run.abort();
    let _ = run.await;
    assert_eq!(reasons(&get(&router, "/ready").await), ["dead"]);
    assert_eq!(get(&router, "/leader").await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_lost_counts_soon_and_one_failure_does_not() {
    let store = Flaky::new();
    let api = Api::builder(Ratchet::client(Arc::new(store.store.clone())))
        .build()
        .unwrap();
    let router = api.router();
    until_status(&router, "/ready", 200).await;
    let quarter = Duration::from_millis(250);
    let mut before = 0;
    for step in 0..80 {
        // The API reads the database every 5 s. The database is unreachable during one of these
        // reads.
        match step {
            18 => {
                before = store.calls();
                store.take_away(true);
            }
            22 => {
                assert!(
                    store.calls() > before,
                    "expected a background read during the outage"
                );
                store.take_away(false);
            }
            _ => {}
        }
        assert_eq!(get(&router, "/ready").await.status, 200);
        tokio::time::sleep(quarter).await;
    }
    store.take_away(true);
    let lost_at = ratchet_core::time::monotonic();
    let answer = until_status(&router, "/ready", 503).await;
    assert_eq!(reasons(&answer), ["database"]);
    let took = lost_at.elapsed();
    assert!(took <= 10 * SECOND, "noticed after {took:?}");
    store.take_away(false);
    until_status(&router, "/ready", 200).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_that_no_node_can_run_count_only_after_a_while() {
    let node = node(MemoryStore::new(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .build()
        .unwrap();
    let router = api.router();
    let running = Running::start(&node);
    until_status(&router, "/ready", 200).await;
    node.enqueue(NewJob::new("unknown", &1)).await.unwrap();
    let began = ratchet_core::time::monotonic();
    let answer = until_status(&router, "/ready", 503).await;
    assert_eq!(reasons(&answer), ["stranded"]);
    assert!(!answer.text.contains("unknown") && !answer.text.contains('1'));
    let took = began.elapsed();
    assert!(took >= 30 * SECOND && took < 50 * SECOND, "{took:?}");
    let minds_not = Api::builder(node.client().clone())
        .node(&node)
        .ready_while_stranded()
        .build()
        .unwrap();
    let other = minds_not.router();
    until_status(&other, "/ready", 200).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(get(&other, "/ready").await.status, 200);
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_says_so() {
    let store = MemoryStore::new();
    let (one, other) = (node(store.clone(), "one"), node(store.clone(), "other"));
    let routers = [&one, &other].map(|node| {
        let api = Api::builder(node.client().clone())
            .node(node)
            .build()
            .unwrap();
        api.router()
    });
    let first = Running::start(&one);
    let answer = until_status(&routers[0], "/leader", 200).await.json();
    assert_eq!(answer["role"], "maintenance");
    assert_eq!(answer["is_leader"], true);
    let term = answer["term"].as_u64().unwrap();
    let second = Running::start(&other);
    tokio::time::sleep(5 * SECOND).await;
    let answer = get(&routers[1], "/leader/maintenance").await;
    assert_eq!(answer.status, 503);
    let expected = json!({"role": "maintenance", "is_leader": false});
    assert_eq!(answer.json(), expected);
    assert_eq!(get(&routers[0], "/leader/nothing").await.status, 503);
    first.left().await;
    assert_eq!(get(&routers[0], "/leader").await.status, 503);
    let answer = until_status(&routers[1], "/leader", 200).await.json();
    assert!(answer["term"].as_u64().unwrap() > term);
    second.left().await;
}

#[tokio::test(start_paused = true)]
async fn the_leader_of_an_active_passive_pair_is_who_runs_jobs() {
    let node = build(builder(MemoryStore::new()).active_passive("primary"));
    let api = Api::builder(node.client().clone())
        .node(&node)
        .build()
        .unwrap();
    let router = api.router();
    let running = Running::start(&node);
    let answer = until_status(&router, "/leader", 200).await;
    assert_eq!(answer.json()["role"], "primary");
    let status = get(&router, "/cluster/status").await.json();
    assert_eq!(status["role"], "primary");
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn the_own_words_of_a_standby_leader_end_with_its_lease() {
    let store = Flaky::new();
    let node = node(store.store.clone(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .build()
        .unwrap();
    let router = api.router();
    let _running = Running::start(&node);
    until_status(&router, "/leader", 200).await;
    store.take_away(true);
    // The node cannot renew its lease. It stops leading before another node can acquire the lease.
    until_status(&router, "/leader", 503).await;
}
