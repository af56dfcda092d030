//! Turns of jobs with a fair key, and the locks of the calls that give them.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{ClaimRequest, Enqueued, Outcome, Settlement};
use ratchet_core::store::JobStore;
use ratchet_core::{JobId, NewJob, NodeId};
use sqlx::{Connection, PgConnection, Row};

use crate::open;
use crate::server::Schema;

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

/// Returns which of these jobs have a turn.
async fn have_turns(schema: &Schema, jobs: &[JobId]) -> Vec<bool> {
    let mut have = Vec::new();
    for id in jobs {
        let turn = format!("SELECT turn IS NOT NULL FROM {{schema}}.jobs WHERE id = '{id}'");
        have.push(schema.rows(&turn).await.unwrap()[0].get(0));
    }
    have
}

pub(crate) async fn an_enqueue_that_waits_for_a_key_keeps_no_other_waiting(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let first = enqueue(&store, of("a")).await;
    for (kind, keyed) in [
        ("unique", of("a").unique_key("u")),
        ("idempotency", of("a").idempotency_key("i")),
    ] {
        let mut application = PgConnection::connect(&schema.url).await.unwrap();
        let mut tx = application.begin().await.unwrap();
        let same = match kind {
            "unique" => job().unique_key("u"),
            _ => job().idempotency_key("i"),
        };
        store.enqueue_in(&mut tx, &[same]).await.unwrap();
        let waiting = tokio::spawn({
            let (store, keyed) = (store.clone(), keyed.clone());
            async move { store.enqueue(&[of("a"), keyed]).await }
        });
        schema.until_a_call_waits().await;
        let limit = Duration::from_secs(60);
        let other = tokio::time::timeout(limit, enqueue(&store, of("a"))).await;
        let other = other.expect("the route is free");
        assert!(!waiting.is_finished(), "{kind}");
        tx.rollback().await.unwrap();
        let answers = waiting.await.unwrap().unwrap();
        let ids: Vec<JobId> = answers.iter().map(|answer| answer.id()).collect();
        assert_eq!(answers, [ids[0], ids[1]].map(Enqueued::Created), "{kind}");
        let jobs = [first, other, ids[0], ids[1]];
        assert_eq!(have_turns(&schema, &jobs).await, [true; 4], "{kind}");
    }
}

/// Damages some jobs, and claims jobs of all keys.
pub(crate) async fn damaged_jobs_of_a_key_stop_no_claim(schema: Arc<Schema>) {
    let store = open(&schema).await;
    for damage in [
        "run_at = -5",
        "run_at = -9223372036854775808",
        "run_at = 9223372036854775807",
        "fair_cost = -1",
        "fair_cost = NULL",
    ] {
        let damaged = enqueue(&store, of("a")).await;
        let update = format!("UPDATE {{schema}}.jobs SET {damage} WHERE id = '{damaged}'");
        schema.execute(&update).await.unwrap();
        let good = [
            enqueue(&store, of("a")).await,
            enqueue(&store, of("b")).await,
        ];
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        let claimed: Vec<JobId> = claimed.iter().map(|job| job.claim.token.job).collect();
        assert!(
            good.iter().all(|job| claimed.contains(job)),
            "{damage}: {claimed:?}"
        );
    }
}

pub(crate) async fn a_claim_locks_only_routes_in_which_jobs_sleep(schema: Arc<Schema>) {
    let store = open(&schema).await;
    for queue in ["idle", "asleep"] {
        enqueue(&store, of("a").queue(queue)).await;
    }
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let released = claimed
        .iter()
        .filter(|job| job.claim.route.queue.as_str() == "asleep")
        .map(|job| Settlement::new(job.claim.token, Outcome::Released));
    let released: Vec<Settlement> = released.collect();
    store.settle(&released).await.unwrap();
    // The last transaction that locked each row, by queue.
    let locks = "SELECT queue, xmax::text FROM {schema}.routes ORDER BY queue";
    let locks = async || {
        let rows = schema.rows(locks).await.unwrap();
        let lock = |row: &sqlx::postgres::PgRow| (row.get(0), row.get(1));
        rows.iter().map(lock).collect::<Vec<(String, String)>>()
    };
    let before = locks().await;
    let request = ClaimRequest::new(NodeId::new(), 10);
    let woken = store.claim_next_batch(&request).await.unwrap();
    assert_eq!(woken.len(), 1);
    let after = locks().await;
    assert_eq!(before.len(), 2);
    assert_ne!(before[0], after[0], "the claim gives a turn in this route");
    assert_eq!(before[1], after[1], "the claim gives no turn in this route");
}
