//! Claims by several handles, claims of damaged rows, and the query plans of claims.

use std::collections::HashSet;
use std::time::Duration;

use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{
    AttemptOutcome, ClaimRequest, Detail, Enqueued, Guarded, Heartbeat, JobSelector, NodeStatus,
    Outcome, PurgeRequest, Settlement,
};
use ratchet_core::store::{ArchiveStore, JobStore, NodeStore};
use ratchet_core::{JobAction, JobId, JobState, Name, NewJob, NodeId, Priority};
use rusqlite::{Connection, params};

use crate::{TempDatabase, statement};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_handles_claim_each_job_once() {
    const JOBS: usize = 3_000;
    let db = TempDatabase::new();
    let store = db.open().await;
    let jobs: Vec<NewJob> = (0..JOBS).map(|_| job()).collect();
    store.enqueue(&jobs).await.unwrap();
    let claimers: Vec<_> = (0..6)
        .map(|_| {
            let path = db.path();
            tokio::spawn(async move {
                let builder = ratchet_store_sqlite::SqliteStore::builder(path);
                let store = builder.connect().await.unwrap();
                let request = ClaimRequest::new(NodeId::new(), 17);
                let mut mine = Vec::new();
                loop {
                    let claimed = store.claim_next_batch(&request).await.unwrap();
                    if claimed.is_empty() {
                        return mine;
                    }
                    mine.extend(claimed.iter().map(|job| job.claim.token.job));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    assert_eq!(all.len(), JOBS);
    assert_eq!(all.into_iter().collect::<HashSet<JobId>>().len(), JOBS);
}

#[tokio::test]
async fn a_route_another_handle_added_is_claimed() {
    let db = TempDatabase::new();
    let (one, two) = (db.open().await, db.open().await);
    for round in 0..3 {
        let kind = format!("kind {round}");
        enqueue(&one, NewJob::new(&kind, &1)).await;
        let claimed = two.claim_next_batch(&request_all()).await.unwrap();
        assert_eq!(claimed[0].claim.route.kind, kind.as_str());
    }
}

#[tokio::test]
async fn a_node_that_is_not_active_gets_nothing_and_takes_no_lock() {
    let db = TempDatabase::new();
    let store = db.open_impatient().await;
    enqueue(&store, job()).await;
    let request = request_all();
    let label = Name::new("label", "n").unwrap();
    let beat = |status| Heartbeat::new(request.node, label.clone(), status, Duration::from_secs(5));
    store.heartbeat(&beat(NodeStatus::Joining)).await.unwrap();
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(store.claim_next_batch(&request).await.unwrap(), []);
    other.execute_batch("COMMIT").unwrap();
    store.heartbeat(&beat(NodeStatus::Active)).await.unwrap();
    assert_eq!(store.claim_next_batch(&request).await.unwrap().len(), 1);
}

#[tokio::test]
async fn damaged_jobs_become_dead_letters_and_the_others_are_claimed() {
    let damages = [
        "UPDATE ratchet_job_data SET retry = '{' WHERE id = ?1",
        "UPDATE ratchet_job_data SET retry = CAST(x'ff' AS TEXT) WHERE id = ?1",
        "UPDATE ratchet_job_data SET timeout = -1 WHERE id = ?1",
        "UPDATE ratchet_job_data SET traceparent = CAST(x'ff' AS TEXT) WHERE id = ?1",
        "UPDATE ratchet_job_data SET payload_version = 0 WHERE id = ?1",
        "UPDATE ratchet_jobs SET attempts = -1 WHERE data = ?1",
        "UPDATE ratchet_jobs SET crash_count = 9876543210 WHERE data = ?1",
        "DELETE FROM ratchet_job_data WHERE id = ?1",
    ];
    for damage in damages {
        let db = TempDatabase::new();
        let store = db.open().await;
        let key = || job().unique_key("key");
        let ids = [
            enqueue(&store, job()).await,
            enqueue(&store, key()).await,
            enqueue(&store, job()).await,
        ];
        // The second job has the row with the id 2 in `ratchet_job_data`.
        db.sql().execute(damage, [2]).unwrap();
        let request = ClaimRequest::new(NodeId::new(), 2);
        let claimed = store.claim_next_batch(&request).await.unwrap();
        let order: Vec<JobId> = claimed.iter().map(|job| job.claim.token.job).collect();
        assert_eq!(order, [ids[0], ids[2]], "{damage}");

        let record = store
            .get(&[ids[1]], Detail::Whole)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(record.state, JobState::Failed, "{damage}");
        let error = record.last_error.unwrap();
        assert!(error.contains("cannot be read"), "{damage}: {error}");
        let history = store.history(ids[1]).await.unwrap();
        assert_eq!(history.len(), 1);
        assert_eq!(history[0].outcome, AttemptOutcome::Failed);
        if !damage.starts_with("DELETE") {
            let again = store.enqueue(&[key()]).await.unwrap();
            assert!(matches!(again[0], Enqueued::Created(_)), "{damage}");
        }
    }
}

#[tokio::test]
async fn a_payload_that_is_no_text_is_given_as_something_no_handler_decodes() {
    let db = TempDatabase::new();
    let store = db.open().await;
    enqueue(&store, job()).await;
    db.sql()
        .execute_batch("UPDATE ratchet_job_data SET payload = CAST(x'ff' AS TEXT)")
        .unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let input = claimed[0].input.as_ref().unwrap();
    assert!(input.payload.decode::<i32>().is_err());
    let inputs = store.load_inputs(&[claimed[0].claim.token]).await.unwrap();
    assert_eq!(inputs, [Some(input.clone())]);
    let settlement = Settlement::new(claimed[0].claim.token, Outcome::Released);
    store.settle(&[settlement]).await.unwrap();
}

#[tokio::test]
async fn the_schema_keeps_numbers_out_that_no_enum_has() {
    let db = TempDatabase::new();
    let store = db.open().await;
    enqueue(&store, job()).await;
    for damage in [
        "UPDATE ratchet_jobs SET priority = 9",
        "UPDATE ratchet_jobs SET state = 7",
        "UPDATE ratchet_jobs SET node = x'00'",
        "UPDATE ratchet_jobs SET run_at = 'soon'",
        "UPDATE ratchet_nodes SET status = 'up'; UPDATE ratchet_jobs SET id = x''",
    ] {
        assert!(db.sql().execute_batch(damage).is_err(), "{damage}");
    }
}

pub(crate) fn plan(database: &Connection, sql: &str) -> String {
    let mut statement = database
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap();
    let steps = statement
        .raw_query()
        .mapped(|row| row.get::<_, String>(3))
        .map(Result::unwrap);
    steps.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_claim_of_a_long_queue_reads_the_index_in_its_order() {
    let db = TempDatabase::new();
    let store = db.open().await;
    for _ in 0..10 {
        let jobs: Vec<NewJob> = (0..10_000)
            .map(|index| job().priority(Priority::ALL[index % 5]))
            .collect();
        store.enqueue(&jobs).await.unwrap();
    }
    let database = db.sql();
    for analyzed in [false, true] {
        if analyzed {
            database.execute_batch("ANALYZE").unwrap();
        }
        let due = plan(
            &database,
            &statement(include_str!("../../src/sql/claims.sql"), "claim_due"),
        );
        assert!(
            due.contains("USING COVERING INDEX ratchet_jobs_claim"),
            "{due}"
        );
        assert!(
            due.contains("route=? AND priority=? AND (run_at,id)>(?,?)"),
            "{due}"
        );
        assert!(!due.contains("TEMP B-TREE"), "{due}");
        let streams = plan(
            &database,
            &statement(include_str!("../../src/sql/claims.sql"), "claim_streams"),
        );
        assert!(
            streams.contains("USING COVERING INDEX ratchet_jobs_claim"),
            "{streams}"
        );
        assert!(!streams.contains("TEMP B-TREE"), "{streams}");
    }
}

#[tokio::test]
async fn to_see_what_is_late_takes_a_seek_per_route_and_level() {
    let db = TempDatabase::new();
    let store = db.open().await;
    for of in 0..3 {
        let job = |_| NewJob::new(&format!("kind-{of}"), &());
        let jobs: Vec<NewJob> = (0..10_000).map(job).collect();
        store.enqueue(&jobs).await.unwrap();
    }
    let database = db.sql();
    for analyzed in [false, true] {
        if analyzed {
            database.execute_batch("ANALYZE").unwrap();
        }
        let due = plan(
            &database,
            &statement(include_str!("../../src/sql/queues.sql"), "due_routes"),
        );
        let seek = "SEARCH job USING COVERING INDEX ratchet_jobs_claim \
                    (route=? AND priority=? AND run_at<?)";
        assert!(due.contains(seek), "{due}");
        assert!(!due.contains("SCAN job"), "{due}");
        let depth = plan(
            &database,
            &statement(include_str!("../../src/sql/queues.sql"), "count_due"),
        );
        assert!(depth.contains(seek), "{depth}");
        let locks = plan(
            &database,
            &statement(include_str!("../../src/sql/locks.sql"), "list_locks"),
        );
        assert!(locks.contains("USING PRIMARY KEY (name>?)"), "{locks}");
        assert!(!locks.contains("TEMP B-TREE"), "{locks}");
    }
}

/// Statements that may read all jobs, because only operators run them, not the loops of nodes.
const SCANS: [&str; 2] = ["count_jobs", "count_matching"];

#[tokio::test]
async fn no_statement_of_a_loop_goes_through_all_jobs() {
    let db = TempDatabase::new();
    drop(db.open().await);
    let database = db.sql();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql");
    let mut checked = 0;
    let files = std::fs::read_dir(sources).unwrap();
    let files = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let files: Vec<String> = files.collect();
    for (name, sql) in files.iter().flat_map(|file| ratchet_sql::split(file)) {
        assert!(
            sql.starts_with("-- "),
            "expected the statement {name} to begin with a comment"
        );
        if name == "create_migrations" || SCANS.contains(&name) {
            continue;
        }
        let sql = ratchet_sql::render(name, sql);
        let plan = plan(&database, &sql);
        for table in [
            "ratchet_jobs",
            "ratchet_job_data",
            "ratchet_attempts",
            "ratchet_job_tags",
            "ratchet_archive",
            "job",
            "tagged",
        ] {
            let scan = plan.lines().find(|line| *line == format!("SCAN {table}"));
            assert_eq!(scan, None, "{name}:\n{plan}");
        }
        checked += 1;
    }
    assert!(checked > 50);
}

#[tokio::test]
async fn a_job_that_goes_leaves_nothing_but_the_idempotency_key() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let count = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM ratchet_{table}");
        db.sql().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    let request = PurgeRequest::new(JobState::Failed, Duration::ZERO, 10);
    for way in 0..3 {
        let key = way.to_string();
        let new = job().unique_key("u").tag("t").idempotency_key(&key);
        let id = enqueue(&store, new).await;
        let token = store.claim_next_batch(&request_all()).await.unwrap()[0]
            .claim
            .token;
        let error = "it failed".to_owned();
        let end = Settlement::new(token, Outcome::Failed { error });
        store.settle(&[end]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        for table in ["jobs", "job_data", "job_notes", "attempts", "job_tags"] {
            assert_eq!(count(table), 1, "{table}");
        }
        match way {
            0 => assert_eq!(store.purge(&request).await.unwrap(), Guarded::Done(1)),
            1 => {
                let jobs = JobSelector::Ids(vec![id]);
                store.act(&jobs, JobAction::Delete).await.unwrap();
            }
            _ => assert_eq!(store.archive(&request).await.unwrap(), Guarded::Done(1)),
        }
        for table in ratchet_sql::JOB_TABLES {
            assert_eq!(count(table), 0, "{table}");
        }
    }
    assert_eq!((count("idempotency_keys"), count("archive")), (3, 1));
}

#[tokio::test]
async fn the_clock_is_read_when_the_call_runs() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { enqueue(&store, job()).await }
    });
    tokio::time::sleep(Duration::from_millis(80)).await;
    let released: i64 = other
        .query_row(
            "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    other.execute_batch("COMMIT").unwrap();
    let id = waiting.await.unwrap();
    let created: i64 = other
        .query_row(
            "SELECT created_at FROM ratchet_jobs WHERE id = ?1",
            params![id.as_bytes()],
            |row| row.get(0),
        )
        .unwrap();
    assert!(created >= released, "{created} {released}");
}
