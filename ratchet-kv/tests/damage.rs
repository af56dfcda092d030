//! Rows that cannot be read.

#[allow(dead_code, reason = "each test uses a part of it")]
mod map;

use ratchet_core::memory::ManualClock;
use ratchet_core::model::ClaimRequest;
use ratchet_core::store::JobStore;
use ratchet_core::{NewJob, NodeId, time};
use ratchet_kv::{Access, Engine, KvStore, Transaction};

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
        // The key of a job: the number of its table, and its id.
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
