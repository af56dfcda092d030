//! Tests how the store handles rows that cannot be read.

#[allow(dead_code, reason = "each test uses only a part of this module")]
mod map;

use ratchet_core::memory::ManualClock;
use ratchet_core::model::{ClaimRequest, Detail, Enqueued, JobSelector};
use ratchet_core::store::{Acquired, Checked, IfKnown, JobStore, LockStore, PermitStore};
use ratchet_core::{JobAction, JobState, Name, NewJob, NodeId, StoreErrorKind, time};
use ratchet_kv::{Access, Engine, KvStore, Transaction, testing};

use map::MapEngine;

#[tokio::test]
async fn jobs_that_cannot_be_read_do_not_keep_others_from_being_claimed() {
    let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
    let engine = MapEngine::new(clock);
    let store = KvStore::new(engine.clone());
    let jobs = [(); 3].map(|()| NewJob::new("mail", &1));
    store.enqueue(&jobs).await.unwrap();
    let mut transaction = engine.begin(Access::Write).await.unwrap();
    for job in &jobs[..2] {
        // The key of a job consists of the table number and the job's id.
        let key = [&[0], job.id().as_bytes().as_slice()].concat();
        assert!(transaction.get(&key).await.unwrap().is_some());
        transaction.put(key, b"{".to_vec()).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let mut claimed = Vec::new();
    for _ in 0..3 {
        let request = ClaimRequest::new(NodeId::new(), 1);
        claimed.extend(store.claim_next_batch(&request).await.unwrap());
    }
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].claim.token.job, jobs[2].id());
}

fn store() -> KvStore<MapEngine> {
    let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
    KvStore::new(MapEngine::new(clock))
}

#[tokio::test]
async fn a_damaged_job_leaves_nothing_behind_whatever_the_field() {
    let name = |text| Name::new("name", text).unwrap();
    let job = || {
        let job = NewJob::new("mail", &1).lane("l").permit("api");
        job.unique_key("u").tag("t").idempotency_key("i")
    };
    let text = ratchet_core::model::StoredJob::enqueued(&job(), 0);
    let text: serde_json::Value = serde_json::from_str(&text.encode().unwrap()).unwrap();
    for field in text.as_object().unwrap().keys() {
        if ["v", "id", "queue", "state"].contains(&&**field) {
            continue;
        }
        let store = store();
        store
            .set_permits(&name("api"), 1, IfKnown::Change)
            .await
            .unwrap();
        let bad = job();
        let next = NewJob::new("mail", &1).lane("l").permit("api");
        let both = [bad.clone(), next.clone()];
        store.enqueue(&both).await.unwrap();
        testing::spoil_field(&store, bad.id(), field).await.unwrap();
        let mut claimed = Vec::new();
        for _ in 0..2 {
            let request = ClaimRequest::new(NodeId::new(), 10);
            claimed.extend(store.claim_next_batch(&request).await.unwrap());
        }
        assert_eq!(claimed.len(), 1, "{field}");
        assert_eq!(claimed[0].claim.token.job, next.id(), "{field}");
        let again = NewJob::new("mail", &1).unique_key("u");
        let answers = store.enqueue(std::slice::from_ref(&again)).await.unwrap();
        assert!(matches!(answers[0], Enqueued::Created(_)), "{field}");
        let store = Checked::new(store);
        let ended = JobSelector::Ids(vec![bad.id()]);
        let shown = store.get(&[bad.id()], Detail::Whole).await.unwrap();
        let shown = shown[0].as_ref().map(|job| job.state);
        assert_eq!(shown, Some(JobState::Failed), "{field}");
        store.act(&ended, JobAction::Delete).await.unwrap();
        let others = JobSelector::Ids(vec![again.id()]);
        store.act(&others, JobAction::Cancel).await.unwrap();
        store.act(&others, JobAction::Delete).await.unwrap();
        let held = store.permits().await.unwrap();
        assert_eq!(held[0].held, 1, "{field}");
        // Only the running job is left: its row, and its entries in the indexes of running jobs, of
        // permits, of its lane, and of all jobs.
        assert_eq!(testing::rows_of_jobs(&store).await.unwrap(), 5, "{field}");
    }
}

#[tokio::test]
async fn a_lock_that_cannot_be_read_may_be_held() {
    let store = store();
    let name = |text| Name::new("name", text).unwrap();
    let hour = std::time::Duration::from_secs(3_600);
    let first = store.acquire(&name("lock"), &name("a"), hour).await;
    assert!(matches!(first.unwrap(), Acquired::Acquired { .. }));
    testing::spoil_lock(&store, &name("lock")).await.unwrap();
    let refused = store.acquire(&name("lock"), &name("b"), hour).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

#[tokio::test]
async fn data_of_a_newer_format_is_refused() {
    let store = store();
    store.enqueue(&[NewJob::new("mail", &1)]).await.unwrap();
    // The key of the format has no more than the number of its table.
    let mut transaction = store.engine().begin(Access::Write).await.unwrap();
    assert_eq!(transaction.get(&[13]).await.unwrap(), Some(b"1".to_vec()));
    transaction.put(vec![13], b"2".to_vec()).await.unwrap();
    transaction.commit().await.unwrap();
    let request = ClaimRequest::new(NodeId::new(), 1);
    let refused = store.claim_next_batch(&request).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    assert!(refused.to_string().contains("format 2"), "{refused}");
}
