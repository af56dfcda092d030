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
    /// [begun](SqlServerStore::begin). The jobs exist once the transaction commits; if it rolls
    /// back, no trace of them remains.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold, except
    /// that a lost race for a key is an error of kind `Contention` here. So is a deadlock. In both
    /// cases the server rolls back the whole transaction, and the caller must begin it again.
    ///
    /// The lanes of jobs stay locked until the transaction ends. Other enqueues into these lanes
    /// wait for the transaction, and so do settlements of the lanes' heads. The stored jobs and
    /// batches that new jobs wait for stay locked too, as do the batches that new jobs join. So
    /// keep the transaction far shorter than the store's deadline and the jobs' stall timeouts. If
    /// transactions enqueue more than once, they must use lanes in the same order, or two of them
    /// may deadlock. A body that enqueues jobs that wait for its own job must not report anything
    /// before the transaction commits, because the report would wait for the transaction.
    ///
    /// The store first resets the session settings that it depends on and that an earlier statement
    /// of the application may have changed, such as `ROWCOUNT` and the isolation level. The commit
    /// sends no wakeup: nodes find the jobs at their next poll.
    ///
    /// # Errors
    /// - `Invalid` for bad input and for a transaction of another store; the transaction can
    ///   continue.
    /// - `Contention`, `Timeout` after the deadline (after twice the deadline if the server does
    ///   not answer), `Unavailable` if the store is closed or an earlier call failed, or another
    ///   failure of the database; the transaction can only be rolled back.
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
