//! The dictionary of routes: which queues share an entry, and entries that the database lacks.

use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{PauseRequest, PauseScope};
use ratchet_core::store::{Checked, DiagnosticStore, JobStore, QueueStore};
use ratchet_core::{Name, NewJob, Selection};
use ratchet_store_sqlite::SqliteStore;

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

/// Opens a store in which only the first queue has routes of its own.
async fn sharing(db: &TempDatabase) -> Checked<SqliteStore> {
    let builder = SqliteStore::builder(db.path()).own_queues(1);
    builder.connect().await.unwrap()
}

fn count(db: &TempDatabase, rows: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {rows}");
    db.sql().query_row(&count, [], |row| row.get(0)).unwrap()
}

fn name(text: &str) -> Name {
    Name::new("queue", text).unwrap()
}

#[tokio::test]
async fn the_dictionary_does_not_grow_with_the_queues() {
    let db = TempDatabase::new();
    let stores = [sharing(&db).await, sharing(&db).await];
    for number in 0..50 {
        let of = |kind: &str| NewJob::new(kind, &()).queue(&format!("q{number}"));
        enqueue(&stores[number % 2], of("a")).await;
        enqueue(&stores[(number + 1) % 2], of("b")).await;
    }
    assert_eq!(count(&db, "ratchet_routes"), 4);
    assert_eq!(count(&db, "ratchet_jobs WHERE queue IS NULL"), 2);
}

#[tokio::test]
async fn jobs_of_paused_and_excluded_queues_move_to_routes_of_their_own() {
    let db = TempDatabase::new();
    let store = sharing(&db).await;
    for queue in ["own", "paused", "excluded", "other"] {
        let jobs: Vec<NewJob> = (0..5).map(|_| job().queue(queue)).collect();
        store.enqueue(&jobs).await.unwrap();
    }
    assert_eq!(store.separate_queues(100).await.unwrap(), 0);
    let pause = PauseRequest::new(PauseScope::Queue(name("paused")));
    store.pause(&pause).await.unwrap();
    let excluding = request_all().queues(Selection::Except(vec![name("excluded")]));
    assert_eq!(store.claim_next_batch(&excluding).await.unwrap().len(), 10);
    for moved in [3, 3, 3, 1, 0] {
        assert_eq!(store.separate_queues(3).await.unwrap(), moved);
    }
    assert_eq!(
        count(&db, "ratchet_jobs WHERE queue IS NOT NULL AND state = 0"),
        0
    );
    enqueue(&store, job().queue("excluded")).await;
    assert_eq!(count(&db, "ratchet_jobs WHERE queue = 'excluded'"), 0);
    enqueue(&store, job().queue("other")).await;
    assert_eq!(
        count(&db, "ratchet_jobs WHERE queue = 'other' AND state = 0"),
        1
    );
}

#[tokio::test]
async fn a_claim_that_finds_only_excluded_jobs_marks_their_queue() {
    let db = TempDatabase::new();
    let store = sharing(&db).await;
    enqueue(&store, job().queue("own")).await;
    enqueue(&store, job().queue("excluded")).await;
    let except = ["own", "excluded"].map(name).to_vec();
    let excluding = request_all().queues(Selection::Except(except));
    assert!(store.claim_next_batch(&excluding).await.unwrap().is_empty());
    // Otherwise each later claim would read all of these jobs only to skip them.
    assert_eq!(store.separate_queues(100).await.unwrap(), 1);
}
