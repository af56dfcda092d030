//! Changes by other transactions between two statements of one call.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, job, request_all};
use ratchet_core::model::{
    ActionOutcome, ClaimedJob, Detail, Enqueued, JobFilter, JobSelector, RunAt,
};
use ratchet_core::store::{Checked, JobStore, QueueStore};
use ratchet_core::{JobAction, JobId, JobState, NewJob, OnConflict, Priority, StoreErrorKind};
use ratchet_store_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::open;
use crate::server::Schema;

pub(crate) async fn an_action_spares_jobs_that_no_longer_match(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let id = enqueue(&store, job()).await;
    // Another session is about to claim the job.
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let mut claim = other.begin().await.unwrap();
    let running = format!(
        "UPDATE \"{}\".jobs SET state = 3, claim_seq = 1 WHERE id = '{id}'",
        schema.name
    );
    claim
        .execute(sqlx::raw_sql(AssertSqlSafe(running)))
        .await
        .unwrap();
    let pending = JobFilter::all().state(JobState::Pending);
    let acting = tokio::spawn(async move {
        let selector = JobSelector::matching(pending, 10);
        store.act(&selector, JobAction::Cancel).await
    });
    schema.until_a_call_waits().await;
    claim.commit().await.unwrap();
    let acted = acting.await.unwrap().unwrap();
    assert!(acted.is_empty(), "{acted:?}");
    let by_id = JobSelector::Ids(vec![id]);
    let store = open(&schema).await;
    let acted = store.act(&by_id, JobAction::Cancel).await.unwrap();
    assert_eq!(acted[0].outcome, ActionOutcome::CancelRequested);
}

pub(crate) async fn an_action_whose_jobs_are_all_gone_looks_behind_them(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let first = enqueue(&store, job()).await;
    let second = enqueue(&store, job()).await;
    // Another session is about to claim the first job.
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let mut claim = other.begin().await.unwrap();
    let running = format!(
        "UPDATE \"{}\".jobs SET state = 3, claim_seq = 1 WHERE id = '{first}'",
        schema.name
    );
    claim
        .execute(sqlx::raw_sql(AssertSqlSafe(running)))
        .await
        .unwrap();
    let pending = JobFilter::all().state(JobState::Pending);
    let acting = tokio::spawn(async move {
        let selector = JobSelector::matching(pending, 1);
        store.act(&selector, JobAction::Cancel).await
    });
    schema.until_a_call_waits().await;
    claim.commit().await.unwrap();
    let acted = acting.await.unwrap().unwrap();
    let acted: Vec<JobId> = acted.iter().map(|one| one.job).collect();
    assert_eq!(acted, [second]);
}

/// Runs a claim, and `change` while the claim is blocked. At this point, the claim has taken its
/// snapshot but not yet read the clock. Returns the claimed jobs.
async fn claim_while(
    schema: &Schema,
    change: impl AsyncFnOnce(&Checked<PostgresStore>),
) -> Vec<ClaimedJob> {
    let slow = schema.builder().clock_table("slow_clock");
    let slow = slow.connect().await.unwrap();
    // Makes the store read the routes. Otherwise, its first claim would find its cached routes
    // outdated.
    slow.queues().await.unwrap();
    let lock = "SELECT pg_advisory_lock(hashtextextended('{schema}', 1))";
    schema.execute(lock).await.unwrap();
    let claiming = tokio::spawn(async move { slow.claim_next_batch(&request_all()).await });
    schema.until_a_call_waits().await;
    let store = schema.builder().clock_table("test_clock");
    change(&store.connect().await.unwrap()).await;
    schema
        .execute(&lock.replace("lock", "unlock"))
        .await
        .unwrap();
    claiming.await.unwrap().unwrap()
}

/// Runs a claim, and applies `action` to the job `id` while the claim is blocked. Returns the
/// claimed jobs.
async fn claim_during(schema: &Schema, id: JobId, action: JobAction) -> Vec<Claimed> {
    let claimed = claim_while(schema, async |store| {
        let jobs = JobSelector::Ids(vec![id]);
        let acted = store.act(&jobs, action).await.unwrap();
        assert!(
            !matches!(acted[0].outcome, ActionOutcome::Refused(_)),
            "{acted:?}"
        );
    });
    let claimed = claimed.await.into_iter();
    claimed
        .map(|job| (job.claim.token.job, job.claim.priority))
        .collect()
}

/// Creates a clock that stops while another session holds an advisory lock.
async fn slow_clock(schema: &Schema) {
    let slow_clock = "CREATE FUNCTION {schema}.slow_now() RETURNS bigint LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM pg_advisory_lock_shared(hashtextextended('{schema}', 1));
             PERFORM pg_advisory_unlock_shared(hashtextextended('{schema}', 1));
             RETURN (SELECT now_ms FROM {schema}.test_clock);
         END $$;
         CREATE VIEW {schema}.slow_clock AS SELECT {schema}.slow_now() AS now_ms";
    schema.execute(slow_clock).await.unwrap();
}

pub(crate) async fn a_claim_has_no_payload_that_was_replaced_before_it(schema: Arc<Schema>) {
    slow_clock(&schema).await;
    let store = schema.builder().clock_table("test_clock");
    let store = store.connect().await.unwrap();
    let keyed = |number: u32| NewJob::new("kind", &number).unique_key("u");
    let holder = enqueue(&store, keyed(1)).await;
    let claimed = claim_while(&schema, async |store| {
        let new = keyed(2).on_conflict(OnConflict::Replace);
        let enqueued = store.enqueue(&[new]).await.unwrap();
        assert_eq!(enqueued, [Enqueued::Replaced(holder)]);
    });
    let mut claimed = claimed.await;
    // The claim skips the job, which has changed, and the next claim returns it.
    claimed.extend(store.claim_next_batch(&request_all()).await.unwrap());
    let payload = |job: ClaimedJob| job.input.unwrap().payload.as_str().to_owned();
    let payloads: Vec<String> = claimed.into_iter().map(payload).collect();
    assert_eq!(payloads, ["2"]);
}

type Claimed = (JobId, Priority);

pub(crate) async fn a_claim_takes_no_candidate_on_its_old_terms(schema: Arc<Schema>) {
    slow_clock(&schema).await;
    let store = schema.builder().clock_table("test_clock");
    let store = store.connect().await.unwrap();
    let later = JobAction::Reschedule(RunAt::In(Duration::from_secs(3_600)));
    for action in [later, JobAction::Cancel, JobAction::Pause] {
        let (changed, other) = (enqueue(&store, job()).await, enqueue(&store, job()).await);
        let claimed = claim_during(&schema, changed, action).await;
        assert_eq!(claimed, [(other, Priority::Normal)], "{action:?}");
        assert_ne!(
            state(&store, changed).await,
            JobState::Running,
            "{action:?}"
        );
    }
    // A job with a changed priority is claimed, with the new priority.
    let (other, changed) = (enqueue(&store, job()).await, enqueue(&store, job()).await);
    let action = JobAction::SetPriority(Priority::High);
    let claimed = claim_during(&schema, changed, action).await;
    let expected = [(changed, Priority::High), (other, Priority::Normal)];
    assert_eq!(claimed, expected);
}

async fn state(store: &Checked<PostgresStore>, id: JobId) -> JobState {
    let found = store.get(&[id], Detail::Whole).await.unwrap().remove(0);
    found.unwrap().state
}

pub(crate) async fn a_job_that_can_be_neither_read_nor_failed_keeps_no_other(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let spoiled = enqueue(&store, job()).await;
    let whole = enqueue(&store, job()).await;
    let spoil = "UPDATE {schema}.job_data SET retry = '{' WHERE id = '{job}';
                 ALTER TABLE {schema}.attempts RENAME TO elsewhere";
    let spoil = spoil.replace("{job}", &spoiled.to_string());
    schema.execute(&spoil).await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let claimed: Vec<JobId> = claimed.iter().map(|job| job.claim.token.job).collect();
    assert_eq!(claimed, [whole]);
}

pub(crate) async fn what_was_claimed_is_kept_when_looking_for_more_takes_too_long(
    schema: Arc<Schema>,
) {
    let store = schema.builder().deadline(Duration::from_secs(4));
    let store = store.connect().await.unwrap();
    let spoiled = enqueue(&store, job()).await;
    let whole = enqueue(&store, job()).await;
    let spoil = "UPDATE {schema}.job_data SET retry = '{' WHERE id = '{job}'";
    let spoil = spoil.replace("{job}", &spoiled.to_string());
    schema.execute(&spoil).await.unwrap();
    // The store cannot mark the unreadable job as failed either, because this lock blocks that
    // call.
    let lock = "BEGIN; LOCK TABLE {schema}.attempts IN ACCESS EXCLUSIVE MODE";
    schema.execute(lock).await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let claimed: Vec<JobId> = claimed.iter().map(|job| job.claim.token.job).collect();
    assert_eq!(claimed, [whole]);
    schema.execute("COMMIT").await.unwrap();
    enqueue(&store, job()).await;
    assert_eq!(
        store.claim_next_batch(&request_all()).await.unwrap().len(),
        1
    );
}

pub(crate) async fn a_route_that_cannot_be_decoded_is_passed_over(schema: Arc<Schema>) {
    let store = open(&schema).await;
    enqueue(&store, job().queue("spoiled")).await;
    let spoil = "ALTER TABLE {schema}.routes ALTER COLUMN kind DROP NOT NULL;
                 UPDATE {schema}.routes SET kind = NULL";
    schema.execute(spoil).await.unwrap();
    let other = open(&schema).await;
    let whole = enqueue(&other, job().queue("whole")).await;
    for store in [store, other] {
        QueueStore::queues(&store).await.unwrap();
    }
    let claimed = open(&schema).await.claim_next_batch(&request_all()).await;
    let claimed: Vec<JobId> = claimed
        .unwrap()
        .iter()
        .map(|job| job.claim.token.job)
        .collect();
    assert_eq!(claimed, [whole]);
}

pub(crate) async fn snapshots_that_outlive_a_statement_are_refused(schema: Arc<Schema>) {
    for isolation in ["repeatable\\ read", "serializable"] {
        let separator = if schema.url.contains('?') { '&' } else { '?' };
        let setting = format!("-c default_transaction_isolation={isolation}");
        let setting = setting.replace(' ', "%20").replace('\\', "%5C");
        let url = format!("{}{separator}options={setting}", schema.url);
        let refused = PostgresStore::builder(&url).schema(&schema.name).connect();
        let refused = refused.await.unwrap_err();
        assert_kind(&refused, StoreErrorKind::Misconfigured);
        assert!(refused.to_string().contains("isolation"), "{refused}");
    }
}
