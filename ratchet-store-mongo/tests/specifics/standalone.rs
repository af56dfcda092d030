//! Tests on a server without transactions: which calls the store rejects there and with which
//! errors, and what it stores without a transaction.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use ratchet_conformance::kit::{assert_kind, enqueue, exists, job, request_all};
use ratchet_core::model::{
    ActionOutcome, ClaimRequest, Detail, Guard, Heartbeat, JobFilter, JobSelector, NodeStatus,
    Outcome, PageRequest, PurgeRequest, Settlement,
};
use ratchet_core::store::{JobStore, LockStore, NodeStore, Store, VersionStore};
use ratchet_core::{
    Enqueued, Fence, Job, JobAction, JobContext, JobId, JobResult, JobState, Name, NodeId, Ratchet,
    StoreErrorKind,
};
use serde::{Deserialize, Serialize};

use crate::faults::Fault;
use crate::links::under_way;
use crate::open;
use crate::server::Space;

pub(crate) async fn what_needs_transactions_is_refused(space: Arc<Space>) {
    let store = open(&space).await;
    let fair = job().fair_key("f");
    for refused in [job().lane("l"), job().idempotency_key("i"), fair] {
        for batch in [vec![refused.another()], vec![job(), refused.another()]] {
            let error = store.enqueue(&batch).await.unwrap_err();
            assert_kind(&error, StoreErrorKind::Invalid);
            assert!(error.to_string().contains("replica set"), "{error}");
        }
    }
    let lock = Name::new("lock", "l").unwrap();
    store
        .acquire(&lock, &lock, Duration::from_secs(60))
        .await
        .unwrap();
    let (owner, fence) = (lock.clone(), Fence(1));
    let guard = Guard { lock, owner, fence };
    let purge = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 1);
    let purge = purge.guarded(Some(guard.clone()));
    let error = store.purge(&purge).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    let error = store.bump(&guard.lock, Some(&guard)).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    assert_eq!(
        VersionStore::versions(&store, &[guard.lock]).await.unwrap(),
        [0]
    );
    let client = Client::with_uri_str(&space.url).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    let error = store.enqueue_in(&mut session, &[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    assert!(
        store
            .claim_next_batch(&request_all())
            .await
            .unwrap()
            .is_empty()
    );
}

pub(crate) async fn it_says_what_it_is(space: Arc<Space>) {
    let store = open(&space).await;
    assert!(!store.has_transactions());
    assert!(store.info().version.contains("standalone"));
    assert!(
        (*store).coordinator().is_none(),
        "expected no coordinator, because the core's coordinator needs no database"
    );
    assert!(store.recurring().is_none() && store.archive().is_none());
    assert!(store.permits().is_none() && store.rates().is_some());
    // A permit must name a resource with a limit. Without a permit store, no resource has a limit.
    let error = store.enqueue(&[job().permit("api")]).await.unwrap_err();
    assert_eq!(error.invalid_input().unwrap().field(), "permit");
}

#[derive(Serialize, Deserialize)]
struct Work;

impl Job for Work {
    const KIND: &'static str = "kind";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        Ok(())
    }
}

pub(crate) async fn the_jobs_of_a_dead_node_are_taken_back(space: Arc<Space>) {
    let store = open(&space).await;
    let id = enqueue(&store, Work.into_job()).await;
    let (dead, label) = (NodeId::new(), Name::new("label", "dead").unwrap());
    let beat = Heartbeat::new(dead, label, NodeStatus::Active, Duration::from_millis(100));
    store.heartbeat(&beat).await.unwrap();
    let claimed = store.claim_next_batch(&ClaimRequest::new(dead, 1)).await;
    assert_eq!(claimed.unwrap().len(), 1);
    let node = Ratchet::builder(Arc::new(store.clone()))
        .register::<Work>()
        .heartbeat_interval(Duration::from_millis(200))
        .dead_after(Duration::from_secs(1))
        .reclaim_interval(Duration::from_millis(200))
        .build()
        .unwrap();
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run_until(std::future::pending::<()>()).await }
    });
    let taken_back = async {
        loop {
            let job = store.get(&[id], Detail::Whole).await.unwrap()[0]
                .clone()
                .unwrap();
            if job.state == JobState::Succeeded {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let job = tokio::time::timeout(Duration::from_secs(60), taken_back).await;
    assert_eq!(job.unwrap().crash_count, 1);
    running.abort();
}

pub(crate) async fn an_ended_job_is_deleted_with_its_history(space: Arc<Space>) {
    let store = open(&space).await;
    let (ended, waiting) = (enqueue(&store, job()).await, job());
    let token = store.claim_next_batch(&request_all()).await.unwrap()[0]
        .claim
        .token;
    let done = Settlement::new(token, Outcome::Succeeded { result: None });
    store.settle(&[done]).await.unwrap();
    let waiting = enqueue(&store, waiting).await;
    let both = JobSelector::Ids(vec![ended, waiting, ended]);
    let acted = store.act(&both, JobAction::Delete).await.unwrap();
    let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
    let refused = ActionOutcome::Refused(JobState::Pending);
    let deleted = ActionOutcome::Deleted;
    assert_eq!(outcomes, [deleted, refused, ActionOutcome::NotFound]);
    assert!(!exists(&store, ended).await && exists(&store, waiting).await);
    assert_eq!(store.history(ended).await.unwrap(), []);
}

pub(crate) async fn a_batch_that_cannot_be_stored_is_taken_away(space: Arc<Space>) {
    let store = open(&space).await;
    refuse_for_good(&space).await;
    let batch = [job(), job().unique_key("u"), job()];
    let error = store.enqueue(&batch).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    for job in &batch {
        assert!(!exists(&store, job.id()).await);
    }
}

pub(crate) async fn a_job_that_was_reported_as_stored_stays(space: Arc<Space>) {
    let other = open(&space).await;
    for with in [vec![], vec![job()]] {
        let fault = Fault::new(&space, &["delete"]).late(1_500);
        let store = fault.open(&space).await;
        refuse_for_good(&space).await;
        let name = fault.name().to_owned();
        let fault = fault.set().await;
        let batch = [job().unique_key("v"), job().unique_key("u")];
        let enqueuing = tokio::spawn({
            let batch = batch.clone();
            async move { store.enqueue(&batch).await }
        });
        let taking_away = doc! { "command.delete": { "$exists": true } };
        under_way(&space, &name, taking_away).await;
        let stored = batch[0].id();
        let again = [vec![batch[0].clone()], with].concat();
        let answers = other.enqueue(&again).await.unwrap();
        assert_eq!(answers[0], Enqueued::Created(stored));
        let twin = other.enqueue(&[job().unique_key("v")]).await.unwrap();
        assert_eq!(twin, [Enqueued::Duplicate(stored)]);
        enqueuing.await.unwrap().unwrap_err();
        fault.lift().await;
        assert!(exists(&other, stored).await);
        other
            .act(&JobSelector::Ids(vec![stored]), JobAction::Cancel)
            .await
            .unwrap();
        validate(&space, doc! {}).await;
    }
}

/// Makes the server refuse jobs with the unique key `u`.
async fn refuse_for_good(space: &Space) {
    validate(space, doc! { "unique_key": { "$ne": "u" } }).await;
}

/// Makes the server reject jobs that do not match `validator`.
async fn validate(space: &Space, validator: Document) {
    let change = doc! { "collMod": space.name("jobs"), "validator": validator };
    space.database.run_command(change).await.unwrap();
}

pub(crate) async fn a_job_that_another_stored_stays(space: Arc<Space>) {
    let other = open(&space).await;
    let fault = Fault::new(&space, &["insert"]).late(1_500);
    let store = fault.open(&space).await;
    refuse_for_good(&space).await;
    // Stores the route of the jobs now. So the first insert that the fault delays is the insert of
    // the jobs.
    let earlier = enqueue(&store, job()).await;
    let name = fault.name().to_owned();
    let fault = fault.set().await;
    let both = job();
    let enqueuing = tokio::spawn({
        let batch = [job(), both.clone(), job().unique_key("u")];
        async move { store.enqueue(&batch).await }
    });
    // The delayed enqueue has already read which of its jobs exist. So it does not notice that
    // another call now stores the job `both`.
    under_way(
        &space,
        &name,
        doc! { "command.insert": { "$exists": true } },
    )
    .await;
    other.enqueue(std::slice::from_ref(&both)).await.unwrap();
    enqueuing.await.unwrap().unwrap_err();
    fault.lift().await;
    let (every, page) = (JobFilter::all(), PageRequest::first(10));
    let all = other.list(&every, &page).await.unwrap();
    let left: Vec<JobId> = all.jobs.iter().map(|job| job.id).collect();
    assert_eq!(left, [both.id(), earlier]);
}
