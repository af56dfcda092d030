//! Route numbers that a restore frees and that other routes get afterwards.

use std::sync::Arc;

use mongodb::bson::doc;
use ratchet_conformance::kit::enqueue;
use ratchet_core::model::{Detail, JobSelector};
use ratchet_core::store::{Checked, DiagnosticStore, JobStore, NodeStore};
use ratchet_core::{JobAction, JobId, NewJob};
use ratchet_store_mongo::MongoStore;

use crate::faults::Fault;
use crate::open;
use crate::server::Space;

async fn kind(store: &Checked<MongoStore>, id: JobId) -> String {
    let job = store.get(&[id], Detail::Whole).await.unwrap()[0]
        .clone()
        .unwrap();
    job.spec.route.kind.to_string()
}

async fn fill(store: &Checked<MongoStore>) {
    enqueue(store, NewJob::new("first", &1)).await;
    enqueue(store, NewJob::new("second", &1)).await;
}

/// An enqueue uses cached routes for a second, but not after an outage.
pub(crate) async fn a_lost_connection_makes_the_cache_compare_its_routes(space: Arc<Space>) {
    let fault = Fault::new(&space, &["find"]).unheard();
    let store = fault.builder(&space).wakeups(false).connect();
    let store = store.await.unwrap();
    fill(&store).await;
    let routes = space.of_majority("routes");
    routes.delete_one(doc! { "_id": 2 }).await.unwrap();
    enqueue(&open(&space).await, NewJob::new("other", &1)).await;
    let fault = fault.set().await;
    NodeStore::nodes(&store).await.unwrap();
    fault.lift().await;
    let id = enqueue(&store, NewJob::new("second", &1)).await;
    assert_eq!(kind(&open(&space).await, id).await, "second");
}

pub(crate) async fn jobs_of_a_route_that_does_not_exist_are_found(space: Arc<Space>) {
    let store = open(&space).await;
    fill(&store).await;
    assert!(
        store
            .findings()
            .await
            .unwrap()
            .iter()
            .all(|one| one.code != "lost_route")
    );
    // A job that has ended needs no route.
    let ended = enqueue(&store, NewJob::new("second", &1)).await;
    let ended = JobSelector::Ids(vec![ended]);
    store.act(&ended, JobAction::Cancel).await.unwrap();
    let routes = space.of_majority("routes");
    routes.delete_one(doc! { "_id": 2 }).await.unwrap();
    let findings = store.findings().await.unwrap();
    let found = findings
        .iter()
        .find(|one| one.code == "lost_route")
        .unwrap();
    assert!(found.detail.as_deref() == Some("1 of route 2"), "{found:?}");
}
