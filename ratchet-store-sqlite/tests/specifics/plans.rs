//! The query plans of the statements, with current, outdated and missing statistics of the tables.

use ratchet_conformance::kit::job;
use ratchet_core::NewJob;
use ratchet_core::store::JobStore;

use crate::TempDatabase;
use crate::claims::plan;

/// Statements that may read a whole table of jobs. Only requests of operators run these statements,
/// never the loops of a node.
const OPERATORS: [&str; 4] = [
    "count_jobs",
    "count_matching",
    "list_unfinished_oldest",
    "list_unfinished_newest",
];
/// Objects that any statement may scan, as query plans name them: tables that do not grow with the
/// number of jobs, and rows that are not in a table.
const SMALL: [&str; 18] = [
    "(subquery",
    "5 CONSTANT ROWS",
    "CONSTANT ROW",
    "head",
    "json_each ",
    "level",
    "permit",
    "queue VIRTUAL TABLE",
    "ratchet_fair_limits",
    "ratchet_jobs USING INDEX ratchet_jobs_running",
    "ratchet_nodes",
    "ratchet_pauses",
    "ratchet_rates",
    "ratchet_routes",
    "recurring",
    "route",
    "shared",
    "wanted",
];

/// Returns all statements by their names.
fn statements() -> Vec<(String, String)> {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql");
    let files = std::fs::read_dir(sources).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let files = files.filter(|file| !file.ends_with("schema.sql"));
    let files: Vec<String> = files
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let statements = files.iter().flat_map(|file| ratchet_sql::split(file));
    statements
        .map(|(name, source)| (name.to_owned(), ratchet_sql::render(name, source)))
        .collect()
}

#[tokio::test]
async fn no_statement_of_a_loop_reads_all_jobs() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let database = db.sql();
    let statements = statements();
    assert!(statements.len() > 100);
    for (state, more) in [
        ("empty", 0),
        ("never analyzed", 300),
        ("analyzed", 0),
        ("grown since it was analyzed", 10_000),
        ("analyzed again", 0),
    ] {
        let jobs: Vec<NewJob> = (0..more).map(|_| job()).collect();
        store.enqueue(&jobs).await.unwrap();
        if state.starts_with("analyzed") {
            database.execute_batch("ANALYZE").unwrap();
        }
        for (name, text) in &statements {
            let plan = plan(&database, text);
            let scans = plan.lines().filter_map(|step| step.strip_prefix("SCAN "));
            let mut large = scans.filter(|scan| !SMALL.iter().any(|small| scan.starts_with(small)));
            let large = large.next().filter(|_| !OPERATORS.contains(&&**name));
            assert_eq!(large, None, "{name}, {state}:\n{plan}");
        }
    }
}
