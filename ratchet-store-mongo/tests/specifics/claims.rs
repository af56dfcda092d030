//! Claims with changes between their read and their write, and documents that were changed by hand.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::{ClientSession, Collection};
use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{
    ActionOutcome, ClaimRequest, ClaimedJob, Detail, Heartbeat, JobFilter, JobSelector, NodeStatus,
    Outcome, PageRequest, PauseRequest, PauseScope, ReclaimRequest, Settlement,
};
use ratchet_core::store::{Checked, JobStore, NodeStore, Store};
use ratchet_core::{JobAction, JobId, JobState, Name, NewJob, NodeId, Priority, StoreError};
use ratchet_store_mongo::MongoStore;
use tokio::task::JoinHandle;

use crate::faults::Fault;
use crate::open;
use crate::server::Space;

/// Matches the job with this id.
fn this(id: JobId) -> Document {
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: id.as_bytes().to_vec(),
    };
    doc! { "_id": id }
}

/// Begins a transaction and writes to a job in it. Other writes to this job wait until the
/// transaction ends.
pub(crate) async fn hold(space: &Space, id: JobId, change: Document) -> ClientSession {
    let client = space.database.client();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let jobs: Collection<Document> = space.database.collection(&space.name("jobs"));
    let write = jobs.update_one(this(id), change).session(&mut session);
    assert_eq!(write.await.unwrap().matched_count, 1);
    session
}

pub(crate) fn touch() -> Document {
    doc! { "$inc": { "rev": 1_i64 } }
}

/// Returns a store, and the application name that identifies the store's commands.
pub(crate) async fn named(space: &Space) -> (Checked<MongoStore>, String) {
    let name = format!("test {}", JobId::new());
    let builder = space.builder().application_name(&name);
    (builder.connect().await.unwrap(), name)
}

/// Returns the update that the server is running for this name, if any.
async fn update_of(space: &Space, name: &str) -> Option<Bson> {
    let admin = space.database.client().database("admin");
    let stages = vec![
        doc! { "$currentOp": {} },
        doc! { "$match": { "appName": name, "op": "update" } },
    ];
    let mut found = admin.aggregate(stages).await.unwrap();
    let there = found.advance().await.unwrap();
    there.then(|| {
        let op = Document::try_from(found.current()).unwrap();
        op.get("opid").unwrap().clone()
    })
}

/// Waits until the server runs an update for this name. That update waits for the transaction that
/// has locked the job.
pub(crate) async fn waiting(space: &Space, name: &str) -> Bson {
    loop {
        if let Some(op) = update_of(space, name).await {
            return op;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) type Claiming = JoinHandle<Result<Vec<ClaimedJob>, StoreError>>;

pub(crate) fn claim(store: &Checked<MongoStore>, request: ClaimRequest) -> Claiming {
    let store = store.clone();
    tokio::spawn(async move { store.claim_next_batch(&request).await })
}

pub(crate) fn ids(claimed: &[ClaimedJob]) -> Vec<JobId> {
    claimed.iter().map(|job| job.claim.token.job).collect()
}

async fn running(store: &Checked<MongoStore>) -> Vec<JobId> {
    let running = JobFilter::all().state(JobState::Running);
    let page = store
        .list(&running, &PageRequest::first(100))
        .await
        .unwrap();
    page.jobs.iter().map(|job| job.id).collect()
}

pub(crate) async fn a_number_that_a_pause_took_back_is_not_given_out_again(space: Arc<Space>) {
    let (plain, (store, name)) = (open(&space).await, named(&space).await);
    let id = enqueue(&plain, job()).await;
    let mut other = hold(&space, id, touch()).await;
    let claiming = claim(&store, request_all());
    waiting(&space, &name).await;
    let queue = plain.queues().queues().await.unwrap().remove(0).name;
    let pause = PauseRequest::new(PauseScope::Queue(queue));
    plain.queues().pause(&pause).await.unwrap();
    other.abort_transaction().await.unwrap();
    assert_eq!(ids(&claiming.await.unwrap().unwrap()), []);
    let back = plain
        .get(&[id], Detail::Whole)
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!((back.state, back.claim_seq), (JobState::Pending, 1));
    plain.queues().resume(&pause.scope).await.unwrap();
    let again = plain.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(again[0].claim.token.seq, 2);
}

pub(crate) async fn a_node_that_was_displaced_meanwhile_claims_nothing(space: Arc<Space>) {
    let (plain, (store, name)) = (open(&space).await, named(&space).await);
    let id = enqueue(&plain, job()).await;
    let label = Name::new("label", "n").unwrap();
    let beat = |node, status| Heartbeat::new(node, label.clone(), status, Duration::from_secs(1));
    let node = NodeId::new();
    for status in [NodeStatus::Joining, NodeStatus::Active] {
        store.heartbeat(&beat(node, status)).await.unwrap();
    }
    let mut other = hold(&space, id, touch()).await;
    let claiming = claim(&store, ClaimRequest::new(node, 10));
    waiting(&space, &name).await;
    let successor = beat(NodeId::new(), NodeStatus::Joining);
    plain.heartbeat(&successor).await.unwrap();
    other.abort_transaction().await.unwrap();
    assert_eq!(ids(&claiming.await.unwrap().unwrap()), []);
    assert_eq!(running(&plain).await, []);
}

pub(crate) async fn a_claim_passes_over_what_has_another_priority_by_then(space: Arc<Space>) {
    let (plain, (store, name)) = (open(&space).await, named(&space).await);
    let first = enqueue(&plain, job().priority(Priority::Critical)).await;
    let second = enqueue(&plain, job()).await;
    let lower = doc! { "$set": { "priority": i32::from(Priority::Lowest.level()) } };
    let mut other = hold(&space, first, lower).await;
    let claiming = claim(&store, request_all().limit(1));
    waiting(&space, &name).await;
    other.commit_transaction().await.unwrap();
    assert_eq!(ids(&claiming.await.unwrap().unwrap()), [second]);
}

pub(crate) async fn what_a_killed_claim_took_is_returned(space: Arc<Space>) {
    let (plain, (store, name)) = (open(&space).await, named(&space).await);
    let taken = enqueue(&plain, job()).await;
    let held = enqueue(&plain, job()).await;
    let mut other = hold(&space, held, touch()).await;
    let claiming = claim(&store, request_all());
    let op = waiting(&space, &name).await;
    // The update waits for the locked second job, so it has already claimed the first job.
    let admin = space.database.client().database("admin");
    admin
        .run_command(doc! { "killOp": 1, "op": op })
        .await
        .unwrap();
    let claimed = ids(&claiming.await.unwrap().unwrap());
    other.abort_transaction().await.unwrap();
    assert_eq!(claimed, [taken]);
    assert_eq!(running(&plain).await, [taken]);
}

pub(crate) async fn a_claim_that_was_given_up_takes_nothing_later(space: Arc<Space>) {
    let plain = open(&space).await;
    let name = format!("test {}", JobId::new());
    let hasty = space.builder().application_name(&name);
    let hasty = hasty.deadline(Duration::from_secs(2));
    let hasty = hasty.connect().await.unwrap();
    let id = enqueue(&plain, job()).await;
    let mut other = hold(&space, id, touch()).await;
    let claimed = hasty.claim_next_batch(&request_all()).await;
    assert!(claimed.is_err(), "{claimed:?}");
    // The server aborts the update too, while the job is still locked.
    let mut looks = 0;
    while update_of(&space, &name).await.is_some() {
        looks += 1;
        assert!(looks < 500, "expected the update to end within 500 checks");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    other.abort_transaction().await.unwrap();
    assert_eq!(running(&plain).await, []);
}

pub(crate) async fn an_action_goes_on_among_claimers(space: Arc<Space>) {
    let plain = open(&space).await;
    let jobs: Vec<NewJob> = (0..2_000).map(|_| job()).collect();
    plain.enqueue(&jobs).await.unwrap();
    // Each update of the action is delayed, so that there is always a claim between the action's
    // read and its write.
    let fault = Fault::new(&space, &["update"]).late(200).always();
    let store = fault.builder(&space).deadline(Duration::from_secs(5));
    let store = store.connect().await.unwrap();
    let fault = fault.set().await;
    let cancelling = tokio::spawn(async move {
        let oldest = JobSelector::matching(JobFilter::all(), 200);
        store.act(&oldest, JobAction::Cancel).await
    });
    let mut claimed = 0;
    while !cancelling.is_finished() {
        claimed += plain
            .claim_next_batch(&request_all().limit(1))
            .await
            .unwrap()
            .len();
        // With this pause, the claims take some jobs during each update of the action. They do not
        // take all jobs before the action writes.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fault.lift().await;
    let acted = cancelling.await.unwrap().unwrap();
    assert_eq!(acted.len(), 200);
    assert!(
        claimed > 0
            && acted
                .iter()
                .any(|one| one.outcome == ActionOutcome::Became(JobState::Cancelled))
    );
}

pub(crate) async fn a_row_mended_by_hand_stops_no_claim(space: Arc<Space>) {
    let store = open(&space).await;
    let jobs = space.of_majority("jobs");
    // `mongosh` writes integers as doubles. The store reads them like integers.
    let whole = enqueue(&store, job()).await;
    let numbers = doc! { "run_at": 1.0, "priority": 2.0, "claim_seq": 6.0, "attempts": 0.0 };
    jobs.update_one(this(whole), doc! { "$set": numbers })
        .await
        .unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed[0].claim.token.seq, 7);
    let done = Settlement::new(claimed[0].claim.token, Outcome::Succeeded { result: None });
    store.settle(&[done]).await.unwrap();
    // Invalid values affect only their own document.
    for (field, value) in [
        ("run_at", Bson::from(1.5)),
        ("claim_seq", "x".into()),
        ("history", "x".into()),
        ("claimed_at", "x".into()),
        ("last_report", "x".into()),
    ] {
        let bad = enqueue(&store, job()).await;
        let set = doc! { "$set": { field: value } };
        if field == "claimed_at" || field == "last_report" {
            store.claim_next_batch(&request_all()).await.unwrap();
        }
        jobs.update_one(this(bad), set).await.unwrap();
        let good = enqueue(&store, job()).await;
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        assert!(
            ids(&claimed).contains(&good),
            "expected a claim of the good job, although {field} \
             of another job is damaged"
        );
        store.reclaim(&ReclaimRequest::new()).await.unwrap();
        store
            .act(&JobSelector::Ids(vec![bad, good]), JobAction::Cancel)
            .await
            .unwrap();
    }
}

pub(crate) async fn a_node_that_cannot_be_read_silences_no_other(space: Arc<Space>) {
    let store = open(&space).await;
    let beat = |node, label| {
        let label = Name::new("label", label).unwrap();
        Heartbeat::new(node, label, NodeStatus::Joining, Duration::from_secs(1))
    };
    let (one, other) = (NodeId::new(), NodeId::new());
    store.heartbeat(&beat(one, "one")).await.unwrap();
    let nodes = space.of_majority("nodes");
    let spoil = doc! { "$set": { "started_at": "x" } };
    nodes.update_one(doc! {}, spoil).await.unwrap();
    let reply = store.heartbeat(&beat(other, "other")).await.unwrap();
    assert!(!reply.alone);
}
