//! The database servers of the topologies: what all of them can do.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use sqlx::any::install_default_drivers;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Row};
use tokio::time::{sleep, timeout};

use super::read;
use crate::worker::Backend;

/// The deadline of a start or a promotion.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on the loopback interface, which is stopped when it is dropped.
pub(crate) trait Server: Sized {
    const BACKEND: Backend;

    /// The state that a standby had reached when it was held.
    type Held;

    /// Returns the name of one of the store's tables.
    fn table(schema: &str, name: &str) -> String;

    /// Returns an SQL expression for an id, as text in the form of `JobId`.
    fn id(column: &str) -> String;

    /// Returns the statements that make the server record every end of a job in the table
    /// `chaos_ends`.
    fn watch_ends(schema: &str) -> String;

    /// Starts an empty server.
    async fn primary() -> Self;

    fn port(&self) -> u16;

    /// Returns the URL of a server at an address.
    fn url(address: impl Display) -> String;

    /// Stops the server as in a crash.
    fn kill(&self);

    /// Starts a standby of this server.
    async fn standby(&self, synchronous: bool) -> Self;

    /// Promotes a standby with all the changes it received.
    async fn promote(&self);

    /// Makes a standby apply no further changes.
    async fn hold(&self) -> Self::Held;

    /// Promotes a standby as if it had received no change after it was held.
    async fn promote_as_held(&self, held: Self::Held);

    /// Copies the server, and does not start the copy.
    fn copy(&self, schema: &str) -> Self;

    /// Starts a copy.
    async fn restore(&self);

    /// Connects to the server directly, not through an endpoint.
    async fn connect(&self) -> AnyConnection {
        static DRIVERS: Once = Once::new();
        DRIVERS.call_once(install_default_drivers);
        let url = Self::url(format_args!("127.0.0.1:{}", self.port()));
        AnyConnection::connect(&url).await.unwrap()
    }

    async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        let mut here = self.connect().await;
        sqlx::raw_sql(sql).execute(&mut here).await.unwrap();
    }

    /// Waits until a query returns the number 1.
    async fn wait_until(&self, sql: &str) {
        let mut here = self.connect().await;
        let waited = timeout(PATIENCE, async {
            loop {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                let row = query.fetch_optional(&mut here).await.unwrap();
                if row.is_some_and(|row| row.get::<i64, _>(0) == 1) {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never 1: {sql}"));
    }

    /// Reads the ids of all jobs.
    async fn jobs(&self, schema: &str) -> BTreeSet<String> {
        let (id, jobs) = (Self::id("id"), Self::table(schema, "jobs"));
        let sql = format!("SELECT {id} FROM {jobs}");
        let rows = read::rows(&mut self.connect().await, sql).await;
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// Returns a port that no process listens on.
pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// Runs a shell line, which must succeed.
pub(crate) fn shell(line: &str) {
    let mut sh = Command::new("sh");
    let ended = sh.args(["-c", line]).current_dir("/").output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{line}: {error}");
}
