//! Transactions of the application, as the store's trait takes them.

use futures_util::future::BoxFuture;
use mongodb::ClientSession;
use ratchet_core::Result;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, TransactionStore};

use crate::store::MongoStore;

impl AppTransaction<MongoStore> for ClientSession {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(self)
    }
}

impl TransactionStore for MongoStore {
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        _wake: bool,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let session = connection.exclusive::<ClientSession>();
        Box::pin(async move { self.enqueue_in(session?, &jobs).await })
    }
}
