use std::any::{Any, type_name};

use futures_util::future::BoxFuture;

use crate::cluster::JobWakeups;
use crate::error::{InvalidInput, Result, StoreError, StoreErrorKind};
use crate::model::{Enqueued, NewJob};

/// Enqueues jobs in a transaction of the application, on the application's own connection to the
/// same database.
///
/// Applications do not call this trait; they call
/// [`Client::enqueue_in`](crate::Client::enqueue_in).
pub trait TransactionStore: Send + Sync {
    /// Stores jobs in the transaction that is open on this connection.
    ///
    /// # Contract
    /// - **[within.commit]** The jobs exist once the transaction commits, and no call outside of
    ///   the transaction sees them before. If the store sends wakeups through the database, the
    ///   commit also sends the wakeups that [`JobWakeups::of_created`] returns.
    /// - **[within.rollback]** If the transaction is rolled back, nothing of the jobs remains: no
    ///   row, key, lane, link or member of a batch.
    /// - **[within.enqueue]** The clauses of [`JobStore::enqueue`](super::JobStore::enqueue) hold,
    ///   as if the earlier calls of the transaction had committed. A store may refuse jobs that
    ///   would change the holder of their unique key, as `Invalid`.
    /// - **[within.refused]** After an `Invalid`, the transaction is as it was before the call, and
    ///   can go on.
    /// - **[within.driver]** A connection of another driver is refused as `Invalid`, and the error
    ///   names `transaction`.
    /// - **[within.apart]** Until the transaction ends, it holds up only calls on the lanes,
    ///   parents and batches of the new jobs. A store with one writer at a time holds up all
    ///   writes.
    ///
    /// This method is not an `async fn`, because the connections of some drivers cannot move to
    /// another thread. A store for such a driver does the work before the method returns, and the
    /// returned future only contains the result.
    ///
    /// # Errors
    /// `Invalid` as the contract says. The store documents all other errors.
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        wakeups: JobWakeups,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>>;
}

/// A transaction of the application in which a store of type `S` can enqueue jobs.
///
/// A store implements this trait for the types of its driver. For each type, only one crate may
/// implement the trait: otherwise the compiler cannot infer `S`.
#[diagnostic::on_unimplemented(
    message = "jobs cannot be enqueued in `{Self}`",
    label = "not a transaction of a driver that a backend of Ratchet uses",
    note = "the driver must be the one that the store's backend uses, in the same version: the \
            backend's module in `ratchet` exports it, and docs/databases.md lists the versions"
)]
pub trait AppTransaction<S> {
    /// Returns the connection of the transaction, in the form that the store `S` expects.
    fn connection(&mut self) -> AppConnection<'_>;
}

/// The type-erased connection of an [`AppTransaction`]. Only a store that uses the same driver
/// knows the type of the connection.
#[derive(Debug)]
pub enum AppConnection<'a> {
    /// A connection that several callers can use at the same time.
    Shared(&'a dyn Any),
    /// A connection that one caller can use at a time.
    Exclusive(&'a mut dyn Any),
}

impl<'a> AppConnection<'a> {
    /// Returns the shared connection as a `T`. A store calls this method with the connection type
    /// of its driver.
    ///
    /// # Errors
    /// `Invalid`, naming `transaction`, if the connection is exclusive or has another type.
    pub fn shared<T: Any>(self) -> Result<&'a T> {
        match self {
            Self::Shared(connection) => connection.downcast_ref(),
            Self::Exclusive(_) => None,
        }
        .ok_or_else(unfit::<T>)
    }

    /// Returns the exclusive connection as a `T`. A store calls this method with the connection
    /// type of its driver.
    ///
    /// # Errors
    /// `Invalid`, naming `transaction`, if the connection is shared or has another type.
    pub fn exclusive<T: Any>(self) -> Result<&'a mut T> {
        match self {
            Self::Shared(_) => None,
            Self::Exclusive(connection) => connection.downcast_mut(),
        }
        .ok_or_else(unfit::<T>)
    }
}

fn unfit<T>() -> StoreError {
    let problem = format!(
        "belongs to another backend than the store; expected a `{}`",
        type_name::<T>()
    );
    StoreError::new(StoreErrorKind::Invalid, "enqueue_in")
        .with_source(InvalidInput::new("transaction", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_only_what_it_is() {
        let (shared, mut exclusive) = (7_u32, 8_u64);
        assert_eq!(AppConnection::Shared(&shared).shared::<u32>().unwrap(), &7);
        let taken = AppConnection::Exclusive(&mut exclusive).exclusive::<u64>();
        *taken.unwrap() = 9;
        assert_eq!(exclusive, 9);
        let error = AppConnection::Shared(&shared).shared::<u64>().unwrap_err();
        assert_eq!(
            error.invalid_input().map(InvalidInput::field),
            Some("transaction")
        );
        let text = "enqueue_in: invalid input: transaction belongs to another backend than the \
            store; expected a `u64`";
        assert_eq!(error.to_string(), text);
        assert!(AppConnection::Shared(&shared).exclusive::<u32>().is_err());
        assert!(
            AppConnection::Exclusive(&mut exclusive)
                .shared::<u64>()
                .is_err()
        );
    }
}
