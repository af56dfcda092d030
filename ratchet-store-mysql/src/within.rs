//! Stores jobs inside a transaction of the application.

use ratchet_core::model::{Enqueued, NewJob};
use ratchet_sql::{Failure, Loss, Result, Savepoint};
use sqlx::mysql::MySqlConnection;

use crate::connection::Caller;
use crate::dialect::Mysql;
use crate::store::MysqlStore;

/// Statement that restores the settings of the session.
macro_rules! restore {
    () => {
        "SET SESSION group_concat_max_len = @ratchet_concat, sql_safe_updates = @ratchet_safe"
    };
}

impl Savepoint<Mysql> for Caller<'_> {
    /// A statement has several parts. If one of them fails, the server keeps the parts before it.
    const ALWAYS: bool = true;

    /// After a deadlock, the server has rolled back the whole transaction.
    fn survives(failure: &Failure) -> bool {
        failure.loss == Loss::No && !failure.rolled_back
    }

    /// Also sets what the statements need in the session: the limit of the collected lists of ids,
    /// and updates whose condition has no key. Fails if no transaction is open: outside of one, the
    /// server accepts a savepoint, but has none to release.
    async fn save(&mut self) -> Result<()> {
        self.run(
            "SAVEPOINT ratchet_enqueue; RELEASE SAVEPOINT ratchet_enqueue; \
             SET @ratchet_concat = @@SESSION.group_concat_max_len, \
             @ratchet_safe = @@SESSION.sql_safe_updates; \
             SET SESSION group_concat_max_len = 1073741824, sql_safe_updates = 0; \
             SAVEPOINT ratchet_enqueue",
        )
        .await
    }

    async fn release(&mut self) -> Result<()> {
        self.run(concat!("RELEASE SAVEPOINT ratchet_enqueue; ", restore!()))
            .await
    }

    async fn roll_back(&mut self) -> Result<()> {
        self.run("ROLLBACK TO SAVEPOINT ratchet_enqueue").await?;
        self.release().await
    }

    async fn restore(&mut self) -> Result<()> {
        self.run(restore!()).await
    }
}

impl MysqlStore {
    /// Stores the jobs of one call inside a transaction of the application.
    pub(crate) async fn enqueue_through(
        &self,
        connection: &mut MySqlConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        let mut caller = Caller(connection);
        self.shared().enqueue_within(&mut caller, jobs).await
    }
}
