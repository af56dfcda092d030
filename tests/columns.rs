//! The SQL stores remember the same: every table and column of one is in the others.

use std::collections::{BTreeMap, BTreeSet};

use ratchet::postgres::PostgresStore;
use ratchet::sqlite::SqliteStore;

type Tables = BTreeMap<String, BTreeSet<String>>;

/// The tables and columns that a script makes.
fn tables(script: &str, prefix: &str) -> Tables {
    let mut tables = Tables::new();
    let mut table: Option<String> = None;
    for line in script.lines() {
        let begin = line
            .strip_prefix("CREATE TABLE ")
            .and_then(|rest| rest.split_once(" ("))
            .and_then(|(name, _)| name.strip_prefix(prefix));
        let altered = line
            .strip_prefix("ALTER TABLE ")
            .and_then(|rest| rest.strip_prefix(prefix));
        let dropped = line
            .strip_prefix("DROP TABLE ")
            .and_then(|rest| rest.strip_prefix(prefix));
        if let Some(name) = begin {
            table = Some(name.to_owned());
        } else if let Some((name, added)) = altered.and_then(|rest| rest.split_once(" ADD COLUMN "))
        {
            let column = added.split_whitespace().next().unwrap_or_default();
            let columns = tables.entry(name.to_owned()).or_default();
            columns.insert(column.to_owned());
        } else if let Some((name, to)) = altered.and_then(|rest| rest.split_once(" RENAME TO ")) {
            let columns = tables.remove(name).unwrap_or_default();
            let to = to.trim_end_matches(';');
            tables.insert(to.strip_prefix(prefix).unwrap_or(to).to_owned(), columns);
        } else if let Some(name) = dropped {
            tables.remove(name.trim_end_matches(';'));
        } else if line.starts_with(')') {
            table = None;
        } else if let Some(name) = &table {
            let column = line.split_whitespace().next().unwrap_or_default();
            let is_column = column.starts_with(|first: char| first.is_ascii_lowercase());
            if is_column {
                let columns = tables.entry(name.clone()).or_default();
                columns.insert(column.to_owned());
            }
        }
    }
    tables
}

#[test]
fn every_column_is_in_every_sql_store() {
    let sqlite: String = SqliteStore::migrations()
        .iter()
        .map(|step| step.sql)
        .collect();
    let postgres: String = PostgresStore::migrations("s")
        .iter()
        .map(|step| step.sql.as_str())
        .collect();
    let mut sqlite = tables(&sqlite, "ratchet_");
    let mut postgres = tables(&postgres, "\"s\".");
    assert!(sqlite.len() >= 10, "{sqlite:?}");
    // The first of two differences: the data of a job has a number of its own where that is the
    // place of the row, and the job's id where a number would need a sequence.
    let jobs = sqlite.get_mut("jobs").map(|columns| columns.remove("data"));
    assert_eq!(jobs, Some(true));
    // The other: a statement that takes a rate has no other way to say that it did.
    let rates = postgres.get_mut("rates");
    assert_eq!(rates.map(|columns| columns.remove("granted")), Some(true));
    // Each store makes the table of its migrations by itself.
    sqlite.remove("migrations");
    postgres.remove("migrations");
    assert_eq!(sqlite, postgres);
}
