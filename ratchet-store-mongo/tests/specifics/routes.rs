//! Route numbers that a restore frees and that other routes get afterwards.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use ratchet_conformance::kit::{enqueue, request_all};
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

/// Simulates the restore of a backup that is older than the second route. Afterwards, another route
/// gets the number of the second route.
async fn restore(space: &Space) -> Checked<MongoStore> {
    let routes = space.of_majority("routes");
    routes.delete_one(doc! { "_id": 2 }).await.unwrap();
    space
        .of_majority("jobs")
        .delete_many(doc! {})
        .await
        .unwrap();
    let other = open(space).await;
    enqueue(&other, NewJob::new("other", &1)).await;
    assert_eq!(
        routes
            .count_documents(doc! { "_id": 2, "kind": "other" })
            .await
            .unwrap(),
        1
    );
    other
}

async fn fill(store: &Checked<MongoStore>) {
    enqueue(store, NewJob::new("first", &1)).await;
    enqueue(store, NewJob::new("second", &1)).await;
}

pub(crate) async fn a_number_that_a_restore_gave_away_is_not_used(space: Arc<Space>) {
    let fault = Fault::new(&space, &["find"]).unheard();
    let store = fault
        .builder(&space)
        .wakeups(false)
        .connect()
        .await
        .unwrap();
    fill(&store).await;
    restore(&space).await;
    // A claim detects the restore.
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed[0].claim.route.kind, "other");
    let id = enqueue(&store, NewJob::new("second", &1)).await;
    assert_eq!(kind(&open(&space).await, id).await, "second");
    space
        .of_majority("routes")
        .delete_one(doc! { "_id": 3 })
        .await
        .unwrap();
    let other = open(&space).await;
    enqueue(&other, NewJob::new("third", &1)).await;
    // An enqueue detects the restore after an outage.
    let fault = fault.set().await;
    NodeStore::nodes(&store).await.unwrap();
    fault.lift().await;
    let id = enqueue(&store, NewJob::new("second", &1)).await;
    assert_eq!(kind(&open(&space).await, id).await, "second");
}

pub(crate) async fn a_client_of_the_application_looks_at_the_routes_every_second(
    space: Arc<Space>,
) {
    let client = Client::with_uri_str(&space.url).await.unwrap();
    let store = MongoStore::database_builder(client.database(space.database.name()));
    let store = store.prefix(&space.prefix).connect().await.unwrap();
    fill(&store).await;
    restore(&space).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
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
