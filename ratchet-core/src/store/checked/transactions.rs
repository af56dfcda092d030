use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Checked, check_enqueue, part};
use crate::cluster::JobWakeups;
use crate::error::Result;
use crate::model::{Enqueued, NewJob};
use crate::store::{AppConnection, AppTransaction, Store, TransactionStore};

/// Passes calls on to the store without a deadline and without repetitions, because only the store
/// knows how the application's transaction can continue after a failure.
impl<S: Store + ?Sized> TransactionStore for Checked<S> {
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        wakeups: JobWakeups,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let store = part("enqueue_in", self.store.transactions())
            .and_then(|store| check_enqueue("enqueue_in", &*self.store, &jobs).map(|()| store));
        match store {
            Ok(store) => store.enqueue_on(connection, jobs, wakeups),
            Err(error) => async { Err(error) }.boxed(),
        }
    }
}

impl<S: Store> Checked<S> {
    /// Enqueues jobs in a transaction of the application. This method does the same as
    /// [`Client::enqueue_all_in`](crate::Client::enqueue_all_in). It is for code that has a store
    /// of a known type and no client.
    ///
    /// # Errors
    /// The same as [`Client::enqueue_all_in`](crate::Client::enqueue_all_in).
    ///
    /// # Cancel safety
    /// The same as [`Client::enqueue_all_in`](crate::Client::enqueue_all_in).
    pub fn enqueue_in<'a>(
        &'a self,
        transaction: &'a mut (impl AppTransaction<S> + ?Sized),
        jobs: &[NewJob],
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let wakeups = JobWakeups::of_every_node(jobs);
        self.enqueue_on(transaction.connection(), jobs.to_vec(), wakeups)
    }
}
