//! The log lines of the API.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use http::Request;
use ratchet_core::memory::Fault;
use ratchet_core::{MemoryStore, NewJob, Ratchet};
use ratchet_http::{Api, ClientAddr, Limits, Token};
use serde_json::json;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

use crate::kit::{Anybody, Flaky, SECOND, get, send, until_status};

/// Collects log lines while it is installed as the `tracing` subscriber.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn install(&self, level: Level) -> DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Returns the collected lines of this package, and clears the log.
    fn take(&self) -> Vec<String> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8(std::mem::take(&mut *bytes)).unwrap();
        let own = text.lines().filter(|line| line.contains("ratchet_http"));
        own.map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_database_is_logged_once_and_its_end_too() {
    let log = Log::default();
    let _installed = log.install(Level::WARN);
    let store = Flaky::new();
    let api = Api::builder(Ratchet::client(Arc::new(store.store.clone())));
    let router = api.build().unwrap().router();
    until_status(&router, "/ready", 200).await;
    for _ in 0..2 {
        assert_eq!(log.take(), [""; 0]);
        store.take_away(true);
        until_status(&router, "/ready", 503).await;
        for _ in 0..60 {
            assert_eq!(get(&router, "/api/jobs").await.status, 503);
            tokio::time::sleep(SECOND).await;
        }
        let lines = log.take();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("the database does not respond"),
            "{lines:?}"
        );
        store.take_away(false);
        until_status(&router, "/ready", 200).await;
        tokio::time::sleep(60 * SECOND).await;
        let lines = log.take();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("the database responds again"),
            "{lines:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_given_up_is_logged() {
    let log = Log::default();
    let _installed = log.install(Level::INFO);
    let store = MemoryStore::new().with_faults(|_| Fault::Delay(60 * SECOND));
    let api = Api::builder(Ratchet::client(Arc::new(store)))
        .authorize(Anybody)
        .limits(Limits::default().request_timeout(SECOND));
    let router = api.build().unwrap().router();
    let request = Request::post("/api/queues/q/pause").body(Body::empty());
    assert_eq!(send(&router, request.unwrap()).await.status, 503);
    let lines = log.take();
    let of_write = lines.iter().find(|line| line.contains("PauseQueue"));
    assert!(
        of_write.is_some_and(|line| line.contains("unknown: the request was dropped")),
        "{lines:?}"
    );
}

#[tokio::test]
async fn writes_are_logged_with_client_action_and_outcome() {
    let log = Log::default();
    let _installed = log.install(Level::INFO);
    let client = Ratchet::client(Arc::new(MemoryStore::new()));
    let job = client.enqueue(NewJob::new("k", &1)).await.unwrap().id();
    let api = Api::builder(client).authorize(Token::new("right"));
    let router = api.build().unwrap().router();
    let post = async |path: &str, authorization: Option<&str>, body: &serde_json::Value| {
        let mut request = Request::post(path).extension(ClientAddr([192, 0, 2, 7].into()));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let body = match body.is_null() {
            true => Body::empty(),
            false => Body::from(body.to_string()),
        };
        let request = request.header("content-type", "application/json");
        send(&router, request.body(body).unwrap()).await;
        log.take()
    };
    let none = json!(null);
    let cancel = format!("/api/jobs/{job}/cancel");
    // The user name is `eve\n`, and the password is `right`.
    let named = Some("Basic ZXZlCjpyaWdodA==");
    let lines = post(&cancel, named, &none).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        " INFO ",
        "client=192.0.2.7",
        "user=\"eve\\n\"",
        "action=CancelJob",
        &cancel,
        "outcome=\"200\"",
    ] {
        assert!(
            lines[0].contains(part),
            "expected {part} in the first line of {lines:?}"
        );
    }
    let again = post(&cancel, Some("Bearer right"), &none).await;
    assert!(again[0].contains("409 Conflict"), "{again:?}");
    let bulk = json!({"action": "delete", "filter": {"kind": "k"}});
    let lines = post("/api/jobs/bulk", Some("Bearer right"), &bulk).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["action=BulkJobs", "200 Delete", "limit=10000", "changed=1"] {
        assert!(
            lines[0].contains(part),
            "expected {part} in the first line of {lines:?}"
        );
    }
    let without = post(&cancel, None, &none).await;
    assert_eq!(without.len(), 1, "{without:?}");
    assert!(without[0].contains("401 Unauthorized"), "{without:?}");
    let wrong = post(&cancel, Some("Bearer wrong"), &none).await;
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(
        wrong[0].contains(" WARN ") && wrong[0].contains("wrong token"),
        "{wrong:?}"
    );
    assert!(
        wrong[0].contains("192.0.2.7") && !wrong[0].contains("Bearer"),
        "{wrong:?}"
    );
    assert!(wrong[1].contains("403 Denied"), "{wrong:?}");
    // The user name is `right` and the password is empty, as `curl -u "$TOKEN:"` sends it.
    let misplaced = post(&cancel, Some("Basic cmlnaHQ6"), &none).await;
    assert!(
        !misplaced.is_empty() && !misplaced.concat().contains("right"),
        "{misplaced:?}"
    );
    let long = format!("/api/jobs/{}/cancel", "x".repeat(30_000));
    for authorization in [named, Some("Bearer other")] {
        let lines = post(&long, authorization, &none).await;
        assert!(!lines.is_empty());
        assert!(lines.iter().all(|line| line.len() < 1_000), "{lines:?}");
    }
    let open = Api::builder(Ratchet::client(Arc::new(MemoryStore::new()))).authorize(Anybody);
    let request = Request::post("/api/queues/q/pause").header("authorization", "Basic cmlnaHQ6");
    let router = open.build().unwrap().router();
    let answer = send(&router, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 200);
    let lines = log.take();
    assert!(lines.len() == 1 && !lines[0].contains("right"), "{lines:?}");
}
