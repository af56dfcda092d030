//! Enqueues jobs inside transactions of the application.

use futures_util::future::BoxFuture;
use ratchet_core::Result;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, TransactionStore};
use ratchet_sql::Failure;
use sqlx::MySql;
use sqlx::mysql::MySqlConnection;

use crate::store::MysqlStore;

impl AppTransaction<MysqlStore> for sqlx::Transaction<'_, MySql> {
    fn connection(&mut self) -> AppConnection<'_> {
        let connection: &mut MySqlConnection = self;
        AppConnection::Exclusive(connection)
    }
}

impl AppTransaction<MysqlStore> for MySqlConnection {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(self)
    }
}

impl TransactionStore for MysqlStore {
    /// Stores jobs inside a transaction of the application. `connection` is the connection of that
    /// transaction, and it must lead to the store's server. The jobs exist once the transaction
    /// commits. If the transaction rolls back, no jobs are stored. Pass a `Transaction` of the
    /// driver as `&mut *tx`.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold. If a
    /// concurrent transaction takes a key of these jobs first, the store rolls back to a savepoint
    /// and tries again.
    ///
    /// Both `READ COMMITTED` and `REPEATABLE READ`, the default of the server, work. With
    /// `REPEATABLE READ`, a key that another transaction has taken since the snapshot began stays
    /// invisible, and the call fails with `Contention`. A unique key that the call finds taken
    /// stays locked until the transaction ends, and so do the gaps beside keys that were released
    /// and parents that do not exist. Meanwhile the job that has the key cannot end, and other
    /// enqueues may wait. So prefer `READ COMMITTED`.
    ///
    /// The lanes of the new jobs stay locked until the transaction ends. Meanwhile, other enqueues
    /// into these lanes and settlements of the lanes' heads wait. So keep such transactions short.
    /// Transactions that enqueue more than once must use the lanes in the same order. Otherwise two
    /// of them may deadlock.
    ///
    /// The parents of the new jobs and the batches that new jobs join stay locked too. Settlements
    /// and reports (progress, checkpoints, signs of life) of these parents wait until the
    /// transaction ends. So do settlements of other jobs in these batches. A node sends settlements
    /// and reports of several jobs in one call, so other jobs of the same node may be delayed too.
    /// So keep the transaction far shorter than the store's deadline and the jobs' stall timeouts.
    ///
    /// A body may enqueue children of its own job in such a transaction. It must then not report
    /// anything before the transaction commits, because the report would wait for the transaction.
    ///
    /// The commit sends no wakeup, so nodes find the jobs at their next poll. The session keeps
    /// variables whose names begin with `@ratchet_`.
    ///
    /// # Errors
    /// - `Invalid` if a job has an invalid value, such as an unknown parent. The transaction can
    ///   continue.
    /// - `Contention` if other transactions took a key of these jobs in every try, or after a
    ///   deadlock. Begin the transaction again: after a deadlock, the server has rolled back all of
    ///   it, and runs later statements without a transaction.
    /// - `Misconfigured` if the connection is not in a transaction.
    /// - `Unavailable` if the store is closed.
    /// - A failure of the database, after which the transaction can only be rolled back.
    /// - `Timeout` after the deadline, or after twice the deadline if the server does not answer.
    ///   Roll back in this case, too.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the jobs may already be written in the transaction. The
    /// caller must then roll back. The session may keep the values of `group_concat_max_len` and
    /// `sql_safe_updates` that the call has set.
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        _wakeups: JobWakeups,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        const OPERATION: &str = "enqueue_in";
        let connection = connection.exclusive::<MySqlConnection>();
        Box::pin(async move {
            let connection = connection?;
            if self.shared().pools().pool.is_closed() {
                return Err(Failure::closed().during(OPERATION));
            }
            let enqueued = self.enqueue_through(connection, &jobs).await;
            enqueued.map_err(|failure| failure.during(OPERATION))
        })
    }
}
