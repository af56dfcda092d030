//! Two concurrent claims that need permits of one resource; the transaction of one is held open.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use mongodb::{Client, ClientSession, Collection};
use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::Detail;
use ratchet_core::store::{Checked, IfKnown, JobStore, PermitStore};
use ratchet_core::{JobId, JobState, Name, Priority};
use ratchet_store_mongo::MongoStore;

use crate::open;
use crate::server::Space;

fn api() -> Name {
    Name::new("permit", "api").unwrap()
}

/// Returns a store with a short deadline on existing collections.
async fn hasty(space: &Space) -> Checked<MongoStore> {
    open(space).await;
    let builder = space.builder().deadline(Duration::from_secs(3));
    builder.connect().await.unwrap()
}

/// Simulates another process in the middle of a claim: its transaction has written to the document
/// of the resource.
async fn claimer(space: &Space) -> (ClientSession, Collection<Document>) {
    let client = Client::with_uri_str(&space.url).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let database = client.database(space.database.name());
    let permits = database.collection::<Document>(&space.name("permits"));
    let meet = permits.update_one(doc! { "_id": "api" }, doc! { "$inc": { "claims": 1 } });
    assert_eq!(meet.session(&mut session).await.unwrap().matched_count, 1);
    (session, database.collection(&space.name("jobs")))
}

async fn state(store: &Checked<MongoStore>, id: JobId) -> JobState {
    store.get(&[id], Detail::Whole).await.unwrap()[0]
        .clone()
        .unwrap()
        .state
}

pub(crate) async fn a_claim_waits_for_who_takes_permits_of_the_same_resource(space: Arc<Space>) {
    let store = hasty(&space).await;
    store.set_permits(&api(), 1, IfKnown::Change).await.unwrap();
    let low = job().permit("api").priority(Priority::Lowest);
    let taken = enqueue(&store, low).await;
    let wanted = enqueue(&store, job().permit("api")).await;
    let (mut session, jobs) = claimer(&space).await;
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: taken.as_bytes().to_vec(),
    };
    // The job runs on a route that this store does not know yet.
    let running = doc! { "state": 3, "route": 999, "claim_seq": 1_i64, "claimed_at": 1_i64 };
    let take = doc! { "$set": running };
    let take = jobs.update_one(doc! { "_id": id }, take);
    take.session(&mut session).await.unwrap();
    // Only the conflict prevents this claim, which still sees a free permit.
    let late = store.claim_next_batch(&request_all()).await.unwrap_err();
    assert!(late.is_transient(), "{late}");
    assert_eq!(state(&store, wanted).await, JobState::Pending);
    session.commit_transaction().await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert!(claimed.is_empty(), "{claimed:?}");
    assert_eq!(store.permits().await.unwrap()[0].held, 1);
}

pub(crate) async fn a_claim_by_the_old_number_meets_the_new_one(space: Arc<Space>) {
    let store = open(&space).await;
    store.set_permits(&api(), 1, IfKnown::Change).await.unwrap();
    let (mut session, _) = claimer(&space).await;
    // The change waits for the claim, which began earlier.
    let changing = tokio::spawn({
        let store = store.clone();
        async move { store.set_permits(&api(), 0, IfKnown::Change).await }
    });
    let other = enqueue(&store, job()).await;
    assert!(!changing.is_finished());
    session.commit_transaction().await.unwrap();
    changing.await.unwrap().unwrap();
    enqueue(&store, job().permit("api")).await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let claimed: Vec<JobId> = claimed.iter().map(|job| job.claim.token.job).collect();
    assert_eq!(claimed, [other]);
}
