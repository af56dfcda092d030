//! Stores jobs inside a transaction of the application.

use std::sync::atomic::{AtomicBool, Ordering};

use ratchet_core::StoreErrorKind;
use ratchet_core::model::{Enqueued, NewJob};
use tokio::time::timeout;

use crate::dialect::{Dialect, Run};
use crate::enqueue::need_more_than_an_insert;
use crate::failure::{Failure, Loss, Result};
use crate::fair::Turns;
use crate::store::SqlStore;

/// Maximum number of tries of one enqueue. A try is repeated if it lost a race against another
/// transaction, or if the database lacked a cached route.
const TRIES: u32 = 5;

/// A connection on which a transaction of the application is open. If an enqueue fails, the store
/// rolls back to a savepoint on this connection.
pub trait Savepoint<D: Dialect>: Run<D> {
    /// Whether a failed insert leaves the transaction usable, so that each call needs a savepoint.
    const ALWAYS: bool;

    /// Returns whether the transaction can continue after this failure, provided that it was rolled
    /// back to the savepoint.
    fn survives(failure: &Failure) -> bool;

    /// Sets the savepoint at the current point of the transaction.
    fn save(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Releases the savepoint. Changes made since the savepoint remain part of the transaction.
    fn release(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Rolls back to the savepoint, then releases the savepoint.
    fn roll_back(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Restores what [`save`](Self::save) has changed in the session, after the transaction has
    /// ended with a failure that keeps the connection.
    fn restore(&mut self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Stores jobs inside a transaction of the application.
    ///
    /// If an enqueue loses a race against another transaction, the store repeats the enqueue,
    /// because the application cannot know whether a repetition is safe.
    ///
    /// After a `Timeout`, the application must roll back its transaction. If the store has set a
    /// savepoint, it tries to roll back to the savepoint before it returns `Timeout`. This takes at
    /// most one more deadline. The application then cannot commit part of the jobs by mistake.
    ///
    /// # Errors
    /// - `Invalid` for invalid jobs. The transaction can continue.
    /// - `Contention` if every try lost a race against another transaction.
    /// - `Timeout` after the deadline.
    /// - Other failures of the database.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the jobs may already be written. The application must then
    /// roll back the transaction.
    pub async fn enqueue_within<S: Savepoint<D>>(
        &self,
        on: &mut S,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let saves = S::ALWAYS || need_more_than_an_insert(jobs);
        let deadline = self.deadline();
        let saved = AtomicBool::new(false);
        let work = self.repeat_within(on, jobs, saves, &saved);
        if let Ok(done) = timeout(deadline, work).await {
            return done;
        }
        let failure = self.too_late();
        if saved.into_inner() {
            // If the rollback fails, the database rejects the whole transaction.
            let _ = timeout(deadline, on.roll_back()).await;
        }
        Err(failure)
    }

    async fn repeat_within<S: Savepoint<D>>(
        &self,
        on: &mut S,
        jobs: &[NewJob],
        saves: bool,
        saved: &AtomicBool,
    ) -> Result<Vec<Enqueued>> {
        // Without a savepoint, repeat only a call that stored nothing, because such a call left the
        // transaction unchanged.
        let lost = |failure: &Failure| {
            let raced = failure.kind == StoreErrorKind::Contention;
            failure.refuted || (saves && raced && S::survives(failure))
        };
        for _ in 1..TRIES {
            match self.try_within(on, jobs, saves, saved).await {
                Err(failure) if lost(&failure) => {}
                done => return done,
            }
        }
        self.try_within(on, jobs, saves, saved).await
    }

    /// Tries the enqueue once. Sets `saved` to `true` while a savepoint exists to roll back to.
    async fn try_within<S: Savepoint<D>>(
        &self,
        on: &mut S,
        jobs: &[NewJob],
        saves: bool,
        saved: &AtomicBool,
    ) -> Result<Vec<Enqueued>> {
        let routes = self.places_of(jobs).await?;
        if !saves {
            return self.insert_new(on, jobs, &routes).await;
        }
        saved.store(true, Ordering::Relaxed);
        on.save().await?;
        let stored = self.store_jobs(on, jobs, &routes, Turns::Later).await;
        match &stored {
            Ok(_) => on.release().await?,
            Err(failure) if S::survives(failure) => on.roll_back().await?,
            // The caller needs the first failure.
            Err(failure) if failure.loss == Loss::No => drop(on.restore().await),
            Err(_) => {}
        }
        saved.store(false, Ordering::Relaxed);
        stored
    }
}
