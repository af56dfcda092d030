//! Transactions of the application, as the store's trait takes them.

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
    /// Stores jobs inside a transaction of the caller's, on the caller's own connection to the same
    /// database: they are there if and when the transaction commits, and if it rolls back there is
    /// no trace of them. A `Transaction` of the driver can be given as `&mut *tx`.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold.
    /// If jobs with keys
    /// lose a race, that part alone is rolled back, to a savepoint, and tried again.
    ///
    /// The lanes of jobs that have one are locked until the transaction ends: others that enqueue
    /// into them wait, and so do the ends of their heads. Keep such transactions short, and if they
    /// enqueue more than once, go through the lanes in one order, or two of them may deadlock.
    ///
    /// So are the stored jobs and the batches that new jobs wait for, and the batches that they
    /// join: their ends, their reports (progress, checkpoints, signs of life), and the ends of
    /// other children of these batches wait for the transaction, and with them what the same node
    /// settles and reports meanwhile. So keep the transaction far shorter than the deadlines of the
    /// store and the stall timeouts of jobs; and a body that adds jobs which wait for itself must
    /// not report anything before it commits: it would wait for itself.
    ///
    /// Once the transaction commits, and only then, the nodes that poll the queues of jobs that are
    /// due at once are woken up, unless wakeups are off
    /// ([`Builder::wakeups`](crate::Builder::wakeups)): PostgreSQL keeps one notification for each
    /// such queue until then. Commits that notify wait for each other, one at a time in the whole
    /// server, which costs an application with many small transactions most of their rate; without
    /// `wake` ([`Client::with_wakes`](ratchet_core::Client::with_wakes)) there are none.
    ///
    /// # Errors
    /// `Invalid`, after which the transaction can go on; `Contention` if the snapshot of a
    /// `REPEATABLE READ` transaction is older than the first job of a queue and kind, or a key was
    /// lost to others again and again: begin the transaction again; `Misconfigured` if there is no
    /// transaction but jobs have keys, lanes, links, batches or signals, `Unavailable` if the store
    /// is closed, or a failure of the database, after which the transaction can only be rolled
    /// back. `Timeout` after the deadline, or twice that where the server does not answer: roll
    /// back then, too.
    ///
    /// # Cancel safety
    /// Dropped, it may have written a part of the jobs into the transaction, which must be rolled
    /// back.
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
