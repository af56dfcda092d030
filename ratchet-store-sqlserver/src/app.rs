//! Enqueues jobs inside transactions of the application.

use futures_util::future::BoxFuture;
use ratchet_core::Result;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, TransactionStore};

use crate::store::SqlServerStore;
use crate::transaction::Transaction;

impl AppTransaction<SqlServerStore> for Transaction {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(self)
    }
}

impl TransactionStore for SqlServerStore {
    /// Stores jobs inside a transaction that this store or a clone of it has
    /// [begun](SqlServerStore::begin). The jobs exist once the transaction commits. If the
    /// transaction rolls back, no jobs are stored.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold, with one
    /// exception. If a concurrent transaction takes a key of these jobs first, the call fails with
    /// `Contention`. A deadlock fails with `Contention` too. In both cases the server rolls back
    /// the whole transaction, and the caller must begin it again.
    ///
    /// The lanes of the new jobs stay locked until the transaction ends. Until then, other enqueues
    /// into these lanes and settlements of the lanes' heads wait. The parents of the new jobs and
    /// the batches that new jobs join stay locked too. So keep the transaction far shorter than the
    /// store's deadline and the jobs' stall timeouts. Transactions that enqueue more than once must
    /// use the lanes in the same order. Otherwise two of them may deadlock.
    ///
    /// A body may enqueue children of its own job in such a transaction. It must then not report
    /// anything before the transaction commits, because the report would wait for the transaction.
    ///
    /// The store depends on some settings of the session, such as `ROWCOUNT` and the isolation
    /// level. It first resets them, because an earlier statement of the application may have
    /// changed them. The commit sends no wakeup, so nodes find the jobs at their next poll.
    ///
    /// # Errors
    /// - `Invalid` if the input is invalid, or if the transaction belongs to another store. The
    ///   transaction can continue.
    /// - `Contention`, `Timeout`, `Unavailable` or another failure of the database. The transaction
    ///   can then only be rolled back. `Timeout` occurs after the deadline, or after twice the
    ///   deadline if the server does not answer. `Unavailable` also occurs if the store is closed
    ///   or an earlier call in the transaction failed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction has failed and can only be rolled back.
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        _wakeups: JobWakeups,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let transaction = connection.exclusive::<Transaction>();
        Box::pin(async move { transaction?.enqueue(self, &jobs).await })
    }
}
