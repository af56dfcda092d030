//! Enqueues jobs inside transactions of the application.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::error::ErrorKind;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, Store, TransactionStore};
use ratchet_core::{InvalidInput, Result, StoreErrorKind};

use crate::error::{Failure, Result as Inner};
use crate::store::{MongoStore, too_late};

impl AppTransaction<MongoStore> for ClientSession {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(self)
    }
}

impl TransactionStore for MongoStore {
    /// Stores jobs inside a transaction of the caller. When the transaction commits, the jobs
    /// exist. If it aborts, none of them are stored.
    ///
    /// The session must belong to the store's client, so create the store with
    /// [`from_database`](MongoStore::from_database). Begin a transaction on the session before this
    /// call. The transaction's write concern should be `majority`. With another write concern,
    /// acknowledged jobs can be lost.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold. The store
    /// sends no wakeup. Nodes find the jobs at their next poll after the commit, unless the caller
    /// notifies the nodes earlier.
    ///
    /// Transactions of MongoDB do not wait for each other. If another transaction changes the same
    /// keys, lanes, parents or batches at the same time, this call fails with `Contention`. The
    /// caller must then retry the whole transaction. If the commit conflicts with another
    /// transaction, it fails with the driver's label `TransientTransactionError`.
    ///
    /// All input is validated before anything is written. After `Invalid`, the transaction is
    /// unchanged, and the caller can continue and commit it.
    ///
    /// After `Contention` or a failure of the database, the store aborts the transaction, so the
    /// caller cannot commit part of the jobs by mistake. The session then has no transaction. A
    /// commit or another abort returns an error.
    ///
    /// ```no_run
    /// # async fn example(client: mongodb::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use ratchet_core::{NewJob, Ratchet};
    /// use ratchet_store_mongo::MongoStore;
    ///
    /// let store = MongoStore::from_database(client.database("shop")).await?;
    /// let mut session = client.start_session().await?;
    /// session.start_transaction().await?;
    /// // … what the application changes, with the same session
    /// let client = Ratchet::client(std::sync::Arc::new(store));
    /// client.enqueue_in(&mut session, NewJob::new("confirm", &42)).await?;
    /// session.commit_transaction().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - `Invalid` for bad input, and for jobs with another
    ///   [`OnConflict`](ratchet_core::OnConflict) than `Keep`.
    /// - `Misconfigured` on a server without transactions. Also if the session belongs to another
    ///   client, has no transaction, or cannot begin one.
    /// - `Contention`, or a failure of the database. The store then aborts the transaction. If the
    ///   server does not respond, the abort takes at most another deadline.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the jobs may already be written in the transaction. The
    /// caller must then abort the transaction.
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        _wakeups: JobWakeups,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        let session = connection.exclusive::<ClientSession>();
        Box::pin(async move { self.enqueue_through(session?, &jobs).await })
    }
}

impl MongoStore {
    async fn enqueue_through(
        &self,
        session: &mut ClientSession,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        const OPERATION: &str = "enqueue_in";
        let deadline = self.call_policy().deadline;
        let writes = AtomicBool::new(false);
        let work = async {
            self.check_open()?;
            self.need_transactions(OPERATION)?;
            need_begun(session).await?;
            if jobs.is_empty() {
                return Ok(Vec::new());
            }
            refuse_conflicts(jobs)?;
            self.enqueue_within(session, jobs, &writes).await
        };
        // Boxed, to keep the callers' futures small.
        let enqueued = match tokio::time::timeout(deadline, Box::pin(work)).await {
            Ok(enqueued) => enqueued.map_err(|failure| failure.during(OPERATION)),
            Err(_) => Err(too_late(deadline).during(OPERATION)),
        };
        let refused = enqueued.as_ref().is_err_and(|error| {
            matches!(
                error.kind(),
                StoreErrorKind::Invalid | StoreErrorKind::Misconfigured
            )
        });
        if enqueued.is_err() && (!refused || writes.load(Ordering::Relaxed)) {
            // The abort ends the transaction in the session at once, and on the server as soon as
            // the server responds.
            let abort = session.abort_transaction();
            let _ = tokio::time::timeout(deadline, abort).await;
        }
        enqueued
    }
}

/// Refuses jobs that may change the holder of their unique keys. A claim would wait for this
/// transaction as soon as it finds such a holder, and so would all other jobs of its queue.
fn refuse_conflicts(jobs: &[NewJob]) -> Inner<()> {
    if jobs.iter().any(NewJob::changes_holder) {
        let problem = "is not supported in a transaction of the application on MongoDB";
        return Err(Failure::refused(InvalidInput::new("on_conflict", problem)));
    }
    Ok(())
}

/// Fails if the session has no transaction. Without a transaction, each write would take effect
/// immediately.
async fn need_begun(session: &mut ClientSession) -> Inner<()> {
    /// The driver's message if a transaction has already begun on the session.
    const BEGUN: &str = "transaction already in progress";
    let refused = match session.start_transaction().await {
        // The session had no transaction before. Nothing was sent in the new one, so the abort
        // sends nothing.
        Ok(()) => {
            session.abort_transaction().await?;
            "the session has no transaction: begin one before the call".to_owned()
        }
        Err(error) => match &*error.kind {
            ErrorKind::Transaction { message, .. } if message == BEGUN => return Ok(()),
            ErrorKind::Transaction { message, .. } => {
                format!("no transaction can be begun on the session: {message}")
            }
            _ => return Err(error.into()),
        },
    };
    Err(Failure::new(StoreErrorKind::Misconfigured, refused))
}
