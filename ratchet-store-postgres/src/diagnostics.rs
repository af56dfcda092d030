//! [`DiagnosticStore`] on PostgreSQL.

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::model::{Finding, Holder, Severity};
use ratchet_core::store::DiagnosticStore;
use ratchet_core::time::millis_between;
use ratchet_sql::{Query as _, Result as Inner, Row as _, Run as _, add_finding};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::connection::Lease;
use crate::dialect::Row;
use crate::migrate;
use crate::statements::{Statement, quoted};
use crate::store::PostgresStore;

#[async_trait]
impl DiagnosticStore for PostgresStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        self.shared().call("findings", || self.look()).await
    }
}

impl PostgresStore {
    async fn look(&self) -> Inner<Vec<Finding>> {
        let sql = self.shared().sql();
        let (mut findings, _) = self.shared().begin_findings(migrate::STEPS).await?;
        let mut add = |what: &str, found| add_finding(&mut findings, what, found);
        let invalid = self.found_in_schema(&sql.own.invalid_indexes, |row| self.invalid(row));
        add("the state of the indexes", invalid.await)?;
        let vacuum = self.found_in_schema(&sql.own.vacuum_settings, vacuum);
        add("the settings of autovacuum", vacuum.await)?;
        add("the state of the server", self.read_only().await)?;
        add("the encryption of the connections", self.plaintext().await)?;
        for (what, statement, who) in [
            ("the sessions", &sql.held_by_sessions, Who::Session),
            (
                "the prepared transactions",
                &sql.own.held_by_prepared,
                Who::Prepared,
            ),
            ("the replication slots", &sql.own.held_by_slots, Who::Slot),
        ] {
            let held = self.found_in_schema(statement, |row| {
                Ok(Finding::held(&who.holder(row)?).into_iter().collect())
            });
            add(what, held.await)?;
        }
        Ok(findings.into_sorted())
    }

    /// Runs a statement whose only parameter is the schema. Returns the findings that `read` makes
    /// from the rows.
    async fn found_in_schema(
        &self,
        statement: &Statement,
        read: impl Fn(&Row) -> Inner<Vec<Finding>>,
    ) -> Inner<Vec<Finding>> {
        self.shared()
            .found(statement.query().bind(self.shared().schema()), read)
            .await
    }

    /// Returns a finding if the server is a standby, or if new sessions are read-only by default.
    async fn read_only(&self) -> Inner<Vec<Finding>> {
        let state = self.shared().sql().own.server_state.query();
        let rows = self.shared().lease().await?.rows(state).await?;
        let Some(row) = rows.first() else {
            return Ok(Vec::new());
        };
        let (summary, remedy) = match (row.try_get(0)?, row.try_get(1)?) {
            (true, _) => (
                "the server is a standby: jobs can be read, but neither stored nor run",
                "give nodes and clients the address of the primary",
            ),
            (false, true) => (
                "the connections are read-only: jobs can be neither stored nor run",
                "reset default_transaction_read_only for the role, the database or the server",
            ),
            (false, false) => return Ok(Vec::new()),
        };
        let finding = Finding::new("read_only", Severity::Warning, summary);
        Ok(vec![finding.remedy(remedy)])
    }

    async fn plaintext(&self) -> Inner<Vec<Finding>> {
        let [pooled, beside] = self.options();
        let encrypted = self.shared().lease().await?;
        let mut findings = plaintext(pooled, self.encrypts(encrypted).await?);
        if (beside.get_host(), beside.get_port()) != (pooled.get_host(), pooled.get_port()) {
            let encrypted = self.shared().live().await?;
            findings.extend(plaintext(beside, self.encrypts(encrypted).await?));
        }
        Ok(findings)
    }

    /// Returns whether this connection to the server is encrypted. Returns `None` if the server
    /// does not report this.
    async fn encrypts(&self, mut lease: Lease) -> Inner<Option<bool>> {
        let rows = lease
            .rows(self.shared().sql().own.own_encryption.query())
            .await?;
        rows.first().map(|row| row.try_get(0)).transpose()
    }

    fn invalid(&self, row: &Row) -> Inner<Vec<Finding>> {
        let index: &str = row.try_get(0)?;
        let remedy = format!(
            "REINDEX INDEX {}.{}",
            quoted(self.shared().schema()),
            quoted(index)
        );
        Ok(vec![Finding::invalid_index(index, remedy)])
    }
}

/// Returns a finding if connections with these options are not encrypted. `encrypted` is the
/// server's report about one connection. Through a pooler, this report concerns the connection
/// between the pooler and the server. So it is used only for the SSL mode `prefer`, where the
/// options alone do not decide whether a connection is encrypted.
fn plaintext(options: &PgConnectOptions, encrypted: Option<bool>) -> Vec<Finding> {
    let plain = match options.get_ssl_mode() {
        // The driver never encrypts with `allow`.
        PgSslMode::Disable | PgSslMode::Allow => true,
        PgSslMode::Prefer => encrypted == Some(false),
        PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => false,
    };
    let remedy = "set sslmode=verify-full in the URL, and enable TLS on the server if it is off";
    let host = match options.get_socket() {
        Some(_) => return Vec::new(),
        None => options.get_host(),
    };
    let finding = plain.then(|| Finding::plaintext(host, remedy));
    finding.flatten().into_iter().collect()
}

/// Converts a row of the statement `vacuum_settings` to findings.
fn vacuum(row: &Row) -> Inner<Vec<Finding>> {
    let (table, of_server): (Option<String>, bool) = (row.try_get(0)?, row.try_get(1)?);
    let why = "every claim leaves a dead row version, which later claims read until it is removed";
    let of = |summary: String, remedy: String| {
        let finding = Finding::new("autovacuum_off", Severity::Warning, summary);
        vec![finding.detail(why).remedy(remedy)]
    };
    Ok(match table {
        Some(table) => of(
            format!("autovacuum is off for the table {table}"),
            format!("ALTER TABLE {table} RESET (autovacuum_enabled)"),
        ),
        None if of_server => Vec::new(),
        None => of(
            "autovacuum is off on the server".to_owned(),
            "set autovacuum = on".to_owned(),
        ),
    })
}

/// Kinds of objects that hold a snapshot.
#[derive(Clone, Copy)]
enum Who {
    Session,
    Prepared,
    Slot,
}

impl Who {
    /// Reads a snapshot holder from a row. The row contains the name, a description, the age in
    /// milliseconds, and the number of transactions since the snapshot was taken.
    fn holder(self, row: &Row) -> Inner<Holder> {
        let (name, words): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let (who, remedy) = match self {
            Self::Session => (
                format!("session {name} ({words})"),
                format!("SELECT pg_terminate_backend({name})"),
            ),
            Self::Prepared => (
                format!("the prepared transaction {name} of {words}"),
                format!("ROLLBACK PREPARED '{}'", name.replace('\'', "''")),
            ),
            Self::Slot => (
                format!("the replication slot {name} ({words})"),
                format!(
                    "SELECT pg_drop_replication_slot('{}'), if it is not needed",
                    name.replace('\'', "''")
                ),
            ),
        };
        let mut holder = Holder::new(who, remedy);
        let age: Option<i64> = row.try_get(2)?;
        holder.held_for = age.map(|age| millis_between(0, age));
        let transactions: Option<i32> = row.try_get(3)?;
        holder.transactions = transactions.and_then(|many| u64::try_from(many).ok());
        Ok(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_preferred_mode_goes_by_what_the_server_says() {
        let found = |mode: &str, encrypted| {
            let url = format!("postgres://app@db/jobs?sslmode={mode}");
            let found = plaintext(&url.parse().unwrap(), encrypted);
            found.iter().map(|finding| finding.code).collect::<Vec<_>>()
        };
        let nothing: [&str; 0] = [];
        for (mode, encrypted) in [
            ("prefer", Some(true)),
            ("prefer", None),
            ("require", Some(false)),
        ] {
            assert_eq!(found(mode, encrypted), nothing, "{mode} {encrypted:?}");
        }
        for (mode, encrypted) in [
            ("prefer", Some(false)),
            ("disable", None),
            ("allow", Some(true)),
        ] {
            assert_eq!(
                found(mode, encrypted),
                ["plaintext"],
                "{mode} {encrypted:?}"
            );
        }
    }
}
