//! Stores jobs inside a transaction of the application.

use ratchet_core::model::{Enqueued, NewJob};
use ratchet_sql::{Failure, Loss, Result, Savepoint};
use sqlx::mysql::MySqlConnection;

use crate::connection::Caller;
use crate::dialect::Mysql;
use crate::store::MysqlStore;

impl Savepoint<Mysql> for Caller<'_> {
    /// A statement has several parts. If one of them fails, the server keeps the parts before it.
    const ALWAYS: bool = true;

    /// After a deadlock, the server has rolled back the whole transaction.
    fn survives(failure: &Failure) -> bool {
        failure.loss == Loss::No && !failure.rolled_back
    }

    /// Also sets the limit of the collected lists of ids, and fails if no transaction is open:
    /// outside of one, the server accepts a savepoint, but has none to release.
    async fn save(&mut self) -> Result<()> {
        self.run(
            "SAVEPOINT ratchet_enqueue; RELEASE SAVEPOINT ratchet_enqueue; \
             SET @ratchet_concat = @@SESSION.group_concat_max_len; \
             SET SESSION group_concat_max_len = 1073741824; SAVEPOINT ratchet_enqueue",
        )
        .await
    }

    async fn release(&mut self) -> Result<()> {
        self.run(
            "RELEASE SAVEPOINT ratchet_enqueue; \
             SET SESSION group_concat_max_len = @ratchet_concat",
        )
        .await
    }

    async fn roll_back(&mut self) -> Result<()> {
        self.run(
            "ROLLBACK TO SAVEPOINT ratchet_enqueue; RELEASE SAVEPOINT ratchet_enqueue; \
             SET SESSION group_concat_max_len = @ratchet_concat",
        )
        .await
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
