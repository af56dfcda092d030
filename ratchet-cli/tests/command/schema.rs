//! Tests of `ratchet migrate`.

use crate::kit::WorkDir;

#[test]
fn a_database_is_looked_at_before_it_is_changed() {
    let dir = WorkDir::empty();
    let check = dir.run(&["migrate", "--check"]).exits(6).says("init");
    assert!(check.stderr.is_empty(), "{check:?}");
    let lacking = dir.run(&["--json", "migrate", "--check"]).exits(6).json();
    assert_eq!(lacking["up_to_date"], false);
    assert_eq!(lacking["migrations"][0]["name"], "init");
    dir.run(&["migrate", "--dry-run"])
        .exits(0)
        .says("CREATE TABLE ratchet_jobs");
    assert!(!dir.path("jobs.db").exists());

    dir.run(&["migrate"]).exits(0).says("init");
    dir.run(&["migrate", "--check"]).exits(0).says("up to date");
    let nothing = dir.run(&["migrate", "--dry-run"]).exits(0);
    assert_eq!(nothing.stdout, "");
    let again = dir.json(&["migrate"]);
    assert_eq!(again["migrations"].as_array().unwrap().len(), 0);
    assert_eq!(again["listed"], "applied");
}

#[test]
fn what_is_printed_makes_a_database_that_is_up_to_date() {
    let dir = WorkDir::empty();
    let printed = dir.run(&["migrate", "--print"]).exits(0);
    assert!(!dir.path("jobs.db").exists());
    // `.bail on` makes the `sqlite3` tool stop at the first error. Otherwise, the tool would commit
    // the statements after the failed one.
    let sql = printed.stdout.strip_prefix(".bail on\n.timeout 30000\n");
    let sql = sql.unwrap_or_else(|| panic!("{printed:?}"));
    let database = rusqlite::Connection::open(dir.path("jobs.db")).unwrap();
    database.execute_batch(sql).unwrap();
    drop(database);
    dir.run(&["migrate", "--check"]).exits(0);
    let id = dir.enqueue(&["greet", "1"]);
    dir.run(&["jobs", "show", &id]).exits(0);
}

#[test]
fn the_tools_of_the_other_databases_are_told_to_stop_too() {
    let begins = |url: &str, begin: &str| {
        let printed = WorkDir::of(url).run(&["migrate", "--print"]).exits(0);
        assert!(printed.stdout.starts_with(begin), "{printed:?}");
    };
    begins(
        "postgres://nobody@127.0.0.1:9/jobs",
        "\\set ON_ERROR_STOP on\n",
    );
    begins("sqlserver://127.0.0.1:9/jobs", ":on error exit\n");
    let mongo = WorkDir::of("mongodb://127.0.0.1:9/jobs");
    let printed = mongo.run(&["migrate", "--print"]).exits(0);
    printed.says("db.getSiblingDB(\"jobs\")").says("throw");
    let printed = WorkDir::migrated().json(&["migrate", "--print"]);
    assert!(printed["prelude"].as_str().unwrap().starts_with(".bail on"));
}

#[test]
fn only_migrate_changes_the_schema() {
    let dir = WorkDir::empty();
    dir.run(&["status"]).exits(1).complains("ratchet migrate");
    assert!(!dir.path("jobs.db").exists());
    std::fs::write(dir.path("jobs.db"), "").unwrap();
    dir.run(&["queues"]).exits(1).complains("lacks migrations");
    assert_eq!(std::fs::metadata(dir.path("jobs.db")).unwrap().len(), 0);
}

/// Creates a migrated database, and changes the record of its migrations with this statement.
fn altered(sql: &str) -> WorkDir {
    let dir = WorkDir::migrated();
    let database = rusqlite::Connection::open(dir.path("jobs.db")).unwrap();
    database.execute_batch(sql).unwrap();
    dir
}

#[test]
fn each_problem_of_a_schema_gets_the_remedy_that_solves_it() {
    let mistyped = WorkDir::empty();
    let empty = WorkDir::empty();
    std::fs::write(empty.path("jobs.db"), "").unwrap();
    let newer = altered("INSERT INTO ratchet_migrations VALUES (99, 'later', 'x', 0)");
    let other = altered("UPDATE ratchet_migrations SET checksum = 'x' WHERE version = 1");
    let lost = altered("DROP TABLE ratchet_locks");
    for (dir, problem, remedy) in [
        (
            &mistyped,
            "the file does not exist",
            "Check the path in --url",
        ),
        (&empty, "lacks", "`ratchet migrate` applies it."),
        (
            &newer,
            "version 99, newer",
            "Use the version of `ratchet` that migrated",
        ),
        (
            &other,
            "other content",
            "`ratchet migrate` repairs nothing.",
        ),
        (
            &lost,
            "lacks ratchet_locks",
            "`ratchet migrate` repairs nothing.",
        ),
    ] {
        dir.run(&["status"])
            .exits(1)
            .complains(problem)
            .complains(remedy);
        let doctor = dir.run(&["doctor"]).exits(6).says(problem).says(remedy);
        assert!(doctor.stderr.is_empty(), "{doctor:?}");
    }
    assert!(!mistyped.path("jobs.db").exists());
    // `--check` reports that there is no file, and the migration reports that it created one.
    mistyped
        .run(&["migrate", "--check"])
        .exits(6)
        .says("The database file does not exist");
    mistyped
        .run(&["migrate"])
        .exits(0)
        .says("Created the database file");
    let again = mistyped.run(&["migrate"]).exits(0);
    assert!(!again.stdout.contains("Created"), "{again:?}");
}

#[test]
fn one_thing_at_a_time() {
    let dir = WorkDir::empty();
    dir.run(&["migrate", "--print", "--check"]).exits(2);
}
