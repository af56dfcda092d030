//! The background reads: how often they run, and which data clients get between two reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use ratchet_core::memory::Fault;
use ratchet_core::time::monotonic;
use ratchet_core::{Client, MemoryStore, NewJob, Ratchet, RetryPolicy};
use ratchet_http::Api;
use serde_json::{Value, json};

use crate::kit::{Anybody, Nap, Running, SECOND, build, get, send, until};

/// A store that delays some operations. It counts the calls of each operation.
#[derive(Clone, Default)]
struct Watched {
    slow: Arc<Mutex<BTreeMap<&'static str, Duration>>>,
    calls: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Watched {
    /// Creates an API on this store, and a client whose calls to the same store are not counted.
    fn api(&self) -> (Router, Client) {
        let store = MemoryStore::new();
        let watched = self.clone();
        let faulty = store.clone().with_faults(move |operation| {
            *watched.calls.lock().unwrap().entry(operation).or_default() += 1;
            let slow = watched.slow.lock().unwrap();
            slow.get(operation)
                .map_or(Fault::None, |by| Fault::Delay(*by))
        });
        let api = Api::builder(Ratchet::client(Arc::new(faulty))).authorize(Anybody);
        let router = api.build().unwrap().router();
        (router, Ratchet::client(Arc::new(store)))
    }

    fn slow(&self, operation: &'static str, by: Duration) {
        self.slow.lock().unwrap().insert(operation, by);
    }

    fn calls(&self, operation: &'static str) -> u64 {
        let calls = self.calls.lock().unwrap();
        calls.get(operation).copied().unwrap_or(0)
    }
}

/// Sends one request per second for this many seconds.
async fn look(router: &Router, uri: &str, seconds: u32) {
    for _ in 0..seconds {
        assert_eq!(get(router, uri).await.status, 200);
        tokio::time::sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_a_count_and_a_repeated_one_starts_none_too_soon() {
    let watched = Watched::default();
    let (router, client) = watched.api();
    watched.slow("queues", 4 * SECOND);
    client.enqueue(NewJob::new("k", &1)).await.unwrap();
    until(&router, "/cluster/nodes", |_| true).await;
    for uri in ["/api/overview", "/api/queues"] {
        let asked = monotonic();
        let answer = get(&router, uri).await.json();
        assert!(asked.elapsed() < Duration::from_millis(5), "{uri}");
        assert_eq!(answer["counts_at"], Value::Null);
    }
    let counted = |answer: &Value| answer["counts_at"].is_string();
    until(&router, "/api/overview", counted).await;
    assert_eq!(watched.calls("queues"), 1);
    // The pause between two counts is at most 120 s. Requests during this pause start no count,
    // even after a time without requests.
    tokio::time::sleep(62 * SECOND).await;
    look(&router, "/api/queues", 50).await;
    assert_eq!(watched.calls("queues"), 1);
    client.enqueue(NewJob::new("k", &1)).await.unwrap();
    tokio::time::sleep(SECOND).await;
    // The API returns the old count at once, together with its time. The new job appears after the
    // next count.
    let overview = get(&router, "/api/overview").await.json();
    assert_eq!(overview["counts"]["pending"], 1);
    let now = |overview: &Value| overview["counts"]["pending"] == 2;
    let asked = monotonic();
    until(&router, "/api/overview", now).await;
    assert_eq!(watched.calls("queues"), 2);
    // Without the maximum, the pause would be 50 times the duration of the count, 200 s. It would
    // end about 80 s later.
    let waited = asked.elapsed();
    assert!(waited < 20 * SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_seen_by_what_is_due_however_long_the_counting_takes() {
    let watched = Watched::default();
    let (router, client) = watched.api();
    client.enqueue(NewJob::new("k", &1)).await.unwrap();
    client
        .enqueue(NewJob::new("k", &1).queue("later").delay(3_600 * SECOND))
        .await
        .unwrap();
    let queue = |answer: &Value, name: &str| {
        let queues = answer["queues"].as_array().unwrap();
        queues.iter().find(|queue| queue["name"] == name).cloned()
    };
    let both = |answer: &Value| answer["counts_at"].is_string() && answer["due_at"].is_string();
    let answer = until(&router, "/api/queues", both).await;
    let later = queue(&answer, "later").unwrap();
    assert_eq!(
        (&later["overdue_ms"], &later["counts"]["pending"]),
        (&Value::Null, &json!(1))
    );
    watched.slow("queues", 3_600 * SECOND);
    client.pause_queue("default").await.unwrap();
    client
        .enqueue(NewJob::new("k", &1).queue("new"))
        .await
        .unwrap();
    tokio::time::sleep(SECOND).await;
    let paused = |answer: &Value| queue(answer, "default").unwrap()["paused"] == true;
    let asked = monotonic();
    let answer = until(&router, "/api/queues", paused).await;
    assert!(asked.elapsed() < 4 * SECOND);
    // The queue `new` was created after the last count. The API knows the queue from the due
    // routes.
    let new = queue(&answer, "new").unwrap();
    assert_eq!(
        (&new["paused"], &new["counts"]),
        (&json!(false), &Value::Null)
    );
    // The API can no longer read the due routes. The response must show that they are unknown,
    // instead of showing that no job is due.
    watched.slow("due_routes", 3_600 * SECOND);
    let unknown = |answer: &Value| answer["due_at"] == Value::Null;
    let answer = until(&router, "/api/queues", unknown).await;
    assert_eq!(
        queue(&answer, "default").unwrap()["overdue_ms"],
        Value::Null
    );
}

/// Runs a node on the client's store until a test stops it.
fn work(client: &Client) -> Running {
    let builder = Ratchet::builder(Arc::clone(client.store())).register::<Nap>();
    Running::start(&build(builder))
}

/// Enqueues this many jobs that fail. A running node turns them into dead letters.
async fn fail(client: &Client, count: usize) {
    for _ in 0..count {
        let nap = Nap { ms: 1, fails: true };
        let job = NewJob::new("nap", &nap).retry(RetryPolicy::never());
        client.enqueue(job).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_dead_letters_are_read_once_for_all_and_again_when_jobs_fail() {
    let watched = Watched::default();
    let (router, client) = watched.api();
    let running = work(&client);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(
        watched.calls("list"),
        0,
        "expected no read of the jobs before a client has read"
    );
    let asked = monotonic();
    let overview = get(&router, "/api/overview").await.json();
    assert!(asked.elapsed() < Duration::from_millis(5));
    assert!(overview["failures"].is_null() || overview["failures"] == json!([]));
    let none = |overview: &Value| overview["failures"] == json!([]);
    let overview = until(&router, "/api/overview", none).await;
    assert!(overview["failures_at"].is_string());
    // No job fails, so the API reads the dead letters again only after the longer interval.
    look(&router, "/api/overview", 120).await;
    let calm = watched.calls("list");
    assert!(
        (4..=5).contains(&calm),
        "expected 4 or 5 reads in two minutes, found {calm}"
    );

    fail(&client, 10).await;
    // The API groups the ten dead letters, because they have the same error.
    let ten = |overview: &Value| overview["failures"][0]["count"] == 10;
    let began = monotonic();
    let overview = until(&router, "/api/overview", ten).await;
    assert!(
        began.elapsed() < 15 * SECOND,
        "expected the read of the dead letters within 15 s"
    );
    let failures = overview["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0]["last_error"], "bad dream");
    assert!(failures[0].get("payload").is_none());
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_are_dear_to_read_are_read_rarely() {
    let watched = Watched::default();
    let (router, client) = watched.api();
    watched.slow("list", 2 * SECOND);
    let running = work(&client);
    let read = |overview: &Value| overview["failures"].is_array();
    until(&router, "/api/overview", read).await;
    assert_eq!(watched.calls("list"), 1);
    for _ in 0..95 {
        fail(&client, 1).await;
        look(&router, "/api/overview", 1).await;
    }
    assert_eq!(watched.calls("list"), 1);
    look(&router, "/api/overview", 10).await;
    assert_eq!(watched.calls("list"), 2);
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_was_deleted_here_is_shown_no_longer() {
    let watched = Watched::default();
    let (router, client) = watched.api();
    watched.slow("queues", 3_600 * SECOND);
    let running = work(&client);
    fail(&client, 1).await;
    let one = |overview: &Value| {
        overview["failures"]
            .as_array()
            .is_some_and(|all| all.len() == 1)
    };
    let overview = until(&router, "/api/overview", one).await;
    running.left().await;
    let id = overview["failures"][0]["id"].as_str().unwrap();
    let delete = Request::post(format!("/api/jobs/{id}/delete"));
    let answer = send(&router, delete.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 200);
    let asked = monotonic();
    let none = |overview: &Value| overview["failures"] == json!([]);
    until(&router, "/api/overview", none).await;
    assert!(asked.elapsed() < 8 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_hung_is_not_left_alone_for_long() {
    let watched = Watched::default();
    let (router, client) = watched.api();
    client.enqueue(NewJob::new("k", &1)).await.unwrap();
    for slow in ["queues", "list"] {
        watched.slow(slow, 3_600 * SECOND);
    }
    look(&router, "/api/overview", 12).await;
    for slow in ["queues", "list"] {
        watched.slow(slow, Duration::ZERO);
    }
    let back = monotonic();
    look(&router, "/api/overview", 100).await;
    let known =
        |overview: &Value| overview["counts_at"].is_string() && overview["failures_at"].is_string();
    until(&router, "/api/overview", known).await;
    assert!(back.elapsed() < 125 * SECOND, "{:?}", back.elapsed());
}
