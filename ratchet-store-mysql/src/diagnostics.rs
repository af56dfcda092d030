//! [`DiagnosticStore`] on MySQL.

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::model::{Finding, Holder, Severity};
use ratchet_core::store::DiagnosticStore;
use ratchet_core::time::millis_between;
use ratchet_sql::{Query as _, Result as Inner, Row as _, Run as _, add_finding};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use crate::config::is_local;
use crate::dialect::Row;
use crate::migrate;
use crate::store::MysqlStore;
use crate::words::quoted;

#[async_trait]
impl DiagnosticStore for MysqlStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        self.shared().call("findings", || self.look()).await
    }
}

impl MysqlStore {
    async fn look(&self) -> Inner<Vec<Finding>> {
        let shared = self.shared();
        let sql = shared.sql();
        let (mut findings, _) = shared.begin_findings(migrate::STEPS).await?;
        let mut add = |what: &str, found| add_finding(&mut findings, what, found);
        let tables = migrate::own_tables(shared.schema());
        let engines = sql.own.foreign_engines.query().bind(&tables);
        let engines = shared.found(engines, engine);
        add("the engines of the tables", engines.await)?;
        let settings = shared.found(sql.own.server_settings.query(), settings);
        add("the settings of the server", settings.await)?;
        let cluster = shared.found(sql.own.cluster_size.query(), cluster);
        add("the size of the cluster", cluster.await)?;
        add("the encryption of the connections", self.plaintext().await)?;
        let held = shared.found(sql.held_by_sessions.query(), held);
        add("the transactions of other sessions", held.await)?;
        Ok(findings.into_sorted())
    }

    /// Returns a finding if connections to another host are not encrypted.
    async fn plaintext(&self) -> Inner<Vec<Finding>> {
        let own = self.shared().sql().own.own_encryption.query();
        let rows = self.shared().lease().await?.rows(own).await?;
        let cipher: Option<String> = match rows.first() {
            Some(row) => row.try_get(1)?,
            None => None,
        };
        let encrypted = cipher.map(|cipher| !cipher.is_empty());
        Ok(plaintext(self.options(), encrypted).into_iter().collect())
    }
}

/// Returns a finding if connections with these options are not encrypted. `encrypted` is the
/// server's report about one connection.
fn plaintext(options: &MySqlConnectOptions, encrypted: Option<bool>) -> Option<Finding> {
    let plain = match options.get_ssl_mode() {
        MySqlSslMode::Disabled => true,
        MySqlSslMode::Preferred => encrypted == Some(false),
        MySqlSslMode::Required | MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity => false,
    };
    if !plain || is_local(options) {
        return None;
    }
    let remedy = "remove ssl-mode from the URL, and enable TLS on the server if it is off";
    Finding::plaintext(options.get_host(), remedy)
}

/// Reads a row of the statement `foreign_engines`.
fn engine(row: &Row) -> Inner<Vec<Finding>> {
    let (table, engine): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let summary = format!("the table {table} has the engine {engine}, which has no transactions");
    let remedy = format!("ALTER TABLE {} ENGINE = InnoDB", quoted(&table));
    let finding = Finding::new("table_engine", Severity::Error, summary);
    Ok(vec![finding.detail(table).remedy(remedy)])
}

/// Reads the row of the statement `server_settings`.
fn settings(row: &Row) -> Inner<Vec<Finding>> {
    let (flush, logs, sync): (i64, bool, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (format, read_only): (Option<String>, String) = (row.try_get(3)?, row.try_get(4)?);
    Ok(risks(
        flush,
        logs.then_some(sync),
        format.as_deref(),
        &read_only,
    ))
}

/// Returns what these settings of the server risk. `sync` is `sync_binlog` if the server writes a
/// binary log.
fn risks(flush: i64, sync: Option<i64>, format: Option<&str>, read_only: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if flush != 1 {
        let summary = "a crash of the server can lose committed jobs and settlements: \
                       innodb_flush_log_at_trx_commit is not 1";
        let finding = Finding::new("durability", Severity::Warning, summary);
        let remedy = "SET GLOBAL innodb_flush_log_at_trx_commit = 1";
        let detail = format!("innodb_flush_log_at_trx_commit = {flush}");
        findings.push(finding.detail(detail).remedy(remedy));
    }
    if let Some(sync) = sync.filter(|sync| *sync != 1) {
        let summary = "a crash of the server can lose committed jobs on its replicas: sync_binlog \
                       is not 1";
        let finding = Finding::new("binlog_durability", Severity::Warning, summary);
        let detail = format!("sync_binlog = {sync}");
        findings.push(finding.detail(detail).remedy("SET GLOBAL sync_binlog = 1"));
    }
    if sync.is_some() && format == Some("STATEMENT") {
        let summary =
            "READ COMMITTED transactions cannot write, because binlog_format is STATEMENT";
        let finding = Finding::new("binlog_format", Severity::Error, summary);
        findings.push(finding.remedy("SET GLOBAL binlog_format = 'ROW'"));
    }
    if !matches!(read_only, "0" | "OFF") {
        let summary = "the server is read-only: jobs can be neither stored nor run";
        let finding = Finding::new("read_only", Severity::Warning, summary);
        let remedy = "give nodes and clients the address of the primary";
        findings.push(finding.remedy(remedy));
    }
    findings
}

/// Reads the row of the statement `cluster_size`.
fn cluster(row: &Row) -> Inner<Vec<Finding>> {
    let size: String = row.try_get(1)?;
    Ok(several_members(&size).into_iter().collect())
}

/// Returns a finding if the server is one of several members of a Galera cluster.
fn several_members(size: &str) -> Option<Finding> {
    if matches!(size, "" | "0" | "1") {
        return None;
    }
    let summary = "the server is a member of a Galera cluster, in which locks of rows hold on one \
                   member only: limits and pauses can be broken if several members take writes";
    let finding = Finding::new("cluster_writers", Severity::Warning, summary);
    let remedy = "give all nodes and clients the address of the same member";
    Some(
        finding
            .detail(format!("wsrep_cluster_size = {size}"))
            .remedy(remedy),
    )
}

/// Reads a row of the statement `held_by_sessions`. Returns a finding if a transaction has been
/// open for a long time.
fn held(row: &Row) -> Inner<Vec<Finding>> {
    let (session, words): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let mut holder = Holder::new(
        format!("session {session} ({words})"),
        format!("end it in the program that began it, or run: KILL {session}"),
    );
    let age: Option<i64> = row.try_get(2)?;
    holder.held_for = age.map(|age| millis_between(0, age));
    Ok(Finding::held(&holder).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_connections_to_other_hosts_are_found() {
        let found = |url: &str, encrypted| {
            let options: MySqlConnectOptions = url.parse().unwrap();
            plaintext(&options, encrypted).is_some()
        };
        assert!(found("mysql://db/a?ssl-mode=DISABLED", None));
        assert!(found("mysql://db/a?ssl-mode=PREFERRED", Some(false)));
        assert!(!found("mysql://db/a?ssl-mode=PREFERRED", Some(true)));
        assert!(!found("mysql://db/a?ssl-mode=REQUIRED", Some(false)));
        assert!(!found("mysql://localhost/a?ssl-mode=DISABLED", Some(false)));
    }

    #[test]
    fn settings_that_risk_jobs_are_found() {
        let codes = |flush, sync, format, read_only| -> Vec<&str> {
            let found = risks(flush, sync, Some(format), read_only);
            found.iter().map(|finding| finding.code).collect()
        };
        assert!(codes(1, None, "STATEMENT", "0").is_empty());
        assert!(codes(1, Some(1), "ROW", "OFF").is_empty());
        assert_eq!(codes(2, Some(1), "MIXED", "0"), ["durability"]);
        assert_eq!(codes(1, Some(0), "ROW", "0"), ["binlog_durability"]);
        assert_eq!(codes(1, Some(1), "STATEMENT", "0"), ["binlog_format"]);
        assert_eq!(codes(1, None, "ROW", "ON"), ["read_only"]);
    }

    #[test]
    fn a_cluster_of_several_members_is_found() {
        assert!(several_members("3").is_some());
        assert!(
            ["", "0", "1"]
                .iter()
                .all(|size| several_members(size).is_none())
        );
    }
}
