//! Turns of jobs with a fair key: damaged rows, and the work of a claim.

use ratchet_conformance::kit::{enqueue, job};
use ratchet_core::model::ClaimRequest;
use ratchet_core::store::JobStore;
use ratchet_core::{NewJob, NodeId};

use crate::TempDatabase;

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

#[tokio::test]
async fn a_damaged_cost_stops_no_call_on_its_key() {
    let db = TempDatabase::new();
    let store = db.open().await;
    for damage in ["-1", "NULL", "9223372036854775807"] {
        let damaged = enqueue(&store, of("a")).await;
        let update = format!("UPDATE ratchet_jobs SET fair_cost = {damage} WHERE id = ?1");
        db.sql().execute(&update, [damaged.as_bytes()]).unwrap();
        let good = [
            enqueue(&store, of("a")).await,
            enqueue(&store, of("b")).await,
        ];
        let mut claimed = Vec::new();
        for _ in 0..3 {
            let request = ClaimRequest::new(NodeId::new(), 1);
            let jobs = store.claim_next_batch(&request).await.unwrap();
            claimed.extend(jobs.iter().map(|job| job.claim.token.job));
        }
        // The damaged job counts as one of weight 1, so the other key is next.
        assert_eq!(claimed, [damaged, good[1], good[0]], "{damage}");
    }
}
