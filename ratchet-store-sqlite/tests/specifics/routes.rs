//! A database that lacks routes of its jobs.

use ratchet_conformance::kit::{enqueue, job};
use ratchet_core::NewJob;
use ratchet_core::store::DiagnosticStore;

use crate::TempDatabase;

#[tokio::test]
async fn jobs_without_a_route_are_found() {
    let db = TempDatabase::new();
    let store = db.open().await;
    enqueue(&store, job()).await;
    enqueue(&store, NewJob::new("mine", &1)).await;
    let lost = async || {
        let mut findings = store.findings().await.unwrap();
        findings.retain(|finding| finding.code == "lost_route");
        findings
    };
    assert_eq!(lost().await, []);
    let lose = "DELETE FROM ratchet_routes WHERE kind = 'mine'";
    db.sql().execute(lose, []).unwrap();
    assert_eq!(lost().await[0].detail.as_deref(), Some("1 of route 2"));
}
