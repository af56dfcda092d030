//! A database that was restored while a process used it, so that it has fewer or other routes than
//! the process has cached.

use ratchet_conformance::kit::{enqueue, request_all};
use ratchet_core::model::{JobFilter, PageRequest};
use ratchet_core::store::{DiagnosticStore, JobStore, QueueStore};
use ratchet_core::{Name, NewJob};
use std::time::Duration;

use crate::Place;

const CLEAR: &str = "DELETE FROM ratchet_jobs; DELETE FROM ratchet_routes WHERE id > 1";
const TAKE: &str = "INSERT INTO ratchet_routes (queue, kind, stamp) VALUES ('default', 'other', 7)";

fn of(kind: &str) -> NewJob {
    NewJob::new(kind, &1)
}

#[tokio::test]
async fn jobs_go_to_their_own_route_whatever_the_file_has_lost() {
    for taken in [false, true] {
        let place = Place::new();
        let store = place.open().await;
        enqueue(&store, of("first")).await;
        enqueue(&store, of("mine")).await;
        store.due_routes(Duration::ZERO).await.unwrap();
        place.sql().execute_batch(CLEAR).unwrap();
        if taken {
            place.sql().execute(TAKE, []).unwrap();
        }
        let id = enqueue(&store, of("mine")).await;
        let due = store.due_routes(Duration::ZERO).await.unwrap();
        let kinds: Vec<&str> = due.iter().map(|one| one.route.kind.as_str()).collect();
        assert_eq!(kinds, ["mine"], "taken: {taken}");
        let filter = JobFilter::all().kind(Name::new("kind", "mine").unwrap());
        let listed = store.list(&filter, &PageRequest::first(9)).await.unwrap();
        assert_eq!(listed.jobs.len(), 1, "taken: {taken}");
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        assert_eq!(claimed[0].claim.token.job, id);
        assert_eq!(claimed[0].claim.route.kind.as_str(), "mine");
    }
}

#[tokio::test]
async fn a_warm_store_claims_what_the_routes_are_now() {
    let place = Place::new();
    let store = place.open().await;
    enqueue(&store, of("first")).await;
    enqueue(&store, of("mine")).await;
    place.sql().execute_batch(CLEAR).unwrap();
    place.sql().execute(TAKE, []).unwrap();
    enqueue(&place.open().await, of("other")).await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].claim.route.kind.as_str(), "other");
}

#[tokio::test]
async fn jobs_without_a_route_are_found() {
    let place = Place::new();
    let store = place.open().await;
    enqueue(&store, of("first")).await;
    enqueue(&store, of("mine")).await;
    let lost = async || {
        let mut findings = store.findings().await.unwrap();
        findings.retain(|finding| finding.code == "lost_route");
        findings
    };
    assert_eq!(lost().await, []);
    let lose = "DELETE FROM ratchet_routes WHERE kind = 'mine'";
    place.sql().execute(lose, []).unwrap();
    assert_eq!(lost().await[0].detail.as_deref(), Some("1 of route 2"));
}
