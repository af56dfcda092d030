//! Signals in damaged rows.

use std::time::Duration;

use ratchet_conformance::kit::{enqueue, job};
use ratchet_core::JobState;
use ratchet_core::model::Detail;
use ratchet_core::store::{JobStore, SignalStore};

use crate::TempDatabase;

#[tokio::test]
async fn a_wait_without_its_job_keeps_no_other_from_its_deadline() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(enqueue(&store, job().wait_for("s", Duration::from_secs(3_600))).await);
    }
    let sql = db.sql();
    let gone = "DELETE FROM ratchet_jobs WHERE id = ?1";
    sql.execute(gone, [ids[0].as_bytes()]).unwrap();
    sql.execute("UPDATE ratchet_signals SET deadline = 1", [])
        .unwrap();
    assert_eq!(store.expire(10).await.unwrap(), ids[1..]);
    for read in store.get(&ids[1..], Detail::Whole).await.unwrap() {
        assert_eq!(read.unwrap().state, JobState::Failed);
    }
    // The signal is not found again.
    let count = "SELECT count(*) FROM ratchet_signals WHERE state = 0";
    let left: i64 = sql.query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}
