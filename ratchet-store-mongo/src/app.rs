//! Transactions of the application, as the store's trait takes them.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::error::ErrorKind;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{AppConnection, AppTransaction, Store, TransactionStore};
use ratchet_core::{Result, StoreErrorKind};

use crate::error::{Failure, Result as Inner};
use crate::store::{MongoStore, too_late};

impl AppTransaction<MongoStore> for ClientSession {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(self)
    }
}

impl TransactionStore for MongoStore {
    /// Stores jobs inside a transaction of the caller's: they are there if and when it commits, and
    /// if it aborts there is no trace of them. The session must be of the client that the store uses,
    /// so the store is one [`from_database`](MongoStore::from_database), and a transaction must have begun
    /// on it, whose write concern should be `majority`; with another one acknowledged jobs can be
    /// lost.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold. Nobody is woken up: the jobs are found by the next
    /// poll after the commit, or by who is notified then.
    ///
    /// Transactions here do not wait for each other. If another one changes the same keys, lanes,
    /// parents or batches meanwhile, the error has the kind `Contention`, and the caller does the
    /// whole transaction again. A commit that meets it says so with the driver's label
    /// `TransientTransactionError`.
    ///
    /// What can be refused is refused before anything is written: after `Invalid` the transaction is
    /// what it was, and can be gone on with and committed. After every other failure of the database
    /// it is aborted, so that no part of the jobs can be committed by accident: the session has no
    /// transaction then, and a commit, or another abort, is an error.
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
    /// `Invalid`, `Misconfigured` on a server without transactions and for a session of another
    /// client or on which none was begun or none can be, `Contention`, or a failure of the database.
    /// After one of the last two the transaction is aborted, which may take as long again where the
    /// server does not answer.
    ///
    /// # Cancel safety
    /// Dropped, it may have written a part of the jobs into the transaction, which must be aborted.
    fn enqueue_on<'a>(
        &'a self,
        connection: AppConnection<'a>,
        jobs: Vec<NewJob>,
        _wake: bool,
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
            self.enqueue_within(session, jobs, &writes).await
        };
        // In a box, so that the callers' own futures stay small.
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
            // The session knows of it at once, and the server as soon as it answers.
            let abort = session.abort_transaction();
            let _ = tokio::time::timeout(deadline, abort).await;
        }
        enqueued
    }
}

/// Refuses a session without a transaction, of which a new one would only then begin.
async fn need_begun(session: &mut ClientSession) -> Inner<()> {
    /// How the driver says so.
    const BEGUN: &str = "transaction already in progress";
    let refused = match session.start_transaction().await {
        // Nothing was sent in it, so nothing is sent for its end.
        Ok(()) => {
            session.abort_transaction().await?;
            "no transaction was begun on the session".to_owned()
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
