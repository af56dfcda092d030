//! Transactions of the application, as the store's trait takes them.

use futures_util::future::BoxFuture;
use ratchet_core::Result;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, TransactionStore};
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
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        wake: bool,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let connection = connection.exclusive::<PgConnection>();
        Box::pin(async move {
            match wake {
                true => self.enqueue_in(connection?, &jobs).await,
                false => self.enqueue_in_quietly(connection?, &jobs).await,
            }
        })
    }
}
