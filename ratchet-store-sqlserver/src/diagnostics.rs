//! [`DiagnosticStore`] on SQL Server.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::model::{Finding, Holder, Severity};
use ratchet_core::store::DiagnosticStore;
use ratchet_sql::{Query as _, Result as Inner, Row as _, Run as _, add_finding, indexes};

use crate::migrate;
use crate::row::Row;
use crate::store::SqlServerStore;
use crate::words::quoted;

#[async_trait]
impl DiagnosticStore for SqlServerStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        self.shared().call("findings", || self.look()).await
    }
}

impl SqlServerStore {
    async fn look(&self) -> Inner<Vec<Finding>> {
        let sql = self.shared().sql();
        let (mut findings, applied) = self.shared().begin_findings(migrate::STEPS).await?;
        let mut add = |what: &str, found| add_finding(&mut findings, what, found);
        add("the indexes", self.missing_indexes(applied).await)?;
        let remedy = "set encrypt=true (or strict) in the URL";
        let plain = self
            .plaintext_host()
            .and_then(|host| Finding::plaintext(host, remedy));
        add(
            "the encryption of the connections",
            Ok(plain.into_iter().collect()),
        )?;
        let reads = self
            .shared()
            .found(sql.own.database_settings.query(), reads);
        add("the settings of the database", reads.await)?;
        let held = self.shared().found(sql.held_by_sessions.query(), held);
        add("the transactions of other sessions", held.await)?;
        Ok(findings.into_sorted())
    }

    async fn missing_indexes(&self, applied: usize) -> Inner<Vec<Finding>> {
        // Babelfish gives indexes other names than those in the statements that create them.
        if self.shared().version().starts_with("Babelfish") {
            return Ok(Vec::new());
        }
        let find = self
            .shared()
            .sql()
            .own
            .own_indexes
            .query()
            .bind(self.shared().schema());
        let mut found = BTreeSet::new();
        for row in self.shared().lease().await?.rows(find).await? {
            found.insert(row.try_get::<String>(0)?);
        }
        let expected = indexes(&migrate::STEPS[..applied.min(migrate::STEPS.len())]);
        let missing = expected.filter(|name| !found.contains(name));
        Ok(missing.map(|name| Finding::missing(&name)).collect())
    }
}

/// Reads a row of the statement `database_settings`. Returns a finding if readers wait for writers
/// in this database.
fn reads(row: &Row) -> Inner<Vec<Finding>> {
    let database: String = row.try_get(0)?;
    if row.try_get::<i32>(1)? != 0 {
        return Ok(Vec::new());
    }
    let summary = "READ_COMMITTED_SNAPSHOT is off: readers and writers of jobs wait for each other";
    let remedy = format!(
        "ALTER DATABASE {} SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE",
        quoted(&database)
    );
    let finding = Finding::new("locking_reads", Severity::Warning, summary);
    Ok(vec![finding.detail(database).remedy(remedy)])
}

/// Reads a row of the statement `held_by_sessions`. Returns a finding if a session has needed old
/// row versions for a long time.
fn held(row: &Row) -> Inner<Vec<Finding>> {
    let (session, words): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let mut holder = Holder::new(
        format!("session {session} ({words})"),
        format!("end the transaction in the program that began it, or run: KILL {session}"),
    );
    let seconds: Option<i64> = row.try_get(2)?;
    holder.held_for = seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map(Duration::from_secs);
    Ok(Finding::held(&holder).into_iter().collect())
}
