//! [`DiagnosticStore`] on SQL Server.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::model::{Finding, Findings, Holder, Severity};
use ratchet_core::store::DiagnosticStore;
use ratchet_sql::{Failure, Result as Inner, Row as _, Run as _};

use crate::migrate;
use crate::query::Query;
use crate::row::Row;
use crate::store::SqlServerStore;
use crate::words::quoted;

#[async_trait]
impl DiagnosticStore for SqlServerStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        self.call("findings", || self.look()).await
    }
}

impl SqlServerStore {
    async fn look(&self) -> Inner<Vec<Finding>> {
        let sql = self.sql();
        let mut findings = Findings::default();
        let mut add =
            |what: &str, found| findings.add(what, found, |failure: &Failure| failure.kind);
        let applied = self.applied().await;
        // Without it, everything is looked for that there should be.
        let steps = applied.as_ref().map_or(migrate::KNOWN, |applied| *applied);
        let version = applied.map(|applied| vec![Finding::schema(applied, migrate::KNOWN)]);
        add("the migrations", version)?;
        add("the tables and indexes", self.missing(steps).await)?;
        let remedy = "set encrypt=true (or strict) in the URL";
        let plain = self
            .plaintext_host()
            .and_then(|host| Finding::plaintext(host, remedy));
        add(
            "the encryption of the connections",
            Ok(plain.into_iter().collect()),
        )?;
        add("the routes of the jobs", self.lost_routes().await)?;
        let reads = self.found(sql.own.database_settings.query(), reads);
        add("the settings of the database", reads.await)?;
        let held = self.found(sql.held_by_sessions.query(), held);
        add("the transactions of other sessions", held.await)?;
        Ok(findings.into_sorted())
    }

    /// What the rows of a statement say; on a lease of its own, so that one that fails keeps no other
    /// from being run.
    async fn found(
        &self,
        query: Query,
        read: impl Fn(&Row) -> Inner<Vec<Finding>>,
    ) -> Inner<Vec<Finding>> {
        let mut findings = Vec::new();
        for row in self.lease().await?.rows(query).await? {
            findings.extend(read(&row)?);
        }
        Ok(findings)
    }

    async fn lost_routes(&self) -> Inner<Vec<Finding>> {
        let find = self.sql().lost_routes.query();
        let rows = self.lease().await?.rows(find).await?;
        let mut lost = Vec::with_capacity(rows.len());
        for row in &rows {
            let count = row.try_get::<i64>(1)?.unsigned_abs();
            lost.push((row.try_get::<i32>(0)?.into(), count));
        }
        let table = |name: &str| format!("{}.{name}", quoted(self.schema()));
        let (jobs, routes) = (table("jobs"), table("routes"));
        let repair = format!("UPDATE {jobs} SET route = (its id in {routes}) WHERE route = N");
        Ok(Finding::lost_routes(&lost, &repair).into_iter().collect())
    }

    async fn applied(&self) -> Inner<u64> {
        migrate::applied(&mut self.lease().await?, self.sql()).await
    }

    async fn missing(&self, applied: u64) -> Inner<Vec<Finding>> {
        let mut lease = self.lease().await?;
        // What stands in for the server calls indexes otherwise than they were called.
        let indexes = !self.version().starts_with("Babelfish");
        let missing = migrate::missing(&mut lease, self.sql(), self.schema(), applied, indexes);
        let missing = missing.await?;
        Ok(missing
            .iter()
            .map(|object| Finding::missing(object))
            .collect())
    }
}

/// A row of `database_settings`.
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

/// A row of `held_by_sessions`.
fn held(row: &Row) -> Inner<Vec<Finding>> {
    let (session, words): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let mut holder = Holder::new(
        format!("session {session} ({words})"),
        format!("end it where it was begun, or: KILL {session}"),
    );
    let seconds: Option<i64> = row.try_get(2)?;
    holder.held_for = seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map(Duration::from_secs);
    Ok(Finding::held(&holder).into_iter().collect())
}
