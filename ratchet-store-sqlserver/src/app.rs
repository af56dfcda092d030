//! Transactions of the application, as the store's trait takes them.

use futures_util::future::BoxFuture;
use ratchet_core::Result;
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
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        _wake: bool,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let transaction = connection.exclusive::<Transaction>();
        Box::pin(async move { self.enqueue_in(transaction?, &jobs).await })
    }
}
