//! Enqueues jobs inside transactions of the application.

use futures_util::future::BoxFuture;
use ratchet_core::Result;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, TransactionStore};
use ratchet_sql::{Connections as _, Failure};
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
    /// Stores jobs inside the caller's transaction, on the caller's own connection to the same
    /// database. The jobs exist once the transaction commits; if it rolls back, no trace of them
    /// remains. Pass a `Transaction` of the driver as `&mut *tx`.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold. If jobs
    /// with keys lose a race, the store rolls back to a savepoint and tries again.
    ///
    /// The lanes of jobs stay locked until the transaction ends. Other enqueues into these lanes
    /// wait for the transaction, and so do settlements of the lanes' heads. Keep such transactions
    /// short. If they enqueue more than once, they must use lanes in the same order, or two of them
    /// may deadlock.
    ///
    /// The stored jobs and batches that new jobs wait for stay locked too, as do the batches that
    /// new jobs join. Settlements and reports (progress, checkpoints, signs of life) of these jobs
    /// wait for the transaction, and so do settlements of other children of these batches. What the
    /// same node settles and reports at the same time is delayed with them. So keep the transaction
    /// far shorter than the store's deadline and the jobs' stall timeouts. A body that enqueues
    /// jobs that wait for its own job must not report anything before the transaction commits,
    /// because the report would wait for the transaction.
    ///
    /// The commit sends `wakeups` for the new jobs that are due at once, unless wakeups are off
    /// ([`Builder::wakeups`](crate::Builder::wakeups)): PostgreSQL keeps the notifications until
    /// then. Commits that notify run one at a time in the whole server, which costs an application
    /// with many small transactions most of its throughput. With `Wakes::Never`
    /// ([`Client::with_wakes`](ratchet_core::Client::with_wakes)) there are no notifications.
    ///
    /// # Errors
    /// - `Invalid`, after which the transaction can continue.
    /// - `Contention` if the snapshot of a `REPEATABLE READ` transaction is older than the first
    ///   job of a queue and kind, or if every try lost a race for a key. Begin the transaction
    ///   again.
    /// - `Misconfigured` if there is no transaction but jobs have keys, lanes, links, batches or
    ///   signals.
    /// - `Unavailable` if the store is closed.
    /// - A failure of the database, after which the transaction can only be rolled back.
    /// - `Timeout` after the deadline, or after twice the deadline if the server does not answer:
    ///   roll back in this case, too.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may have written part of the jobs into the transaction, which
    /// must then be rolled back.
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
            if self.shared().pools().is_closed() {
                return Err(Failure::closed().during(OPERATION));
            }
            let enqueued = self.enqueue_through(connection, &jobs, wakeups).await;
            enqueued.map_err(|failure| failure.during(OPERATION))
        })
    }
}
