//! Helpers for the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use ratchet_core::memory::Fault;
use ratchet_core::{Job, JobContext, JobResult, MemoryStore, Node, NodeBuilder, Ratchet};
use ratchet_http::{Access, Authorizer, Denied};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::ServiceExt;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// An authorizer that allows every request.
pub(crate) struct Anybody;

#[async_trait::async_trait]
impl Authorizer for Anybody {
    async fn authorize(&self, _: &Parts, _: Access) -> Result<(), Denied> {
        Ok(())
    }
}

/// A job that takes `ms` milliseconds. It then fails if `fails` is true, and succeeds otherwise.
#[derive(Serialize, Deserialize)]
pub(crate) struct Nap {
    pub(crate) ms: u64,
    pub(crate) fails: bool,
}

impl Job for Nap {
    const KIND: &'static str = "nap";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        if self.fails {
            return Err("bad dream".into());
        }
        Ok(())
    }
}

/// A store that a test can make unreachable. It counts the calls of its operations.
#[derive(Clone)]
pub(crate) struct Flaky {
    pub(crate) store: MemoryStore,
    away: Arc<AtomicBool>,
    counts: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
}

impl Flaky {
    pub(crate) fn new() -> Self {
        let (away, counts, calls) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let (is_away, counted, called) =
            (Arc::clone(&away), Arc::clone(&counts), Arc::clone(&calls));
        let store = MemoryStore::new().with_faults(move |operation| {
            called.fetch_add(1, Ordering::SeqCst);
            if operation == "queues" {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            if is_away.load(Ordering::SeqCst) {
                Fault::ErrorBeforeCommit
            } else {
                Fault::None
            }
        });
        Self {
            store,
            away,
            counts,
            calls,
        }
    }

    pub(crate) fn take_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// Returns how often the API has counted the jobs.
    pub(crate) fn counts(&self) -> u64 {
        self.counts.load(Ordering::SeqCst)
    }

    /// Returns the number of calls to the store.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }
}

/// Sends a GET request to a router.
pub(crate) async fn get(router: &Router, uri: &str) -> Answer {
    send(router, Request::get(uri).body(Body::empty()).unwrap()).await
}

/// Sends a request to a router.
pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

/// A running node with a handler for `Nap`. Runs until a test stops it.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(node: &Node) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let running = node.clone();
        let task = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            running.run_until(shutdown).await.unwrap();
        });
        Self {
            stop: Some(stop),
            task,
        }
    }

    /// Requests the node to drain.
    pub(crate) fn stop(&mut self) {
        self.stop.take();
    }

    /// Stops the node, and waits until it has left the cluster.
    pub(crate) async fn left(mut self) {
        self.stop();
        self.task.await.unwrap();
    }
}

pub(crate) fn node(store: MemoryStore, label: &str) -> Node {
    build(builder(store).label(label))
}

pub(crate) fn builder(store: MemoryStore) -> NodeBuilder {
    Ratchet::builder(Arc::new(store)).register::<Nap>()
}

pub(crate) fn build(builder: NodeBuilder) -> Node {
    builder.build().unwrap()
}

/// Waits until a GET request returns this status.
pub(crate) async fn until_status(router: &Router, uri: &str, status: u16) -> Answer {
    let answered = async {
        loop {
            let answer = get(router, uri).await;
            if answer.status == status {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(120 * SECOND, answered)
        .await
        .unwrap_or_else(|_| panic!("expected {uri} to return {status} within 120 s"))
}

/// Waits until a GET request returns JSON for which `wanted` returns true.
pub(crate) async fn until(router: &Router, uri: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let answered = async {
        loop {
            let answer = get(router, uri).await;
            if answer.status == 200 && wanted(&answer.json()) {
                return answer.json();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(120 * SECOND, answered)
        .await
        .unwrap_or_else(|_| panic!("expected {uri} to return the JSON within 120 s"))
}
