//! Enqueues jobs inside transactions of the application.

use futures_util::future::BoxFuture;
use ratchet_core::Result;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, TransactionStore};
use ratchet_sql::Failure;
use sqlx::Postgres;
use sqlx::postgres::PgConnection;

use crate::store::PostgresStore;

impl AppTransaction<PostgresStore> for sqlx::Transaction<'_, Postgres> {
    fn connection(&mut self) -> AppConnection<'_> {
        let connection: &mut PgConnection = self;
        AppConnection::Exclusive(connection)
    }
}

impl AppTransaction<PostgresStore> for PgConnection {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(self)
    }
}

impl TransactionStore for PostgresStore {
    /// Stores jobs inside a transaction of the application. `connection` is the connection of that
    /// transaction, and it must lead to the store's database. The jobs exist once the transaction
    /// commits. If the transaction rolls back, no jobs are stored. Pass a `Transaction` of the
    /// driver as `&mut *tx`.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold. If a
    /// concurrent transaction takes a key of these jobs first, the store rolls back to a savepoint
    /// and tries again.
    ///
    /// The lanes of the new jobs stay locked until the transaction ends. Until then, other enqueues
    /// into these lanes wait, and so do settlements of the lanes' heads. So keep such transactions
    /// short. Transactions that enqueue more than once must use the lanes in the same order.
    /// Otherwise two of them may deadlock.
    ///
    /// The parents of the new jobs and the batches that new jobs join stay locked too. Until the
    /// transaction ends, settlements and reports (progress, checkpoints, signs of life) of these
    /// parents wait, and so do settlements of other jobs in these batches. A node sends settlements
    /// and reports of several jobs in one call, so other jobs of the same node may be delayed too.
    /// So keep the transaction far shorter than the store's deadline and the jobs' stall timeouts.
    ///
    /// A body may enqueue children of its own job in such a transaction. It must then not report
    /// anything before the transaction commits, because the report would wait for the transaction.
    ///
    /// The commit sends `wakeups` for the new jobs that are due at once, unless wakeups are off
    /// ([`Builder::wakeups`](crate::Builder::wakeups)). PostgreSQL runs commits with notifications
    /// one at a time in the whole server. An application with many small transactions thereby loses
    /// most of its throughput. To avoid the notifications, use `Wakes::Never`
    /// ([`Client::with_wakes`](ratchet_core::Client::with_wakes)).
    ///
    /// # Errors
    /// - `Invalid` if a job has an invalid value, such as an unknown parent. The transaction can
    ///   continue.
    /// - `Contention` if other transactions took a key of these jobs in every try, or if the
    ///   snapshot of a `REPEATABLE READ` transaction is older than a job's route. In both cases,
    ///   begin the transaction again.
    /// - `Misconfigured` if the connection is not in a transaction and a job has a key, lane, link,
    ///   batch or signal.
    /// - `Unavailable` if the store is closed.
    /// - A failure of the database, after which the transaction can only be rolled back.
    /// - `Timeout` after the deadline, or after twice the deadline if the server does not answer.
    ///   Roll back in this case, too.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the jobs may already be written in the transaction. The
    /// caller must then roll back.
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        wakeups: JobWakeups,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        const OPERATION: &str = "enqueue_in";
        let connection = connection.exclusive::<PgConnection>();
        Box::pin(async move {
            let connection = connection?;
            if self.shared().pools().pool.is_closed() {
                return Err(Failure::closed().during(OPERATION));
            }
            let enqueued = self.enqueue_through(connection, &jobs, wakeups).await;
            enqueued.map_err(|failure| failure.during(OPERATION))
        })
    }
}
