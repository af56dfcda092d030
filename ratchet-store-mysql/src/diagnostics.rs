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
        let engines = sql.own.foreign_engines.query().bind(shared.schema());
        let engines = shared.found(engines, engine);
        add("the engines of the tables", engines.await)?;
        let settings = shared.found(sql.own.server_settings.query(), settings);
        add("the settings of the server", settings.await)?;
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
    let format: Option<String> = row.try_get(3)?;
    let mut findings = Vec::new();
    if flush != 1 {
        let summary = "a crash of the server can lose committed jobs and settlements: \
                       innodb_flush_log_at_trx_commit is not 1";
        let finding = Finding::new("durability", Severity::Warning, summary);
        let remedy = "SET GLOBAL innodb_flush_log_at_trx_commit = 1";
        let detail = format!("innodb_flush_log_at_trx_commit = {flush}");
        findings.push(finding.detail(detail).remedy(remedy));
    }
    if logs && sync != 1 {
        let summary = "a crash of the server can lose committed jobs on its replicas: sync_binlog \
                       is not 1";
        let finding = Finding::new("binlog_durability", Severity::Warning, summary);
        let detail = format!("sync_binlog = {sync}");
        findings.push(finding.detail(detail).remedy("SET GLOBAL sync_binlog = 1"));
    }
    if logs && format.as_deref() == Some("STATEMENT") {
        let summary =
            "READ COMMITTED transactions cannot write, because binlog_format is STATEMENT";
        let finding = Finding::new("binlog_format", Severity::Error, summary);
        findings.push(finding.remedy("SET GLOBAL binlog_format = 'ROW'"));
    }
    let read_only: String = row.try_get(4)?;
    if !matches!(read_only.as_str(), "0" | "OFF") {
        let summary = "the server is read-only: jobs can be neither stored nor run";
        let finding = Finding::new("read_only", Severity::Warning, summary);
        let remedy = "give nodes and clients the address of the primary";
        findings.push(finding.remedy(remedy));
    }
    Ok(findings)
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
}
