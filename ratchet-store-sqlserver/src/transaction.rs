//! Transactions of an application, in which it stores jobs together with its own writes.

use std::fmt;

use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::{InvalidInput, Result, StoreErrorKind};
use ratchet_sql::{Connections as _, Failure, Lease as _, Result as Inner, Savepoint};
use tiberius::{Row, ToSql};

use crate::connection::Lease;
use crate::dialect::SqlServer;
use crate::leftovers;
use crate::store::SqlServerStore;

/// A transaction of the application on a store's connection, begun by [`SqlServerStore::begin`].
///
/// It ends with [`commit`](Self::commit) or [`rollback`](Self::rollback). If it is dropped earlier,
/// or if a call on it is dropped or times out, its connection is closed and never used again, and
/// the server rolls back.
///
/// Every error of the server rolls back the whole transaction (`XACT_ABORT`), and so does a lost
/// race for a key. Every later call on it then fails. The application's statements must neither
/// commit nor begin a transaction.
///
/// A text without parameters can change the session (`SET …`, `USE`) until the transaction ends;
/// the store then resets the session. A text with parameters runs inside a procedure
/// (`sp_executesql`), at whose end SQL Server undoes such changes. If a text calls a procedure,
/// creates a temporary table or changes a setting that cannot be reset, the store cannot know the
/// state of the session. It then closes the connection at the end of the transaction.
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
    /// Whether the session may have been changed in a way that cannot be detected.
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

    /// Runs statements of the application, whose parameters are `@P1`, `@P2`, …. Returns how many
    /// rows the last statement changed.
    ///
    /// # Errors
    /// `Timeout` after the store's deadline, or a failure of the database. The transaction can then
    /// only be rolled back.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the transaction is rolled back.
    pub async fn execute(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<u64> {
        const OPERATION: &str = "execute";
        self.start(OPERATION)?;
        self.lingers |= leftovers::may_linger(sql);
        let work = self.lease.execute_text(sql, parameters);
        let done = self.store.shared().within(work).await;
        self.stop(OPERATION, done)
    }

    /// Runs statements as [`execute`](Self::execute) does, and returns the rows of the first
    /// result.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    pub async fn query(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Row>> {
        const OPERATION: &str = "query";
        self.start(OPERATION)?;
        self.lingers |= leftovers::may_linger(sql);
        let work = self.lease.query_text(sql, parameters);
        let done = self.store.shared().within(work).await;
        self.stop(OPERATION, done)
    }

    /// Commits, and returns the connection to the pool.
    ///
    /// # Errors
    /// - `Unavailable` if an earlier call failed; nothing was written.
    /// - `Invalid` if a statement of the application has ended the transaction or begun another
    ///   inside it; open transactions are rolled back.
    /// - Another failure of the database. If the connection was lost, the outcome of the commit is
    ///   unknown.
    pub async fn commit(mut self) -> Result<()> {
        const OPERATION: &str = "commit";
        self.start(OPERATION)?;
        let done = self.store.shared().within(self.lease.commit_own()).await;
        self.stop(OPERATION, done)?;
        self.give_back().await;
        Ok(())
    }

    /// Rolls back, and returns the connection to the pool if it is still usable.
    ///
    /// # Errors
    /// None. At worst the connection is closed, which also rolls back.
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

    /// Resets the session for other callers. If that fails, closes the connection.
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
        if store.shared().pools().is_closed() {
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

    /// Begins a call. Marks the transaction as failed until the call succeeds, so that a dropped
    /// call fails it too.
    fn start(&mut self, operation: &'static str) -> Result<()> {
        if self.failed {
            let text = "an earlier call failed, which rolled the transaction back";
            return Err(Failure::new(StoreErrorKind::Unavailable, text).during(operation));
        }
        self.failed = true;
        Ok(())
    }

    /// Ends a call: records whether it failed, and names the operation in the error.
    fn stop<T>(&mut self, operation: &'static str, done: Inner<T>) -> Result<T> {
        self.failed = done.is_err();
        done.map_err(|failure| failure.during(operation))
    }
}

impl Savepoint<SqlServer> for Lease {
    /// Always sets a savepoint, because that also resets the session, which the application may
    /// have changed.
    const ALWAYS: bool = true;

    /// Returns whether the transaction survives a failure. Errors of the server end the
    /// transaction.
    fn survives(failure: &Failure) -> bool {
        failure.refuted || failure.kind == StoreErrorKind::Invalid
    }

    async fn save(&mut self) -> Inner<()> {
        self.batch_anew("SAVE TRANSACTION ratchet_enqueue").await
    }

    /// Does nothing: a savepoint lasts as long as its transaction.
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
