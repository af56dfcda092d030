use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Checked, check_enqueue, part};
use crate::error::Result;
use crate::model::{Enqueued, NewJob};
use crate::store::{AppConnection, Store, TransactionStore};

/// No deadline and no repetition here: only the store knows what the application's transaction survives.
impl<S: Store + ?Sized> TransactionStore for Checked<S> {
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        wake: bool,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let store = part("enqueue_in", self.store.transactions())
            .and_then(|store| check_enqueue("enqueue_in", &*self.store, &jobs).map(|()| store));
        match store {
            Ok(store) => store.enqueue_on(connection, jobs, wake),
            Err(error) => async { Err(error) }.boxed(),
        }
    }
}
