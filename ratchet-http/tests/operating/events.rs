//! `/api/events`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use ratchet_core::{MemoryStore, NewJob, Ratchet};
use ratchet_http::{Api, ClientAddr, Limits};
use serde_json::Value;
use tower::ServiceExt;

use crate::kit::{Flaky, Running, SECOND, get, node, until_status};

/// One client of the event stream.
struct Client {
    body: Body,
    text: String,
}

impl Client {
    async fn connect(router: &Router) -> Self {
        let request = Request::get("/api/events").body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            body: response.into_body(),
            text: String::new(),
        }
    }

    /// Returns the next event or comment, or `None` if the stream has ended.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = block.lines();
                    let line = lines.filter_map(|line| line.strip_prefix(name)).next();
                    line.map(str::to_owned)
                };
                let event = (field("event: "), field("data: "));
                let name = event.0.unwrap_or_else(|| block.to_owned());
                let data = event
                    .1
                    .map_or(Value::Null, |data| serde_json::from_str(&data).unwrap());
                self.text = rest.to_owned();
                return Some((name, data));
            }
            let frame = self.body.frame().await?.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
    }

    /// Returns the next event with this name.
    async fn hear(&mut self, name: &str) -> Value {
        let heard = async {
            loop {
                let (event, data) = self.next().await.expect("the event stream should not end");
                if event == name {
                    return data;
                }
            }
        };
        tokio::time::timeout(60 * SECOND, heard)
            .await
            .unwrap_or_else(|_| panic!("expected the event `{name}` within 60 s"))
    }
}

fn api_over(store: &MemoryStore, limits: Limits) -> Api {
    let client = Ratchet::client(Arc::new(store.clone()));
    Api::builder(client).limits(limits).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn new_and_changed_jobs_and_nodes_are_told() {
    let store = MemoryStore::new();
    let api = api_over(&store, Limits::default());
    let router = api.router();
    let client = api_client(&store);
    let mut listener = Client::connect(&router).await;
    assert_eq!(listener.next().await.unwrap().0, "retry: 3000");
    let tick = listener.hear("tick").await;
    assert_eq!(tick["live_nodes"], 0);
    listener.hear("tick").await;
    let job = client
        .enqueue(NewJob::new("mail", &"secret").queue("post"))
        .await
        .unwrap()
        .id();
    let told = listener.hear("jobs").await;
    assert_eq!(told["jobs"][0]["id"], job.to_string());
    assert_eq!(told["jobs"][0]["queue"], "post");
    assert_eq!(told["dropped"], 0);
    assert!(!told.to_string().contains("secret"));
    client.cancel(job).await.unwrap();
    let told = listener.hear("jobs").await;
    assert_eq!(told["jobs"][0]["state"], "cancelled");
    let tick = listener.hear("tick").await;
    assert_eq!(tick["newest"], job.to_string());
    let running = Running::start(&node(store.clone(), "a"));
    let told = listener.hear("nodes").await;
    assert_eq!(told["live_nodes"], 1);
    running.left().await;
}

fn api_client(store: &MemoryStore) -> ratchet_core::Client {
    Ratchet::client(Arc::new(store.clone()))
}

#[tokio::test(start_paused = true)]
async fn many_clients_cost_the_database_what_one_does() {
    let store = Flaky::new();
    let api = api_over(&store.store, Limits::default());
    let router = api.router();
    let mut calls = Vec::new();
    let mut clients: Vec<tokio::task::JoinHandle<()>> = Vec::new();
    for more in [1, 99] {
        for _ in 0..more {
            let mut client = Client::connect(&router).await;
            clients.push(tokio::spawn(async move {
                while client.next().await.is_some() {}
            }));
        }
        tokio::time::sleep(10 * SECOND).await;
        let before = store.calls();
        tokio::time::sleep(60 * SECOND).await;
        calls.push(store.calls() - before);
    }
    assert!(calls[1] <= calls[0] + 5, "{calls:?}");
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    for client in clients {
        let _ = client.await;
    }
    tokio::time::sleep(120 * SECOND).await;
    let before = store.calls();
    tokio::time::sleep(60 * SECOND).await;
    let quiet = store.calls() - before;
    assert!(
        quiet < calls[0] / 2,
        "expected less than half of the calls without a client: {quiet} without, {calls:?} with one"
    );
}

#[tokio::test(start_paused = true)]
async fn there_are_only_so_many_seats_and_they_are_free_again() {
    let store = MemoryStore::new();
    let api = api_over(&store, Limits::default().event_clients(2));
    let router = api.router();
    let one = Client::connect(&router).await;
    let _other = Client::connect(&router).await;
    let refused = get(&router, "/api/events").await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["code"], "too_many_clients");
    assert!(refused.headers.contains_key("retry-after"));
    drop(one);
    tokio::time::sleep(Duration::from_millis(1)).await;
    Client::connect(&router).await;
}

#[tokio::test(start_paused = true)]
async fn one_client_does_not_take_all_seats() {
    let store = MemoryStore::new();
    let api = api_over(&store, Limits::default().event_clients(4));
    let router = api.router();
    let listen = async |client: u8| {
        let request = Request::get("/api/events").extension(ClientAddr([192, 0, 2, client].into()));
        let request = request.body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap()
    };
    let mut held = Vec::new();
    for (client, status) in [(1, 200), (1, 200), (1, 200), (1, 503), (2, 200), (2, 503)] {
        let response = listen(client).await;
        assert_eq!(response.status(), status, "client {client}");
        held.push(response);
    }
    held.truncate(4);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(listen(1).await.status(), 503);
    assert_eq!(listen(3).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_pauses_is_told_what_it_missed_and_one_that_stops_loses_its_seat() {
    let store = MemoryStore::new();
    let limits = Limits::default()
        .event_clients(1)
        .write_timeout(60 * SECOND);
    let api = api_over(&store, limits);
    let router = api.router();
    let mut client = Client::connect(&router).await;
    client.hear("tick").await;
    tokio::time::sleep(50 * SECOND).await;
    let lagged = client.hear("lagged").await;
    assert!(lagged["missed"].as_u64().unwrap() >= 20, "{lagged}");
    client.hear("tick").await;
    // The client keeps its connection open but no longer reads. After the write timeout, the server
    // accepts another client.
    tokio::time::sleep(100 * SECOND).await;
    Client::connect(&router).await;
}

#[tokio::test(start_paused = true)]
async fn streams_live_on_without_the_database_and_end_with_the_api() {
    let store = Flaky::new();
    let api = api_over(&store.store, Limits::default());
    let router = api.router();
    until_status(&router, "/ready", 200).await;
    store.take_away(true);
    let mut client = Client::connect(&router).await;
    for _ in 0..5 {
        client.hear("tick").await;
    }
    api.close();
    let ended = async { while client.next().await.is_some() {} };
    tokio::time::timeout(SECOND, ended).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_is_filled_with_comments() {
    let store = Flaky::new();
    store.take_away(true);
    let api = api_over(&store.store, Limits::default());
    let mut client = Client::connect(&api.router()).await;
    assert_eq!(client.next().await.unwrap().0, "retry: 3000");
    let began = ratchet_core::time::monotonic();
    assert_eq!(client.next().await.unwrap().0, ":");
    assert_eq!(began.elapsed().as_secs(), 15);
}
