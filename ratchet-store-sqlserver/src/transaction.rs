//! Transactions of an application, in which it stores jobs beside what it writes itself.

use std::fmt;

use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::{InvalidInput, Result, StoreErrorKind};
use ratchet_sql::{Connections as _, Failure, Lease as _, Result as Inner, Savepoint};
use tiberius::{Row, ToSql};

use crate::connection::Lease;
use crate::dialect::SqlServer;
use crate::leftovers;
use crate::store::SqlServerStore;

/// A transaction on a connection of a store's, made by [`SqlServerStore::begin`].
///
/// What is written in it is there when it commits, and otherwise leaves no trace. It ends with
/// [`commit`](Self::commit) or [`rollback`](Self::rollback). Dropped before, or if a call on it is
/// dropped or timed out, its connection is closed and never used again, and the server rolls back.
///
/// Any error of the server rolls the whole of it back (`XACT_ABORT`), and so does a lost race for a
/// key: every later call on it fails. It neither commits nor begins by a statement.
///
/// What a text without parameters sets in the session (`SET …`, `USE`) lasts until the end, when it
/// is set back. A text with parameters runs inside a procedure (`sp_executesql`), at whose end SQL
/// Server takes that back. If a text calls a procedure, makes a temporary table or sets what cannot
/// be set back, what is left in the session is not known, and the connection is closed at the end
/// and not used again.
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
    /// Whether it can only be rolled back.
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

    /// Runs statements of the application's, whose parameters are `@P1`, `@P2`, …; how many rows
    /// the last of them changed.
    ///
    /// # Errors
    /// `Timeout` after the store's deadline, and whatever the database says. The transaction can
    /// then only be rolled back.
    ///
    /// # Cancel safety
    /// Dropped midway, the transaction is rolled back.
    pub async fn execute(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<u64> {
        const OPERATION: &str = "execute";
        self.start(OPERATION)?;
        self.lingers |= leftovers::may_linger(sql);
        let work = self.lease.execute_text(sql, parameters);
        let done = self.store.shared().within(work).await;
        self.stop(OPERATION, done)
    }

    /// As [`execute`](Self::execute), and reads the rows of the first result.
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

    /// Commits, and gives the connection back.
    ///
    /// # Errors
    /// `Unavailable` if an earlier call failed: then nothing was written. `Invalid` if the
    /// application has ended the transaction by a statement, or begun another inside: what is open
    /// is rolled back. Whatever else the database says; if the connection was lost, whether it was
    /// committed is not known.
    pub async fn commit(mut self) -> Result<()> {
        const OPERATION: &str = "commit";
        self.start(OPERATION)?;
        let done = self.store.shared().within(self.lease.commit_own()).await;
        self.stop(OPERATION, done)?;
        self.give_back().await;
        Ok(())
    }

    /// Rolls back, and gives the connection back if it can be used further.
    ///
    /// # Errors
    /// None that would keep anything: at worst the connection is closed, which rolls back as well.
    pub async fn rollback(mut self) -> Result<()> {
        if !self.lease.is_broken() {
            let undone: Inner<()> = Err(Failure::new(StoreErrorKind::Other, "rolled back"));
            // It says what it was given; if it could not roll back, the connection is closed.
            let _ = self.store.shared().within(self.lease.finish(undone)).await;
            self.give_back().await;
        }
        Ok(())
    }

    /// Makes the session what it was for others. If that fails, it is closed.
    async fn give_back(&mut self) {
        if self.lingers {
            self.lease.discard();
        } else if let Err(error) = self.store.shared().within(self.lease.restore()).await {
            tracing::debug!(%error, "the connection of a transaction is closed");
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
        // In a box, so that the callers' own futures stay small.
        let done = Box::pin(store.shared().enqueue_within(&mut self.lease, jobs)).await;
        // Input that was refused leaves nothing behind, and the transaction as it was.
        let refused = matches!(&done, Err(failure) if failure.kind == StoreErrorKind::Invalid);
        let done = self.stop(OPERATION, done);
        self.failed &= !refused;
        done
    }

    /// Before a call: until it is known to have gone well, the transaction has failed, so that a
    /// call that is dropped fails it too.
    fn start(&mut self, operation: &'static str) -> Result<()> {
        if self.failed {
            let text = "an earlier call failed, which rolled the transaction back";
            return Err(Failure::new(StoreErrorKind::Unavailable, text).during(operation));
        }
        self.failed = true;
        Ok(())
    }

    /// After a call.
    fn stop<T>(&mut self, operation: &'static str, done: Inner<T>) -> Result<T> {
        self.failed = done.is_err();
        done.map_err(|failure| failure.during(operation))
    }
}

impl Savepoint<SqlServer> for Lease {
    /// The application may have set the session otherwise, which is set back with the savepoint.
    const ALWAYS: bool = true;

    /// Errors of the server end the transaction.
    fn survives(failure: &Failure) -> bool {
        failure.refuted || failure.kind == StoreErrorKind::Invalid
    }

    async fn save(&mut self) -> Inner<()> {
        self.batch_anew("SAVE TRANSACTION ratchet_enqueue").await
    }

    /// A savepoint lasts as long as its transaction.
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
