//! Transactions of an application, in which it stores jobs beside what it writes itself.

use std::fmt;

use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::{Result, StoreErrorKind};
use tiberius::{Row, ToSql};

use crate::connection::Lease;
use crate::error::{Failure, Result as Inner};
use crate::store::SqlServerStore;

/// A transaction on a connection of a store's, made by [`SqlServerStore::begin`].
///
/// What is written in it is there when it commits, and otherwise leaves no trace. It ends with
/// [`commit`](Self::commit) or [`rollback`](Self::rollback). Dropped before, or if a call on it is
/// dropped or timed out, its connection is closed and never used again, and the server rolls back.
///
/// Any error of the server rolls the whole of it back (`XACT_ABORT`), and so does a lost race for a
/// key: every later call on it fails. What an application sets in its session (`SET …`) lasts until
/// the end; its temporary tables are the application's to drop.
pub struct Transaction {
    lease: Lease<'static>,
    store: SqlServerStore,
    /// Whether it can only be rolled back.
    failed: bool,
}

impl Transaction {
    pub(crate) async fn begin(store: &SqlServerStore) -> Inner<Self> {
        let mut lease = store.lease().await?;
        lease.begin().await?;
        Ok(Self {
            lease,
            store: store.clone(),
            failed: false,
        })
    }

    /// Runs statements of the application's, whose parameters are `@P1`, `@P2`, …; how many rows
    /// they changed in all.
    ///
    /// # Errors
    /// `Timeout` after the store's deadline, and whatever the database says. The transaction can
    /// then only be rolled back.
    ///
    /// # Cancel safety
    /// Dropped midway, the transaction is rolled back.
    pub async fn execute(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<u64> {
        self.run("execute", async |lease: &mut Lease<'static>| {
            lease
                .with(async |client| Ok(client.execute(sql, parameters).await?.total()))
                .await
        })
        .await
    }

    /// As [`execute`](Self::execute), and reads the rows of the first result.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    pub async fn query(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Row>> {
        self.run("query", async |lease: &mut Lease<'static>| {
            lease
                .with(async |client| {
                    let results = client.query(sql, parameters).await?.into_results().await?;
                    Ok(results.into_iter().next().unwrap_or_default())
                })
                .await
        })
        .await
    }

    /// Commits, and gives the connection back.
    ///
    /// # Errors
    /// `Unavailable` if an earlier call failed: then nothing was written. Whatever else the database
    /// says; if the connection was lost, nobody knows whether it was committed.
    pub async fn commit(mut self) -> Result<()> {
        self.run("commit", async |lease: &mut Lease<'static>| {
            lease.finish(Ok(())).await?;
            lease.restore().await
        })
        .await
    }

    /// Rolls back, and gives the connection back if it can be used further.
    ///
    /// # Errors
    /// None that would keep anything: at worst the connection is closed, which rolls back as well.
    pub async fn rollback(mut self) -> Result<()> {
        if self.lease.is_broken() {
            return Ok(());
        }
        self.failed = false;
        let undone = self
            .run("rollback", async |lease: &mut Lease<'static>| {
                let undone: Inner<()> = Err(Failure::new(StoreErrorKind::Other, "rolled back"));
                // It says what it was given.
                let _ = lease.finish(undone).await;
                lease.restore().await
            })
            .await;
        if let Err(error) = undone {
            tracing::debug!(%error, "a transaction was rolled back with its connection");
        }
        Ok(())
    }

    pub(crate) async fn enqueue(
        &mut self,
        store: &SqlServerStore,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        const OPERATION: &str = "enqueue_in";
        NewJob::validate_all(jobs).map_err(|error| error.during(OPERATION))?;
        self.run(OPERATION, async |lease: &mut Lease<'static>| {
            // In a box, so that the callers' own futures stay small.
            Box::pin(store.enqueue_on(lease, jobs)).await
        })
        .await
    }

    /// Does work within the deadline, unless something failed before.
    async fn run<T>(
        &mut self,
        operation: &'static str,
        work: impl AsyncFnOnce(&mut Lease<'static>) -> Inner<T>,
    ) -> Result<T> {
        if self.failed {
            let text = "an earlier call failed, which rolled the transaction back";
            return Err(Failure::new(StoreErrorKind::Unavailable, text).during(operation));
        }
        // Until it is known to have gone well: a dropped call fails the transaction too.
        self.failed = true;
        let deadline = self.store.deadline();
        let done = match tokio::time::timeout(deadline, work(&mut self.lease)).await {
            Ok(done) => done,
            Err(_) => Err(self.store.too_late()),
        };
        match done {
            Ok(value) => {
                self.failed = false;
                Ok(value)
            }
            // Input that is refused before anything is written changes nothing.
            Err(failure) if failure.kind == StoreErrorKind::Invalid => {
                self.failed = false;
                Err(failure.during(operation))
            }
            Err(failure) => Err(failure.during(operation)),
        }
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
