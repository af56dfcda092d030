//! Checks that the SQL stores keep the same data: each has the tables and columns of the others.

use std::collections::{BTreeMap, BTreeSet};

use ratchet::postgres::PostgresStore;
use ratchet::sqlite::SqliteStore;
use ratchet::sqlserver::SqlServerStore;

type Tables = BTreeMap<String, BTreeSet<String>>;

/// Returns the tables and columns that a script creates, including columns that it adds later.
fn tables(script: &str, prefix: &str) -> Tables {
    let mut tables = Tables::new();
    let (mut made, mut altered): (Option<String>, Option<String>) = (None, None);
    for line in script.lines() {
        let ours = |text: &str| {
            let name = text.split_whitespace().next()?.strip_prefix(prefix)?;
            Some(name.trim_end_matches(';').to_owned())
        };
        if let Some((_, to)) = line.split_once(" RENAME TO ") {
            let from = line.strip_prefix("ALTER TABLE ").and_then(ours);
            let columns = from.and_then(|name| tables.remove(&name));
            tables.extend(ours(to).zip(columns));
            continue;
        }
        if let Some(dropped) = line.strip_prefix("DROP TABLE ").and_then(ours) {
            tables.remove(&dropped);
            continue;
        }
        if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
            made = rest.ends_with(" (").then(|| ours(rest)).flatten();
            continue;
        }
        if let Some(rest) = line.strip_prefix("ALTER TABLE ") {
            altered = ours(rest);
        } else if line.starts_with(')') {
            made = None;
        }
        let (table, column) = match line.split_once(" ADD ") {
            // SQL Server adds a column without the word `COLUMN`.
            Some((_, column)) => (&altered, column.trim_start_matches("COLUMN ")),
            None => (&made, line),
        };
        let column = column.split_whitespace().next().unwrap_or_default();
        // On SQL Server, names that are reserved words are in brackets.
        let column = column.trim_start_matches('[').trim_end_matches(']');
        if let Some(name) = table
            && column.starts_with(|first: char| first.is_ascii_lowercase())
        {
            let columns = tables.entry(name.clone()).or_default();
            columns.insert(column.to_owned());
        }
    }
    tables
}

#[test]
fn every_column_is_in_every_sql_store() {
    let sqlite: String = SqliteStore::migrations()
        .iter()
        .map(|step| step.sql.as_str())
        .collect();
    let postgres: String = PostgresStore::migrations("s")
        .iter()
        .map(|step| step.sql.as_str())
        .collect();
    let mut sqlite = tables(&sqlite, "ratchet_");
    let mut postgres = tables(&postgres, "\"s\".");
    assert!(sqlite.len() >= 10, "{sqlite:?}");
    // The first difference: SQLite stores the data of a job under a number, which is also the row's
    // position. The other databases would need a sequence for such a number, so they use the job's
    // id.
    let jobs = sqlite.get_mut("jobs").map(|columns| columns.remove("data"));
    assert_eq!(jobs, Some(true));
    // The second difference: PostgreSQL can bind locks to sessions of the server, and SQLite has no
    // server.
    for column in ["session_pid", "session_start"] {
        let locks = postgres.get_mut("locks");
        assert_eq!(locks.map(|columns| columns.remove(column)), Some(true));
    }
    assert!(sqlite["job_data"].contains("payload_version"));
    // The third difference: on PostgreSQL, the statement that takes a start from a rate limit needs
    // a column to report whether the limit granted the start.
    let rates = postgres.get_mut("rates");
    assert_eq!(rates.map(|columns| columns.remove("granted")), Some(true));
    // Each store creates its table of migrations separately.
    sqlite.remove("migrations");
    postgres.remove("migrations");
    assert_eq!(sqlite, postgres);

    let sqlserver: String = SqlServerStore::migrations("s")
        .iter()
        .map(|step| step.sql.as_str())
        .collect();
    let mut sqlserver = tables(&sqlserver, "[s].");
    sqlserver.remove("migrations");
    let rates = sqlserver.get_mut("rates");
    assert_eq!(rates.map(|columns| columns.remove("granted")), Some(true));
    // The fourth difference: SQL Server refuses fair keys and their limits, and no queues share
    // their routes.
    for table in ["fair_limits", "freed"] {
        assert!(postgres.remove(table).is_some(), "{table}");
    }
    let fair = [
        ("routes", "fair"),
        ("jobs", "fair_key"),
        ("jobs", "fair_cost"),
        ("jobs", "turn"),
        ("jobs", "queue"),
    ];
    for (table, column) in fair {
        let columns = postgres.get_mut(table);
        assert_eq!(columns.map(|columns| columns.remove(column)), Some(true));
    }
    assert_eq!(sqlserver, postgres);
}
