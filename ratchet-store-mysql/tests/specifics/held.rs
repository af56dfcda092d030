//! Jobs whose rows an application's transaction has locked, because it has linked new jobs to them.
//! Only calls on exactly these jobs wait for that transaction.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, job, request_all};
use ratchet_core::model::{
    Detail, Fenced, JobSelector, Outcome, ReclaimRequest, Report, ReportKind, Reported, Settlement,
};
use ratchet_core::store::{Checked, IfKnown, JobStore, PermitStore};
use ratchet_core::{
    ClaimToken, Condition, JobAction, JobId, JobState, Name, NewJob, StoreErrorKind,
};
use ratchet_store_mysql::MysqlStore;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;

use crate::open;
use crate::server::Database;

async fn states<const N: usize>(store: &Checked<MysqlStore>, ids: [JobId; N]) -> [JobState; N] {
    let found = store.get(&ids, Detail::Whole).await.unwrap();
    let states: Vec<_> = found.into_iter().map(|job| job.unwrap().state).collect();
    states.try_into().unwrap()
}

/// Returns two running jobs, in order of their claims.
async fn two_running(store: &Checked<MysqlStore>) -> [ClaimToken; 2] {
    for _ in 0..2 {
        enqueue(store, job()).await;
    }
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let tokens: Vec<_> = claimed.iter().map(|job| job.claim.token).collect();
    tokens.try_into().unwrap()
}

fn after(parent: JobId) -> NewJob {
    job().after(parent, Condition::Ended)
}

pub(crate) async fn a_held_job_keeps_no_other_from_ending(database: Arc<Database>) {
    let store = open(&database).await;
    let [held, free] = two_running(&store).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let child = after(held.job);
    let one = std::slice::from_ref(&child);
    store.enqueue_in(&mut tx, one).await.unwrap();
    let settling = tokio::spawn({
        let store = store.clone();
        let end = |token| Settlement::new(token, Outcome::Succeeded { result: None });
        let ends = [end(held), end(free)];
        async move { store.settle(&ends).await }
    });
    let expected = [JobState::Running, JobState::Succeeded];
    while states(&store, [held.job, free.job]).await != expected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tx.commit().await.unwrap();
    let answers = settling.await.unwrap().unwrap();
    assert_eq!(answers, [Fenced::Applied, Fenced::Applied]);
    let ended = states(&store, [held.job, child.id()]).await;
    assert_eq!(ended, [JobState::Succeeded, JobState::Pending]);
}

pub(crate) async fn an_end_that_is_held_for_long_is_a_timeout(database: Arc<Database>) {
    let short = database.builder().deadline(Duration::from_secs(4));
    let store = short.connect().await.unwrap();
    let [held, free] = two_running(&store).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let one = [after(held.job)];
    store.enqueue_in(&mut tx, &one).await.unwrap();
    let end = |token| Settlement::new(token, Outcome::Succeeded { result: None });
    let ends = [end(held), end(free)];
    let error = store.settle(&ends).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    let ended = states(&store, [held.job, free.job]).await;
    assert_eq!(ended, [JobState::Running, JobState::Succeeded]);
    tx.rollback().await.unwrap();
    let answers = store.settle(&ends).await.unwrap();
    assert_eq!(answers, [Fenced::Applied, Fenced::Applied]);
}

pub(crate) async fn a_held_job_keeps_no_other_from_being_reported(database: Arc<Database>) {
    let store = open(&database).await;
    let [held, free] = two_running(&store).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    store.enqueue_in(&mut tx, &[after(held.job)]).await.unwrap();
    let half = |token| {
        let (percent, message) = (50, "half".to_owned());
        Report::new(token, ReportKind::Progress { percent, message })
    };
    let reports = [half(held), half(free)];
    let error = store.report(&reports).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    let known = store
        .get(&[held.job, free.job], Detail::Whole)
        .await
        .unwrap();
    let told = known.into_iter().map(|job| job.unwrap().progress.is_some());
    assert_eq!(told.collect::<Vec<_>>(), [false, true]);
    tx.commit().await.unwrap();
    let answers = store.report(&reports).await.unwrap();
    let applied = Reported::Applied {
        cancel_requested: false,
    };
    assert_eq!(answers, [applied, applied]);
}

pub(crate) async fn a_held_job_keeps_no_other_from_being_taken_back(database: Arc<Database>) {
    let store = open(&database).await;
    let tokens = two_running(&store).await;
    // Another job already waits for `awaited`, so `awaited` is settled in a separate transaction.
    let awaited = enqueue(&store, job()).await;
    enqueue(&store, after(awaited)).await;
    store.claim_next_batch(&request_all()).await.unwrap();
    let [held, free] = tokens.map(|token| token.job);
    let all = JobSelector::Ids(vec![held, free, awaited]);
    store.act(&all, JobAction::Cancel).await.unwrap();
    let long_ago = "UPDATE {database}.ratchet_jobs SET claimed_at = 0";
    database.execute(long_ago).await.unwrap();
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let children = [after(held), after(awaited)];
    store.enqueue_in(&mut tx, &children).await.unwrap();
    let taken = store.reclaim(&ReclaimRequest::new()).await.unwrap();
    assert_eq!(taken.len(), 1);
    let (cancelled, running) = (JobState::Cancelled, JobState::Running);
    let found = states(&store, [held, free, awaited]).await;
    assert_eq!(found, [running, cancelled, running]);
    tx.rollback().await.unwrap();
    let taken = store.reclaim(&ReclaimRequest::new()).await.unwrap();
    assert_eq!(taken.len(), 2);
    let found = states(&store, [held, free, awaited]).await;
    assert_eq!(found, [cancelled; 3]);
}

pub(crate) async fn a_held_job_keeps_no_permit_from_the_next(database: Arc<Database>) {
    let store = open(&database).await;
    let api = Name::new("permit", "api").unwrap();
    store.set_permits(&api, 1, IfKnown::Change).await.unwrap();
    let held = enqueue(&store, job().permit("api")).await;
    let next = enqueue(&store, job().permit("api")).await;
    enqueue(&store, job().permit("api")).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    store.enqueue_in(&mut tx, &[after(held)]).await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let ids: Vec<_> = claimed.iter().map(|job| job.claim.token.job).collect();
    assert_eq!(ids, [next]);
}
