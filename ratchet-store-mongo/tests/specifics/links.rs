//! Links and batches: transactions that conflict, and transactions whose commands are killed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use ratchet_conformance::kit::{assert_kind, enqueue, job, request_all};
use ratchet_core::model::{
    BatchRecord, ClaimedJob, Condition, Detail, Fenced, JobSelector, LinkState, Outcome, Parent,
    Report, ReportKind, Settlement, SignalTarget,
};
use ratchet_core::store::{Checked, JobStore, SignalStore, WorkflowStore};
use ratchet_core::{BatchId, JobAction, JobId, JobState, Json, Name, NewJob, StoreErrorKind};
use ratchet_store_mongo::MongoStore;

use crate::faults::Fault;
use crate::jobs::id_of;
use crate::open;
use crate::server::Space;
use crate::transactions::{application, begin};

const KILLED: i32 = 11_601;

async fn state(store: &Checked<MongoStore>, id: JobId) -> JobState {
    store.get(&[id], Detail::Whole).await.unwrap()[0]
        .clone()
        .unwrap()
        .state
}

pub(crate) fn done(claimed: &ClaimedJob) -> Settlement {
    Settlement::new(claimed.claim.token, Outcome::Succeeded { result: None })
}

/// Stores jobs and claims them.
pub(crate) async fn running(store: &Checked<MongoStore>, jobs: &[NewJob]) -> Vec<ClaimedJob> {
    store.enqueue(jobs).await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed.len(), jobs.len());
    claimed
}

pub(crate) fn after(parents: &[ClaimedJob]) -> NewJob {
    parents.iter().fold(job(), |child, parent| {
        child.after(parent.claim.token.job, Condition::Succeeded)
    })
}

/// Waits until the server runs a command that matches `which`, on the connections with this name.
pub(crate) async fn under_way(space: &Space, name: &str, which: Document) {
    let admin = space.database.client().database("admin");
    loop {
        let mut wanted = which.clone();
        wanted.insert("appName", name);
        let stages = vec![doc! { "$currentOp": {} }, doc! { "$match": wanted }];
        let found = admin.aggregate(stages).await.unwrap();
        if !found.try_collect::<Vec<_>>().await.unwrap().is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn an_end_sees_the_child_that_a_transaction_brings(space: Arc<Space>) {
    let plain = open(&space).await;
    let parents = running(&plain, &[job(), job(), job()]).await;
    let (client, store) = application(&space).await;
    let mut session = begin(&space, &client).await;
    let child = after(&parents[..1]);
    store
        .enqueue_in(&mut session, std::slice::from_ref(&child))
        .await
        .unwrap();
    // Only the end of the parent waits for the transaction.
    let other = enqueue(&plain, after(&parents[1..2])).await;
    let alive = |job: &ClaimedJob| Report::new(job.claim.token, ReportKind::Alive);
    let alive: Vec<Report> = parents.iter().map(alive).collect();
    plain.report(&alive).await.unwrap();
    let done: Vec<Settlement> = parents.iter().map(done).collect();
    let contends = plain.settle(&done).await.unwrap_err();
    assert_kind(&contends, StoreErrorKind::Contention);
    assert_eq!(state(&store, other).await, JobState::Pending);
    let third = parents[2].claim.token.job;
    assert_eq!(state(&store, third).await, JobState::Succeeded);
    session.commit_transaction().await.unwrap();
    assert_eq!(plain.settle(&done).await.unwrap(), [Fenced::Applied; 3]);
    assert_eq!(state(&store, child.id()).await, JobState::Pending);
}

pub(crate) async fn an_enqueue_sees_the_end_that_came_first(space: Arc<Space>) {
    let plain = open(&space).await;
    let parents = running(&plain, &[job()]).await;
    let (client, store) = application(&space).await;
    // The snapshot of the transaction begins here.
    let mut session = begin(&space, &client).await;
    plain.settle(&[done(&parents[0])]).await.unwrap();
    let child = after(&parents);
    let child = std::slice::from_ref(&child);
    let late = store.enqueue_in(&mut session, child).await.unwrap_err();
    assert_kind(&late, StoreErrorKind::Contention);
    session.commit_transaction().await.unwrap_err();
    session.start_transaction().await.unwrap();
    store.enqueue_in(&mut session, child).await.unwrap();
    session.commit_transaction().await.unwrap();
    assert_eq!(state(&plain, child[0].id()).await, JobState::Pending);
}

pub(crate) async fn a_transaction_links_to_its_own_jobs_and_to_ended_ones_again(space: Arc<Space>) {
    let plain = open(&space).await;
    let ended = running(&plain, &[job()]).await;
    plain.settle(&[done(&ended[0])]).await.unwrap();
    let (client, store) = application(&space).await;
    let mut session = begin(&space, &client).await;
    let first = job();
    let mut jobs = vec![first.clone()];
    store.enqueue_in(&mut session, &[first]).await.unwrap();
    for _ in 0..2 {
        let child = after(&ended).after(jobs[0].id(), Condition::Succeeded);
        jobs.push(child.clone());
        store.enqueue_in(&mut session, &[child]).await.unwrap();
    }
    session.commit_transaction().await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert!(claimed[0].claim.awaited);
    store.settle(&[done(&claimed[0])]).await.unwrap();
    for child in &jobs[1..] {
        assert_eq!(state(&plain, child.id()).await, JobState::Pending);
    }
}

pub(crate) async fn two_ends_at_once_let_their_child_go(space: Arc<Space>) {
    let fault = Fault::new(&space, &["commitTransaction"]).late(2_000);
    let (first, second) = (fault.open(&space).await, open(&space).await);
    let parents = running(&second, &[job(), job()]).await;
    let child = enqueue(&second, after(&parents)).await;
    let name = fault.name().to_owned();
    let fault = fault.set().await;
    let settling = tokio::spawn({
        let done = done(&parents[0]);
        async move { first.settle(&[done]).await }
    });
    // The settlement has written everything, but its writes are not visible yet.
    let commit = doc! { "command.commitTransaction": { "$exists": true } };
    under_way(&space, &name, commit).await;
    let settled = second.settle(&[done(&parents[1])]).await.unwrap();
    assert_eq!(settled, [Fenced::Applied]);
    assert_eq!(settling.await.unwrap().unwrap(), [Fenced::Applied]);
    fault.lift().await;
    assert_eq!(state(&second, child).await, JobState::Pending);
}

pub(crate) async fn an_end_and_a_signal_at_once_let_the_job_go(space: Arc<Space>) {
    let fault = Fault::new(&space, &["commitTransaction"]).late(2_000);
    let (first, second) = (fault.open(&space).await, open(&space).await);
    let parents = running(&second, &[job()]).await;
    let hour = Duration::from_secs(3_600);
    let child = enqueue(&second, after(&parents).wait_for("go", hour)).await;
    let name = fault.name().to_owned();
    let fault = fault.set().await;
    let settling = tokio::spawn({
        let done = done(&parents[0]);
        async move { first.settle(&[done]).await }
    });
    let commit = doc! { "command.commitTransaction": { "$exists": true } };
    under_way(&space, &name, commit).await;
    let target = SignalTarget::Key(Name::new("signal", "go").unwrap());
    let payload = Json::parse("payload", "\"$x\"").unwrap();
    let signal = ratchet_core::model::Signal::new(target, payload.clone());
    second.deliver(&signal).await.unwrap();
    settling.await.unwrap().unwrap();
    fault.lift().await;
    let child = second.get(&[child], Detail::Whole).await.unwrap()[0]
        .clone()
        .unwrap();
    assert_eq!(child.state, JobState::Pending);
    // A string that looks like an expression stays a string.
    let delivered = child.signal.unwrap().delivered.unwrap();
    assert_eq!(delivered.payload, payload);
}

async fn batch(store: &Checked<MongoStore>, id: BatchId) -> BatchRecord {
    store.batches(&[id]).await.unwrap()[0].clone().unwrap()
}

async fn links(space: &Space) -> u64 {
    let links = space.of_majority("links");
    links.count_documents(doc! {}).await.unwrap()
}

pub(crate) async fn an_enqueue_that_is_killed_leaves_nothing(space: Arc<Space>) {
    let plain = open(&space).await;
    let parents = running(&plain, &[job()]).await;
    let id = BatchId::new();
    plain.create_batch(id).await.unwrap();
    let jobs = [
        after(&parents).in_batch(id),
        after(&parents).in_batch(id).unique_key("u"),
    ];
    let mut killed = 0;
    loop {
        let fault = Fault::new(&space, &["insert", "update", "findAndModify"]);
        let fault = fault.code(KILLED).behind(killed);
        let store = fault.open(&space).await;
        let fault = fault.set().await;
        let enqueued = store.enqueue(&jobs).await;
        fault.lift().await;
        if enqueued.is_ok() {
            break;
        }
        killed += 1;
        for job in &jobs {
            assert_eq!(plain.get(&[job.id()], Detail::Whole).await.unwrap(), [None]);
        }
        assert_eq!((links(&space).await, batch(&plain, id).await.total), (0, 0));
    }
    assert!(killed >= 4, "{killed}");
    assert_eq!((links(&space).await, batch(&plain, id).await.total), (2, 2));
}

pub(crate) async fn an_end_that_is_killed_leaves_nothing_half_made(space: Arc<Space>) {
    let plain = open(&space).await;
    let id = BatchId::new();
    plain.create_batch(id).await.unwrap();
    let parents = running(&plain, &[job().in_batch(id)]).await;
    let parent = parents[0].claim.token.job;
    // The end of the parent releases `on`, and cancels `unmet`, whose end releases `last`.
    let on = after(&parents);
    let unmet = job().after(parent, Condition::Failed).in_batch(id);
    let last = job().after(unmet.id(), Condition::Ended);
    let all = [on, unmet, last];
    plain.enqueue(&all).await.unwrap();
    plain.close_batch(id).await.unwrap();
    let mut killed = 0;
    loop {
        let fault = Fault::new(&space, &["update", "findAndModify"]);
        let fault = fault.code(KILLED).behind(killed);
        let store = fault.open(&space).await;
        let fault = fault.set().await;
        let settled = store.settle(&[done(&parents[0])]).await;
        fault.lift().await;
        if settled.is_ok() {
            break;
        }
        killed += 1;
        assert_eq!(state(&plain, parent).await, JobState::Running);
        for job in &all {
            assert_eq!(state(&plain, job.id()).await, JobState::Blocked);
        }
        let children = plain.children_of(Parent::Job(parent), 10, None).await;
        let mut states = children.unwrap().into_iter().map(|link| link.state);
        assert!(states.all(|state| state == LinkState::Open));
        assert_eq!(batch(&plain, id).await.unfinished(), 2);
    }
    assert!(killed >= 6, "{killed}");
    assert_eq!(state(&plain, all[0].id()).await, JobState::Pending);
    assert_eq!(state(&plain, all[1].id()).await, JobState::Cancelled);
    assert_eq!(state(&plain, all[2].id()).await, JobState::Pending);
    let batch = batch(&plain, id).await;
    assert_eq!((batch.succeeded, batch.cancelled), (1, 1));
    assert!(batch.ended_at.is_some());
}

pub(crate) async fn many_ends_in_one_batch_are_all_counted(space: Arc<Space>) {
    let store = open(&space).await;
    let id = BatchId::new();
    store.create_batch(id).await.unwrap();
    let jobs: Vec<NewJob> = (0..80).map(|_| job().in_batch(id)).collect();
    let claimed = running(&store, &jobs).await;
    store.close_batch(id).await.unwrap();
    let callback = job().after_batch(id, ratchet_core::model::BatchCondition::Succeeded);
    let callback = enqueue(&store, callback).await;
    // From its second call on, each store expects that other jobs or batches depend on the settled
    // jobs.
    let mut stores = Vec::new();
    for claimed in claimed.chunks(20) {
        let store = open(&space).await;
        let done: Vec<Settlement> = claimed.iter().map(done).collect();
        stores.push(tokio::spawn(async move {
            for done in done.chunks(5) {
                assert_eq!(store.settle(done).await.unwrap(), [Fenced::Applied; 5]);
            }
        }));
    }
    for store in stores {
        store.await.unwrap();
    }
    let batch = batch(&store, id).await;
    assert_eq!((batch.succeeded, batch.unfinished()), (80, 0));
    assert_eq!(state(&store, callback).await, JobState::Pending);
}

pub(crate) async fn a_settlement_that_expects_a_batch_ends_other_jobs_too(space: Arc<Space>) {
    let store = open(&space).await;
    let id = BatchId::new();
    store.create_batch(id).await.unwrap();
    let first: Vec<NewJob> = (0..4).map(|_| job().in_batch(id)).collect();
    let first = running(&store, &first).await;
    let failed = || Outcome::Failed {
        error: "it failed".to_owned(),
    };
    let mut ends: Vec<Settlement> = first.iter().map(done).collect();
    ends[0].outcome = failed();
    assert_eq!(store.settle(&ends).await.unwrap(), [Fenced::Applied; 4]);
    let act = async |job: JobId, action| {
        let acted = store.act(&JobSelector::Ids(vec![job]), action).await;
        acted.unwrap();
    };
    act(ends[0].token.job, JobAction::Requeue).await;
    let requeued = store.claim_next_batch(&request_all()).await.unwrap();
    let jobs = [
        job().in_batch(id),
        job().in_batch(id),
        job(),
        job().lane("l"),
        job(),
        job(),
        job(),
    ];
    let claimed = running(&store, &jobs).await;
    let next_of_lane = enqueue(&store, job().lane("l")).await;
    act(jobs[4].id(), JobAction::Cancel).await;
    let spoil = doc! { "$set": { "claim_seq": "spoiled" } };
    let rows = space.of_majority("jobs");
    rows.update_one(id_of(jobs[6].id()), spoil).await.unwrap();
    let of = |job: &NewJob| {
        let claimed = claimed
            .iter()
            .find(|claimed| claimed.claim.token.job == job.id());
        done(claimed.unwrap())
    };
    let mut ends: Vec<Settlement> = jobs.iter().map(of).collect();
    ends[1].outcome = failed();
    ends[5].outcome = Outcome::Retry {
        delay: Duration::ZERO,
        error: "once more".to_owned(),
    };
    ends.push(done(&requeued[0]));
    ends.push(ends[0].clone());
    let mut stale = ends[2].clone();
    stale.token.seq += 1;
    ends.push(stale);
    let mut expected = [Fenced::Applied; 10];
    expected[6] = Fenced::Stale;
    expected[9] = Fenced::Stale;
    assert_eq!(store.settle(&ends).await.unwrap(), expected);
    let (succeeded, pending) = (JobState::Succeeded, JobState::Pending);
    let states = [
        (jobs[0].id(), succeeded),
        (jobs[1].id(), JobState::Failed),
        (jobs[2].id(), succeeded),
        (jobs[3].id(), succeeded),
        (jobs[4].id(), JobState::Cancelled),
        (jobs[5].id(), pending),
        (requeued[0].claim.token.job, succeeded),
        (next_of_lane, pending),
    ];
    for (place, (job, expected)) in states.into_iter().enumerate() {
        assert_eq!(state(&store, job).await, expected, "{place}");
    }
    let batch = batch(&store, id).await;
    assert_eq!((batch.succeeded, batch.failed, batch.total), (4, 2, 6));
}
