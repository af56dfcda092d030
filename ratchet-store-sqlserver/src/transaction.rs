//! Transactions of an application, in which it stores jobs together with its own writes.

use std::fmt;

use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::{InvalidInput, Result, StoreErrorKind};
use ratchet_sql::{Failure, Lease as _, Result as Inner, Savepoint};
use tiberius::{Row, ToSql};

use crate::connection::Lease;
use crate::dialect::SqlServer;
use crate::leftovers;
use crate::store::SqlServerStore;

/// A transaction of the application on a connection of the store. Begun by
/// [`SqlServerStore::begin`].
///
/// A transaction ends with [`commit`](Self::commit) or [`rollback`](Self::rollback). If the
/// transaction is dropped before, or if one of its calls is dropped or times out, the connection is
/// closed. The server then rolls back.
///
/// Every error of the server rolls back the whole transaction (`XACT_ABORT`). The same happens if a
/// concurrent transaction takes a key of the new jobs first. All later calls of the transaction
/// then fail. Statements of the application must not commit, roll back or begin a transaction.
///
/// Statements without parameters can change the session (`SET …`, `USE`). Such a change lasts until
/// the transaction ends, and then the store resets the session. Statements with parameters run
/// inside a procedure (`sp_executesql`), and SQL Server undoes their changes at the end of the
/// procedure.
///
/// Some statements change the session in a way that the store cannot detect. Such statements call a
/// procedure, create a temporary table, or change a setting that cannot be reset. After such
/// statements, the store closes the connection at the end of the transaction.
///
/// ```
/// # type Store = ratchet_core::store::Checked<ratchet_store_sqlserver::SqlServerStore>;
/// # async fn example(store: Store) -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_core::NewJob;
///
/// let mut tx = store.begin().await?;
/// tx.query("UPDATE orders SET paid = 1 WHERE id = @P1", &[&7_i64]).await?;
/// store.enqueue_in(&mut tx, &[NewJob::new("ship", &7)]).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub struct Transaction {
    lease: Lease,
    store: SqlServerStore,
    /// Whether the transaction can only be rolled back.
    failed: bool,
    /// Whether statements may have changed the session in a way that the store cannot detect.
    lingers: bool,
}

impl Transaction {
    pub(crate) async fn begin(store: &SqlServerStore) -> Inner<Self> {
        let mut lease = store.shared().lease().await?;
        lease.remember().await?;
        lease.begin().await?;
        Ok(Self {
            lease,
            store: store.clone(),
            failed: false,
            lingers: false,
        })
    }

    /// Runs statements of the application. Their parameters are named `@P1`, `@P2`, and so on.
    /// Returns the number of rows that the last statement changed.
    ///
    /// # Errors
    /// `Timeout` after the store's deadline, or a failure of the database. The transaction can then
    /// only be rolled back.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the transaction is rolled back.
    pub async fn execute(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<u64> {
        const OPERATION: &str = "execute";
        self.start(OPERATION)?;
        self.lingers |= leftovers::may_linger(sql);
        let work = self.lease.execute_text(sql, parameters);
        let done = self.store.shared().within(work).await;
        self.stop(OPERATION, done)
    }

    /// Runs statements of the application in the same way as [`execute`](Self::execute). Returns
    /// the rows of the first result.
    ///
    /// # Errors
    /// The same as for [`execute`](Self::execute).
    pub async fn query(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Row>> {
        const OPERATION: &str = "query";
        self.start(OPERATION)?;
        self.lingers |= leftovers::may_linger(sql);
        let work = self.lease.query_text(sql, parameters);
        let done = self.store.shared().within(work).await;
        self.stop(OPERATION, done)
    }

    /// Commits the transaction, and returns the connection to the pool.
    ///
    /// # Errors
    /// - `Unavailable` if an earlier call failed. Nothing was written.
    /// - `Invalid` if a statement of the application has ended the transaction or begun another
    ///   one. Open transactions are rolled back.
    /// - Another failure of the database. If the connection was lost, it is unknown whether the
    ///   commit took effect.
    pub async fn commit(mut self) -> Result<()> {
        const OPERATION: &str = "commit";
        self.start(OPERATION)?;
        let done = self.store.shared().within(self.lease.commit_own()).await;
        self.stop(OPERATION, done)?;
        self.give_back().await;
        Ok(())
    }

    /// Rolls back the transaction. Returns the connection to the pool if it is still usable.
    ///
    /// # Errors
    /// The call never fails. If the rollback is not possible, the connection is closed, and the
    /// server then rolls back.
    pub async fn rollback(mut self) -> Result<()> {
        if !self.lease.is_broken() {
            let undone: Inner<()> = Err(Failure::new(StoreErrorKind::Other, "rolled back"));
            // `finish` returns the failure that it was given. If it cannot roll back, the
            // connection is closed.
            let _ = self.store.shared().within(self.lease.finish(undone)).await;
            self.give_back().await;
        }
        Ok(())
    }

    /// Resets the session, so that other callers can use the connection. If that is not possible,
    /// marks the connection to be closed.
    async fn give_back(&mut self) {
        if self.lingers {
            self.lease.discard();
        } else if let Err(error) = self.store.shared().within(self.lease.restore()).await {
            tracing::debug!(%error, "could not reset the session after a transaction; closing the connection");
            self.lease.discard();
        }
    }

    pub(crate) async fn enqueue(
        &mut self,
        store: &SqlServerStore,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        const OPERATION: &str = "enqueue_in";
        if !store.shared().is_same(self.store.shared()) {
            let problem = InvalidInput::new("transaction", "was begun by another store");
            return Err(Failure::refused(problem).during(OPERATION));
        }
        if store.shared().pools().pool.is_closed() {
            return Err(Failure::closed().during(OPERATION));
        }
        self.start(OPERATION)?;
        // Boxed, to keep the callers' futures small.
        let done = Box::pin(store.shared().enqueue_within(&mut self.lease, jobs)).await;
        // If the input was invalid, the transaction is unchanged.
        let refused = matches!(&done, Err(failure) if failure.kind == StoreErrorKind::Invalid);
        let done = self.stop(OPERATION, done);
        self.failed &= !refused;
        done
    }

    /// Starts a call of the transaction. Marks the transaction as failed until the call succeeds.
    /// So a call that is dropped fails the transaction too.
    fn start(&mut self, operation: &'static str) -> Result<()> {
        if self.failed {
            let text = "an earlier call failed, which rolled the transaction back";
            return Err(Failure::new(StoreErrorKind::Unavailable, text).during(operation));
        }
        self.failed = true;
        Ok(())
    }

    /// Ends a call of the transaction. Records whether the call failed, and adds the name of the
    /// operation to its error.
    fn stop<T>(&mut self, operation: &'static str, done: Inner<T>) -> Result<T> {
        self.failed = done.is_err();
        done.map_err(|failure| failure.during(operation))
    }
}

impl Savepoint<SqlServer> for Lease {
    /// Always sets a savepoint, because setting it also resets the session. The application may
    /// have changed the session before.
    const ALWAYS: bool = true;

    /// Returns whether the transaction can continue after this failure. Most errors of the server
    /// end the transaction.
    fn survives(failure: &Failure) -> bool {
        failure.refuted || failure.kind == StoreErrorKind::Invalid
    }

    async fn save(&mut self) -> Inner<()> {
        self.batch_anew("SAVE TRANSACTION ratchet_enqueue").await
    }

    /// Does nothing, because in SQL Server a savepoint lasts until its transaction ends.
    async fn release(&mut self) -> Inner<()> {
        Ok(())
    }

    async fn roll_back(&mut self) -> Inner<()> {
        self.batch("ROLLBACK TRANSACTION ratchet_enqueue").await?;
        Ok(())
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("store", &self.store)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
