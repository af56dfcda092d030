//! `/api/overview` and the background reads that provide its data.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::{MemoryStore, NewJob, Ratchet};
use ratchet_http::Api;
use serde_json::{Value, json};

use crate::kit::{Flaky, Nap, Running, SECOND, get, node, until};

fn nap(ms: u64, fails: bool) -> NewJob {
    NewJob::new("nap", &Nap { ms, fails })
}

#[tokio::test(start_paused = true)]
async fn what_runs_and_how_much_is_shown() {
    let store = MemoryStore::new();
    let node = node(store.clone(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .build()
        .unwrap();
    let router = api.router();
    let running = Running::start(&node);
    until(&router, "/api/overview", |overview| {
        overview["live_nodes"] == 1
    })
    .await;
    let later = nap(1, false).delay(Duration::from_secs(3_600));
    node.enqueue(later).await.unwrap();
    for _ in 0..60 {
        node.enqueue(nap(10, false)).await.unwrap();
        tokio::time::sleep(SECOND).await;
    }
    // The rates cover only the last few seconds. So read them now, and wait for the next count of
    // jobs later.
    let overview = get(&router, "/api/overview").await.json();
    let rate = overview["rates"]["finished_per_s"].as_f64().unwrap();
    assert!(
        (rate - 1.0).abs() < 0.5,
        "expected a rate of about one per second, found {rate}"
    );
    assert!(overview["rates"]["wait_ms"].as_u64().unwrap() < 2_000);
    assert_eq!(overview["leaders"][0]["label"], "a");
    assert_eq!(overview["capacity"], node.capacity());
    let series = &overview["series"];
    assert_eq!(series["step_ms"], 10_000);
    let points = series["points"].as_array().unwrap();
    assert!(
        (5..=9).contains(&points.len()),
        "expected 5 to 9 points in a minute, found {}",
        points.len()
    );
    assert!(
        points
            .iter()
            .any(|point| point["finished_per_s"].as_f64().unwrap() > 0.5)
    );
    let overview = until(&router, "/api/overview", |overview| {
        overview["counts"]["succeeded"].as_u64().unwrap() >= 55
    })
    .await;
    assert_eq!(overview["counts"]["pending"], 1);
    assert_eq!(overview["oldest_due_ms"], Value::Null);
    assert!(overview["due_at"].is_string() && overview["stale"] == false);
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_late_or_stranded_is_shown() {
    let store = MemoryStore::new();
    let node = node(store.clone(), "a");
    let api = Api::builder(node.client().clone()).build().unwrap();
    let router = api.router();
    let running = Running::start(&node);
    let client = node.client();
    client.pause_queue("paused").await.unwrap();
    for queue in ["paused", "odd"] {
        let job = NewJob::new("unknown", &1).queue(queue);
        client.enqueue(job).await.unwrap();
        tokio::time::sleep(100 * SECOND).await;
    }
    let found = |overview: &Value| !overview["stranded"].as_array().unwrap().is_empty();
    let overview = until(&router, "/api/overview", found).await;
    let stranded = overview["stranded"].as_array().unwrap();
    assert_eq!(stranded.len(), 1, "{stranded:?}");
    assert_eq!(stranded[0]["queue"], "odd");
    assert_eq!(stranded[0]["kind"], "unknown");
    // The job in the paused queue has been due for longer, but `oldest_due_ms` ignores paused
    // queues.
    let oldest = overview["oldest_due_ms"].as_u64().unwrap();
    assert!((90_000..150_000).contains(&oldest), "{oldest}");
    let late = |queues: &Value| queues["queues"][1]["overdue_ms"].as_u64() > Some(190_000);
    let queues = until(&router, "/api/queues", late).await;
    let paused = &queues["queues"][1];
    assert_eq!(
        (&paused["name"], &paused["paused"]),
        (&json!("paused"), &json!(true))
    );
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn page_loads_do_not_count_jobs_and_without_readers_none_are_counted() {
    let store = Flaky::new();
    let api = Api::builder(Ratchet::client(Arc::new(store.store.clone())))
        .build()
        .unwrap();
    let router = api.router();
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!(
        store.calls(),
        0,
        "expected no call of the store before a client has asked"
    );
    for _ in 0..6 {
        assert_eq!(get(&router, "/ready").await.status, 200);
        tokio::time::sleep(10 * SECOND).await;
    }
    // The API reads the nodes, the leaders and the clock every 5 s, and the due routes every 10 s.
    let per_minute = store.calls();
    let bound = 12 * 3 + 6 + 4;
    assert!((30..=bound).contains(&per_minute), "{per_minute} calls");
    assert_eq!(
        store.counts(),
        0,
        "expected no count of jobs before a client has read"
    );
    tokio::time::sleep(300 * SECOND).await;
    let ended = store.calls();
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!(
        store.calls(),
        ended,
        "expected no call of the store when no client asks any more"
    );

    for _ in 0..600 {
        assert_eq!(get(&router, "/api/overview").await.status, 200);
        assert_eq!(get(&router, "/api/queues").await.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let counts = store.counts();
    assert!(
        (5..=8).contains(&counts),
        "expected 5 to 8 counts in a minute, found {counts}"
    );
    tokio::time::sleep(120 * SECOND).await;
    let after = store.counts();
    assert!(
        after <= counts + 7,
        "expected counts for only one more minute"
    );
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(store.counts(), after);
    // If no client has sent requests for a while, the next requests soon get the current state.
    let client = Ratchet::client(Arc::new(store.store.clone()));
    client.enqueue(nap(1, false)).await.unwrap();
    let asked = ratchet_core::time::monotonic();
    let now = |overview: &Value| overview["counts"]["pending"] == 1;
    until(&router, "/api/overview", now).await;
    assert!(asked.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_is_asked_less_and_less() {
    let store = Flaky::new();
    let api = Api::builder(Ratchet::client(Arc::new(store.store.clone())))
        .build()
        .unwrap();
    let router = api.router();
    assert_eq!(get(&router, "/api/overview").await.status, 200);
    store.take_away(true);
    let probe = async || {
        for _ in 0..6 {
            get(&router, "/ready").await;
            tokio::time::sleep(10 * SECOND).await;
        }
    };
    probe().await;
    let before = store.calls();
    probe().await;
    let calls = store.calls() - before;
    assert!(
        (4..=12).contains(&calls),
        "expected 4 to 12 calls in a minute, found {calls}"
    );
    let answer = get(&router, "/api/overview").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["code"]),
        (503, &json!("unavailable"))
    );
    store.take_away(false);
    until(&router, "/api/overview", |_| true).await;
}

#[tokio::test(start_paused = true)]
async fn reading_ends_with_the_last_handle() {
    let store = Flaky::new();
    let api = Api::builder(Ratchet::client(Arc::new(store.store.clone())))
        .build()
        .unwrap();
    let router = api.router();
    drop(api);
    get(&router, "/ready").await;
    tokio::time::sleep(20 * SECOND).await;
    let before = store.calls();
    tokio::time::sleep(20 * SECOND).await;
    assert!(
        store.calls() > before,
        "expected the background reads to continue, because a router exists"
    );
    drop(router);
    tokio::time::sleep(SECOND).await;
    let before = store.calls();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(store.calls(), before);
}
