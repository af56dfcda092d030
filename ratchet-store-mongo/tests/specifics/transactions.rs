//! Jobs in transactions of the application.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions};
use mongodb::{Client, ClientSession};
use ratchet_conformance::kit::{assert_kind, enqueue, exists, job, request_all};
use ratchet_core::model::{
    BatchCondition, Condition, Detail, Enqueued, Fenced, Outcome, Settlement,
};
use ratchet_core::store::{Checked, JobStore, WorkflowStore};
use ratchet_core::{BatchId, JobId, JobState, OnConflict, Ratchet, StoreErrorKind};
use ratchet_store_mongo::MongoStore;

use crate::faults::Fault;
use crate::links::under_way;
use crate::open;
use crate::server::Space;

/// Returns the application's client, and a store on it.
pub(crate) async fn application(space: &Space) -> (Client, Checked<MongoStore>) {
    let client = Client::with_uri_str(&space.url).await.unwrap();
    let store = MongoStore::database_builder(client.database(space.database.name()));
    let store = store.prefix(&space.prefix).connect().await.unwrap();
    (client, store)
}

/// Begins a transaction with a write of the application.
pub(crate) async fn begin(space: &Space, client: &Client) -> ClientSession {
    let mut session = client.start_session().await.unwrap();
    let orders = client.database(space.database.name());
    let orders = orders.collection::<Document>(&space.name("orders"));
    orders.insert_one(doc! { "before": 1 }).await.unwrap();
    session.start_transaction().await.unwrap();
    let order = orders.insert_one(doc! { "inside": 1 });
    order.session(&mut session).await.unwrap();
    session
}

async fn orders(space: &Space) -> u64 {
    let orders = space.of_majority("orders");
    orders.count_documents(doc! {}).await.unwrap()
}

pub(crate) async fn a_key_lost_to_others_is_contention(space: Arc<Space>) {
    let (client, store) = application(&space).await;
    let mut session = begin(&space, &client).await;
    let first = enqueue(&store, job().unique_key("u")).await;
    let late = store
        .enqueue_in(&mut session, &[job().unique_key("u")])
        .await;
    assert_kind(&late.unwrap_err(), StoreErrorKind::Contention);
    // The failed enqueue has aborted the transaction, so the application begins it again.
    session.start_transaction().await.unwrap();
    let again = store
        .enqueue_in(&mut session, &[job().unique_key("u")])
        .await;
    assert_eq!(again.unwrap(), [Enqueued::Duplicate(first)]);
    session.commit_transaction().await.unwrap();
}

pub(crate) async fn jobs_need_a_transaction_that_was_begun(space: Arc<Space>) {
    let (client, store) = application(&space).await;
    let mut session = client.start_session().await.unwrap();
    let refused = store.enqueue_in(&mut session, &[job()]).await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Misconfigured);
    let refused = store.enqueue_in(&mut session, &[job().queue("")]).await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Invalid);
    session.start_transaction().await.unwrap();
    let other = open(&space).await.enqueue_in(&mut session, &[job()]).await;
    let other = other.unwrap_err();
    assert_kind(&other, StoreErrorKind::Misconfigured);
    assert!(other.to_string().contains("from_database"), "{other}");
    store.enqueue_in(&mut session, &[job()]).await.unwrap();
    session.commit_transaction().await.unwrap();
    assert_eq!(
        store.claim_next_batch(&request_all()).await.unwrap().len(),
        1
    );
}

pub(crate) async fn a_lane_held_by_a_transaction_holds_up_no_other(space: Arc<Space>) {
    let store = open(&space).await;
    let heads = [job().lane("held"), job().lane("free")];
    let behind = [job().lane("held"), job().lane("free")];
    store.enqueue(&heads).await.unwrap();
    store.enqueue(&behind).await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed.len(), 2);
    // A transaction of the application locks the blocked job of the lane `held`.
    let (client, _) = application(&space).await;
    let mut session = begin(&space, &client).await;
    let jobs = session.client().database(space.database.name());
    let jobs = jobs.collection::<Document>(&space.name("jobs"));
    let next = doc! { "lane": "held", "state": 1 };
    let touch = jobs.update_one(next, doc! { "$set": { "touched": true } });
    assert_eq!(touch.session(&mut session).await.unwrap().matched_count, 1);
    let done = |job: &ratchet_core::model::ClaimedJob| {
        Settlement::new(job.claim.token, Outcome::Succeeded { result: None })
    };
    let done: Vec<Settlement> = claimed.iter().map(done).collect();
    // The call fails long before its deadline, so that the caller has time to settle the claims
    // separately.
    let contends = store.settle(&done).await.unwrap_err();
    assert_kind(&contends, StoreErrorKind::Contention);
    let free = store.get(&[behind[1].id()], Detail::Whole).await.unwrap()[0].clone();
    assert_eq!(free.unwrap().state, JobState::Pending);
    session.abort_transaction().await.unwrap();
    assert_eq!(store.settle(&done).await.unwrap(), [Fenced::Applied; 2]);
    let held = store.get(&[behind[0].id()], Detail::Whole).await.unwrap()[0].clone();
    assert_eq!(held.unwrap().state, JobState::Pending);
}

pub(crate) async fn a_producer_that_stops_before_its_commit_holds_no_lane(space: Arc<Space>) {
    let plain = open(&space).await;
    let head = enqueue(&plain, job().lane("l")).await;
    enqueue(&plain, job()).await;
    let claimed = plain.claim_next_batch(&request_all()).await.unwrap();
    let fault = Fault::new(&space, &["insert"]).late(6_000);
    let producer = fault.open(&space).await;
    let name = fault.name().to_owned();
    let fault = fault.set().await;
    let producing = tokio::spawn(async move { producer.enqueue(&[job().lane("l")]).await });
    let storing = doc! { "command.insert": space.name("jobs") };
    under_way(&space, &name, storing).await;
    let done = claimed
        .iter()
        .map(|job| Settlement::new(job.claim.token, Outcome::Succeeded { result: None }));
    let done: Vec<Settlement> = done.collect();
    assert_eq!(plain.settle(&done).await.unwrap(), [Fenced::Applied; 2]);
    let ended = plain.get(&[head], Detail::Whole).await.unwrap()[0].clone();
    assert_eq!(ended.unwrap().state, JobState::Succeeded);
    // The producer tries again, and now sees that the head of the lane has ended.
    let next = producing.await.unwrap().unwrap()[0].id();
    fault.lift().await;
    let next = plain.get(&[next], Detail::Whole).await.unwrap()[0].clone();
    assert_eq!(next.unwrap().state, JobState::Pending);
}

pub(crate) async fn what_is_refused_leaves_nothing_in_the_transaction(space: Arc<Space>) {
    let (client, store) = application(&space).await;
    let (closed, missing) = (BatchId::new(), BatchId::new());
    store.create_batch(closed).await.unwrap();
    store.close_batch(closed).await.unwrap();
    let parent = enqueue(&store, job()).await;
    let nobody = JobId::new();
    let keyed = || job().idempotency_key("i").unique_key("u");
    let refused = [
        vec![keyed(), job().in_batch(closed)],
        vec![keyed(), job().in_batch(missing)],
        vec![job().lane("l"), job().after(nobody, Condition::Ended)],
        vec![
            job().lane("l").after(parent, Condition::Ended),
            job().after_batch(missing, BatchCondition::Ended),
        ],
        // It would make claims wait for the transaction.
        vec![keyed().on_conflict(OnConflict::Replace)],
    ];
    let mut session = begin(&space, &client).await;
    for jobs in &refused {
        let error = store.enqueue_in(&mut session, jobs).await.unwrap_err();
        assert_kind(&error, StoreErrorKind::Invalid);
    }
    session.commit_transaction().await.unwrap();
    assert_eq!(orders(&space).await, 2);
    for job in refused.iter().flatten() {
        assert!(!exists(&store, job.id()).await);
    }
    for collection in ["keys", "lanes", "links", "parents"] {
        let rows = space.of_majority(collection);
        let count = rows.count_documents(doc! {}).await.unwrap();
        assert_eq!(count, 0, "{collection}");
    }
    let next = enqueue(&store, job().lane("l")).await;
    let next = store.get(&[next], Detail::Whole).await.unwrap()[0].clone();
    assert_eq!(next.unwrap().state, JobState::Pending);
}

pub(crate) async fn what_fails_behind_the_first_write_cannot_be_committed(space: Arc<Space>) {
    // The write of the key succeeds. The fault delays the insert of the job beyond the deadline.
    let fault = Fault::new(&space, &["insert"]).late(3_000).behind(1);
    enqueue(&open(&space).await, job()).await;
    let mut options = ClientOptions::parse(&space.url).await.unwrap();
    options.app_name = Some(fault.name().to_owned());
    let client = Client::with_options(options).unwrap();
    let store = MongoStore::database_builder(client.database(space.database.name()));
    let store = store.prefix(&space.prefix).deadline(Duration::from_secs(2));
    let store = store.connect().await.unwrap();
    let mut session = begin(&space, &client).await;
    let fault = fault.set().await;
    let keyed = job().idempotency_key("i");
    let keyed = std::slice::from_ref(&keyed);
    let error = store.enqueue_in(&mut session, keyed).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    fault.lift().await;
    session.commit_transaction().await.unwrap_err();
    assert_eq!(orders(&space).await, 1);
    let keys = space.of_majority("keys");
    assert_eq!(keys.count_documents(doc! {}).await.unwrap(), 0);
    // The application repeats the whole transaction.
    session.start_transaction().await.unwrap();
    let enqueued = store.enqueue_in(&mut session, keyed).await.unwrap();
    assert_eq!(enqueued, [Enqueued::Created(keyed[0].id())]);
    session.commit_transaction().await.unwrap();
    assert!(exists(&store, keyed[0].id()).await);
}

pub(crate) async fn a_session_that_can_have_no_transaction_is_misconfigured(space: Arc<Space>) {
    let (client, store) = application(&space).await;
    let session = client.start_session().snapshot(true).await.unwrap();
    cannot_begin(&store, session, "snapshot").await;
    // The write concern of this client allows no transactions. The store must reject the call,
    // because it would store the jobs outside a transaction.
    let mut options = ClientOptions::parse(&space.url).await.unwrap();
    options.write_concern = Some(Acknowledgment::Nodes(0).into());
    let client = Client::with_options(options).unwrap();
    let store = MongoStore::database_builder(client.database(space.database.name()));
    let store = store.prefix(&space.prefix).connect().await.unwrap();
    let session = client.start_session().await.unwrap();
    cannot_begin(&store, session, "unacknowledged").await;
}

async fn cannot_begin(store: &Checked<MongoStore>, mut session: ClientSession, why: &str) {
    session.start_transaction().await.unwrap_err();
    let jobs = [job(), job().idempotency_key("i")];
    let refused = store.enqueue_in(&mut session, &jobs).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    let text = refused.to_string();
    assert!(text.contains("no transaction can be begun"), "{text}");
    assert!(text.contains(why), "{text}");
    for job in &jobs {
        assert!(!exists(store, job.id()).await);
    }
}

pub(crate) async fn a_client_enqueues_in_transactions(space: Arc<Space>) {
    let (application, store) = application(&space).await;
    let client = Ratchet::client(Arc::new(store.clone()));
    let mut session = begin(&space, &application).await;
    let enqueued = client.enqueue_in(&mut session, job()).await.unwrap();
    assert!(!exists(&store, enqueued.id()).await);
    session.commit_transaction().await.unwrap();
    assert!(exists(&store, enqueued.id()).await);
}
