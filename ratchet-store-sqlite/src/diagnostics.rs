//! [`DiagnosticStore`] on SQLite.

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::model::{Finding, Findings, Severity};
use ratchet_core::store::DiagnosticStore;

use crate::error::Result as Inner;
use crate::migrate;
use crate::request::Work;
use crate::row;
use crate::statements::{SQL, TEXTS};
use crate::store::SqliteStore;

#[async_trait]
impl DiagnosticStore for SqliteStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        self.read("findings", |work| look(work)).await
    }
}

/// A function that checks one part of the database and returns its findings.
type Look = fn(&Work<'_>) -> Inner<Vec<Finding>>;

fn look(work: &Work<'_>) -> Inner<Vec<Finding>> {
    let mut findings = Findings::default();
    let looks: [(&str, Look); 5] = [
        ("the migrations", version),
        ("the tables and indexes", missing),
        ("the routes of the jobs", lost_routes),
        ("the journal mode", journal),
        ("the write-ahead log", log),
    ];
    for (what, look) in looks {
        findings.add(what, look(work), |failure| failure.kind)?;
    }
    Ok(findings.into_sorted())
}

fn version(work: &Work<'_>) -> Inner<Vec<Finding>> {
    let (applied, known) = migrate::versions(work.conn.driver())?;
    Ok(vec![Finding::schema(applied, known)])
}

fn missing(work: &Work<'_>) -> Inner<Vec<Finding>> {
    let missing = migrate::missing_objects(work.conn.driver())?;
    Ok(missing
        .iter()
        .map(|object| Finding::missing(object))
        .collect())
}

fn lost_routes(work: &Work<'_>) -> Inner<Vec<Finding>> {
    let mut statement = work.conn.prepare_cached(&SQL.lost_routes)?;
    let mut rows = statement.query([])?;
    let mut lost = Vec::new();
    while let Some(row) = rows.next()? {
        lost.push((row.get(0)?, row::number(row, 1, "count")?));
    }
    let found = Finding::lost_routes(
        &lost,
        "UPDATE ratchet_jobs SET route = (its id in ratchet_routes) WHERE route = N",
    );
    Ok(found.into_iter().collect())
}

/// Returns a finding if the journal mode is not `wal`, because readers and writers then block each
/// other. For a database in memory, the finding is that the data is lost when the process ends.
fn journal(work: &Work<'_>) -> Inner<Vec<Finding>> {
    let mode: String = work
        .conn
        .driver()
        .query_row(TEXTS.journal_mode, [], |row| row.get(0))?;
    Ok(match &*mode {
        "wal" => Vec::new(),
        "memory" => {
            let summary = "the store is in memory: its data is lost when the process ends";
            vec![Finding::new("volatile", Severity::Info, summary)]
        }
        other => {
            let summary = format!("the journal mode is {other}; expected wal");
            let remedy = "run `PRAGMA journal_mode = WAL` while no other process has the file open";
            vec![Finding::new("journal_mode", Severity::Warning, summary).remedy(remedy)]
        }
    })
}

fn log(work: &Work<'_>) -> Inner<Vec<Finding>> {
    let Some(path) = work.conn.driver().path().filter(|path| !path.is_empty()) else {
        return Ok(Vec::new());
    };
    // The log may be missing while there is no writer.
    let size = std::fs::metadata(format!("{path}-wal")).map_or(0, |file| file.len());
    Ok(Finding::log_size(size).into_iter().collect())
}
