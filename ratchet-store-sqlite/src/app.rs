//! Enqueues jobs inside transactions of the application.

use std::future::ready;

use futures_util::future::BoxFuture;
use ratchet_core::Result;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, TransactionStore};
use rusqlite::{Connection, Transaction};

use crate::store::SqliteStore;

impl AppTransaction<SqliteStore> for Transaction<'_> {
    fn connection(&mut self) -> AppConnection<'_> {
        let connection: &Connection = self;
        AppConnection::Shared(connection)
    }
}

impl TransactionStore for SqliteStore {
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        _wakeups: JobWakeups,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let connection = connection.shared::<Connection>();
        let enqueued = connection.and_then(|connection| self.enqueue_through(connection, &jobs));
        Box::pin(ready(enqueued))
    }
}
