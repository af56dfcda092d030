//! Transactions of the application, as the store's trait takes them.

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
    /// Stores jobs inside a transaction that this store, or a clone of it, has
    /// [begun](SqlServerStore::begin): they are there if and when it commits, and if it rolls back
    /// there is no trace of them.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold, but that
    /// a lost race for a key is an error of kind `Contention` here, and so is a deadlock: the
    /// server rolls the whole transaction back, and who began it begins again.
    ///
    /// The lanes of jobs that have one are locked until the transaction ends: others that enqueue
    /// into them wait, and so do the ends of their heads. So are the stored jobs and the batches
    /// that new jobs wait for, and the batches that they join. So keep such transactions far
    /// shorter than the deadlines of the store and the stall timeouts of jobs, and if they enqueue
    /// more than once, go through the lanes in one order. A body that adds jobs which wait for
    /// itself must not report anything before it commits: it would wait for itself.
    ///
    /// What a text has set in the session that storing jobs rests on (`SET ROWCOUNT`, the isolation
    /// level and the like) is set back before. The commit wakes no node: nodes find the jobs by
    /// their next poll.
    ///
    /// # Errors
    /// `Invalid` for bad input and for a transaction of another store, after which the transaction
    /// can go on; otherwise it can only be rolled back: `Contention`, `Timeout` after the deadline,
    /// or twice that where the server does not answer, `Unavailable` if the store is closed or an
    /// earlier call failed, or another failure of the database.
    ///
    /// # Cancel safety
    /// Dropped, the transaction has failed and can only be rolled back.
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
