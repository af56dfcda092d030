//! Opens connections, and sets up their sessions.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::time;
use ratchet_sql::{IDLE_IN_TRANSACTION, Result, connect_within};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

use crate::error::Classified;

/// Number of seconds after which the server ends a session without statements. The store replaces
/// idle connections earlier. MySQL has no limit for transactions alone.
const WAIT_TIMEOUT: u64 = 240;

/// Settings that the statements need in every session of a pool. Only MariaDB runs the comment.
pub(crate) const MODES: &str = "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', \
     group_concat_max_len = 1073741824, character_set_results = utf8mb4, sql_safe_updates = 0 \
     /*M!100600 , in_predicate_conversion_threshold = 0 */";

/// Opens connections with the store's settings of the session.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) options: MySqlConnectOptions,
    setup: Arc<str>,
    patience: Duration,
}

impl Target {
    /// `deadline` limits each statement, and `patience` the time to connect.
    pub(crate) fn new(
        options: MySqlConnectOptions,
        deadline: Duration,
        patience: Duration,
    ) -> Self {
        // The driver would send settings in another round trip.
        let options = options
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .disable_statement_logging();
        Self {
            options,
            setup: setup(deadline).into(),
            patience,
        }
    }

    /// Opens a connection. Fails with `Unavailable` after the patience.
    pub(crate) async fn connect(&self) -> Result<MySqlConnection> {
        let connecting = async {
            let mut connection = self.options.connect().await?;
            let setup = AssertSqlSafe(Arc::clone(&self.setup));
            connection.execute(sqlx::raw_sql(setup)).await?;
            Ok(connection)
        };
        connect_within(self.patience, connecting)
            .await?
            .classified()
    }
}

/// Returns the statements that set up a session. The two forms of comments make each server run
/// only its own part: MariaDB ignores versions of MySQL from 5.7 on.
fn setup(deadline: Duration) -> String {
    let millis = time::duration_millis(deadline).clamp(1, i64::from(u32::MAX));
    let idle = seconds(deadline.min(IDLE_IN_TRANSACTION));
    format!(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; \
         SET SESSION {MODES}, autocommit = 1, wait_timeout = {WAIT_TIMEOUT}, \
         innodb_lock_wait_timeout = {wait} \
         /*M!100600 , max_statement_time = {limit}, idle_transaction_timeout = {idle} */ \
         /*!80000 , max_execution_time = {millis} */; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        wait = seconds(deadline),
        limit = millis as f64 / 1_000.0,
    )
}

/// Rounds a limit up to seconds for the server. Returns at least 1, because 0 would mean no limit
/// or no waiting.
pub(crate) fn seconds(limit: Duration) -> u64 {
    let millis = u64::try_from(time::duration_millis(limit)).unwrap_or(1);
    millis.div_ceil(1_000).clamp(1, 31_536_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_one_that_the_server_takes() {
        assert_eq!(seconds(Duration::from_nanos(1)), 1);
        assert_eq!(seconds(Duration::from_millis(2_500)), 3);
        assert_eq!(seconds(Duration::MAX), 31_536_000);
        assert!(setup(Duration::from_millis(2_500)).contains("max_statement_time = 2.5,"));
    }
}
