//! `/metrics`.

use std::sync::Arc;

use ratchet_core::{MemoryStore, NewJob, Ratchet};
use ratchet_http::{Access, Api, Authorizer, Denied, Parts, prometheus};

use crate::kit::{Nap, Running, get, node, until};

fn builder() -> ratchet_http::ApiBuilder {
    Api::builder(Ratchet::client(Arc::new(MemoryStore::new())))
}

/// Shows nothing to anybody.
struct Nobody;

#[async_trait::async_trait]
impl Authorizer for Nobody {
    async fn authorize(&self, _: &Parts, _: Access) -> Result<(), Denied> {
        Err(Denied::forbidden())
    }
}

#[tokio::test]
async fn what_a_node_counts_is_there_for_prometheus() {
    // The tests of this file run in processes of their own, or share the recorder: it holds all.
    let handle = prometheus::install().unwrap();
    assert!(prometheus::install().is_err(), "a process has one recorder");
    let node = node(MemoryStore::new(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .prometheus(handle)
        .build()
        .unwrap();
    let router = api.router();
    let running = Running::start(&node);
    let nap = Nap {
        ms: 1,
        fails: false,
    };
    node.enqueue(NewJob::new("nap", &nap)).await.unwrap();
    let ended = |overview: &serde_json::Value| overview["counts"]["succeeded"] == 1;
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
async fn without_a_recorder_there_is_nothing_and_it_is_not_for_everybody() {
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
        serde_json::Value::Null
    );
}
