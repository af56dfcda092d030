//! Turns of jobs with a fair key: damaged rows, and the work of a claim.

use ratchet_conformance::kit::{enqueue, job};
use ratchet_core::model::ClaimRequest;
use ratchet_core::store::JobStore;
use ratchet_core::{NewJob, NodeId};

use ratchet_core::fair::WOKEN_BY_A_CLAIM;
use rusqlite::{StatementStatus, params};

use crate::{TempDatabase, statement};

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

#[tokio::test]
async fn to_find_sleepers_costs_the_same_however_many_there_are() {
    let db = TempDatabase::new();
    drop(db.open().await);
    let database = db.sql();
    let text = statement(include_str!("../../src/sql/claims.sql"), "find_sleepers");
    let add_route = "INSERT INTO ratchet_routes (id, queue, kind, stamp, fair)
                     VALUES (?1, 'q' || ?1, 'k', 7, 1)";
    let fill = "WITH RECURSIVE number (n) AS (
                    VALUES (1) UNION ALL SELECT n + 1 FROM number WHERE n < ?2)
                INSERT INTO ratchet_jobs (id, state, route, priority, run_at, data, created_at,
                                          fair_key, fair_cost)
                SELECT randomblob(16), 0, ?1, 2, n, 0, n, 'key', 1000 FROM number";
    for route in [1, 2] {
        database.execute(add_route, [route]).unwrap();
    }
    let mut steps = Vec::new();
    let limit = i64::try_from(WOKEN_BY_A_CLAIM).unwrap();
    for more in [limit, 20 * limit] {
        for route in [1, 2] {
            database.execute(fill, params![route, more]).unwrap();
        }
        let mut find = database.prepare(&text).unwrap();
        let found = find.query_map(params!["[1,2]", i64::MAX, limit], |_| Ok(()));
        assert_eq!(found.unwrap().count(), WOKEN_BY_A_CLAIM);
        steps.push(find.get_status(StatementStatus::VmStep));
    }
    assert!(steps[1] < steps[0] + steps[0] / 10, "{steps:?}");
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
