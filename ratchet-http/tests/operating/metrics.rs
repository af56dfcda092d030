//! `/metrics`.

use std::sync::Arc;

use ratchet_core::{MemoryStore, NewJob, Ratchet};
use ratchet_http::{Access, Api, Authorizer, Denied, Parts, prometheus};

use crate::kit::{Nap, Running, SECOND, get, node, until};
use ratchet_http::prometheus::PrometheusHandle;
use serde_json::{Value, json};

fn builder() -> ratchet_http::ApiBuilder {
    Api::builder(Ratchet::client(Arc::new(MemoryStore::new())))
}

/// An authorizer that refuses every request.
struct Nobody;

#[async_trait::async_trait]
impl Authorizer for Nobody {
    async fn authorize(&self, _: &Parts, _: Access) -> Result<(), Denied> {
        Err(Denied::forbidden())
    }
}

#[tokio::test]
async fn what_a_node_counts_is_there_for_prometheus() {
    // The process has only one recorder. If other tests run in this process, the recorder also
    // contains their metrics.
    let handle = prometheus::install().unwrap();
    assert!(
        prometheus::install().is_err(),
        "expected a second recorder to be refused"
    );
    let node = node(MemoryStore::new(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .prometheus(handle)
        .build()
        .unwrap();
    let router = api.router();
    let running = Running::start(&node);
    node.enqueue(nap()).await.unwrap();
    let ended = |overview: &Value| overview["counts"]["succeeded"] == 1;
    while node.stats().finished == 0 {
        tokio::task::yield_now().await;
    }
    until(&router, "/api/overview", ended).await;
    let answer = get(&router, "/metrics").await;
    assert_eq!(answer.status, 200);
    let kind = answer.headers["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    assert!(answer.text.contains("# TYPE ratchet_"), "{}", answer.text);
    assert!(answer.text.contains("_seconds_bucket{"), "{}", answer.text);
    running.left().await;
}

#[tokio::test]
async fn without_a_recorder_there_are_no_metrics_and_a_denied_caller_gets_none() {
    let answer = get(&builder().build().unwrap().router(), "/metrics").await;
    assert_eq!(answer.status, 404);
    let handle = prometheus::recorder().unwrap().build_recorder().handle();
    let api = builder()
        .prometheus(handle)
        .authorize(Nobody)
        .build()
        .unwrap();
    assert_eq!(get(&api.router(), "/metrics").await.status, 403);
    assert_eq!(
        get(&api.router(), "/ready").await.json()["code"],
        Value::Null
    );
}

fn nap() -> NewJob {
    let nap = Nap {
        ms: 1,
        fails: false,
    };
    NewJob::new("nap", &nap)
}

/// Returns the value of a gauge in the text format of Prometheus.
fn gauge(handle: &PrometheusHandle, name: &str) -> Option<String> {
    let text = handle.render();
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
    values.find_map(|value| value.strip_prefix(' ').map(str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn due_jobs_without_a_live_node_are_reported_alike_everywhere() {
    let recorder = prometheus::recorder().unwrap().build_recorder();
    let handle = recorder.handle();
    let _installed = ::metrics::set_default_local_recorder(&recorder);
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(store.clone()));
    let api = Api::builder(client.clone()).build().unwrap();
    let router = api.router();
    let judged = async |nothing_runs: bool| {
        let as_wanted = |overview: &Value| {
            overview["nothing_runs"] == nothing_runs && overview["due_at"].is_string()
        };
        until(&router, "/api/overview", as_wanted).await;
        let ready = get(&router, "/ready").await;
        let (status, reasons) = match nothing_runs {
            true => (503, json!(["nothing_runs"])),
            false => (200, Value::Null),
        };
        assert_eq!(ready.status, status, "{ready:?}");
        assert_eq!(ready.json()["reasons"], reasons);
        let shown = if nothing_runs { "1" } else { "0" };
        let gauge = gauge(&handle, "ratchet_nothing_runs");
        assert_eq!(gauge.as_deref(), Some(shown));
    };
    // No job is due, so the API reports no problem although no node runs.
    judged(false).await;
    client.pause_queue("paused").await.unwrap();
    let paused = client.enqueue(nap().queue("paused")).await;
    let later = client.enqueue(nap().delay(3_600 * SECOND)).await;
    assert!(paused.is_ok() && later.is_ok());
    tokio::time::sleep(60 * SECOND).await;
    judged(false).await;
    client.enqueue(nap()).await.unwrap();
    judged(true).await;
    // An API that was built with `ready_while_stranded` stays ready.
    let other = Api::builder(client.clone()).ready_while_stranded();
    let other = other.build().unwrap().router();
    until(&other, "/api/overview", |seen| seen["nothing_runs"] == true).await;
    assert_eq!(get(&other, "/ready").await.status, 200);
    let node = node(store, "a");
    let run = tokio::spawn({
        let node = node.clone();
        async move { node.run().await }
    });
    judged(false).await;
    // The only live node crashes.
    run.abort();
    let _ = run.await;
    client.enqueue(nap()).await.unwrap();
    judged(true).await;
}
