//! Random requests: every response matches the OpenAPI document, and the number of jobs changes
//! only as the responses report.

use std::sync::Arc;

use http::Method;
use proptest::prelude::*;
use ratchet_core::{MemoryStore, SharedStore};
use ratchet_store_sqlite::SqliteStore;

use crate::draft::{Draft, Sent, drafts};
use crate::kit::{self, Answer, World};

/// Returns the change in the number of jobs that the response reports.
fn told(path: &str, sent: &Sent, answer: &Answer) -> i64 {
    if answer.status != http::StatusCode::OK {
        return 0;
    }
    if path.ends_with("/trigger") {
        return i64::from(answer.json["created"] == true);
    }
    if path.ends_with("/delete") {
        return -i64::from(answer.json["outcome"] == "deleted");
    }
    let deletes =
        matches!(sent, Sent::Bulk(body, _) | Sent::Json(body) if body["action"] == "delete");
    if path == "/api/jobs/bulk" && deletes {
        return -answer.json["changed"].as_i64().unwrap();
    }
    0
}

/// Sends the requests to an API with a running node, and compares the jobs with the responses.
async fn play(store: SharedStore, drafts: &[Draft]) {
    let world = World::over(Arc::clone(&store));
    let things = kit::populate(&world.client).await;
    let before = i64::try_from(world.count().await).unwrap();
    let node = kit::node(&store);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let id = node.id().to_string();
    let running = tokio::spawn(async move { node.run_until(stopped).await });
    let mut change = 0;
    for draft in drafts {
        let request = draft.request(&things, &id);
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = world.send(request).await;
        if method == Method::POST {
            change += told(&path, &draft.body, &answer);
        }
    }
    drop(stop);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), running).await;
    ended.unwrap().unwrap().unwrap();
    let after = i64::try_from(world.count().await).unwrap();
    assert_eq!(
        after,
        before + change,
        "expected the number of jobs to change as the responses reported"
    );
    // All remaining jobs can still be read.
    let page = world.get("/api/jobs?limit=200").await.ok();
    assert_eq!(
        i64::try_from(page["jobs"].as_array().unwrap().len()).unwrap(),
        after.min(200)
    );
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn whatever_is_asked_is_answered_and_nothing_is_lost(drafts in drafts(120)) {
        runtime().block_on(play(Arc::new(MemoryStore::new()), &drafts));
    }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn whatever_is_asked_is_answered_and_nothing_is_lost_on_sqlite(drafts in drafts(60)) {
        runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let store = SqliteStore::builder(dir.path().join("jobs.db")).connect().await.unwrap();
            play(Arc::new(store), &drafts).await;
        });
    }
}
