//! Stores jobs inside a transaction of the application.

use std::sync::atomic::{AtomicBool, Ordering};

use ratchet_core::StoreErrorKind;
use ratchet_core::model::{Enqueued, NewJob};
use tokio::time::timeout;

use crate::dialect::{Dialect, Run};
use crate::enqueue::need_more_than_an_insert;
use crate::failure::{Failure, Result};
use crate::store::SqlStore;

/// The maximum number of tries of an enqueue that loses races or whose routes are missing.
const TRIES: u32 = 5;

/// A connection in a transaction of the application, with a savepoint to which a failed enqueue
/// rolls back.
pub trait Savepoint<D: Dialect>: Run<D> {
    /// Whether jobs that need only one insert need a savepoint, too.
    const ALWAYS: bool;

    /// Returns whether the transaction can continue after this failure once it has been rolled back
    /// to the savepoint.
    fn survives(failure: &Failure) -> bool;

    /// Sets the savepoint.
    fn save(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Releases the savepoint, and keeps what was written after it.
    fn release(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Rolls back to the savepoint, and releases it.
    fn roll_back(&mut self) -> impl Future<Output = Result<()>> + Send;
}

impl<D: Dialect> SqlStore<D> {
    /// Stores the jobs of one call inside a transaction of the application.
    ///
    /// Repeats an enqueue that loses a race, because the application cannot know whether a
    /// repetition is safe. After a `Timeout` the application must roll back the transaction. Before
    /// it returns this error, the store rolls back to the savepoint, if there is one and the server
    /// answers within another deadline. So no part of the jobs can be committed by mistake.
    ///
    /// # Errors
    /// `Invalid`, after which the transaction can continue; `Contention` if every try lost a race;
    /// `Timeout` after the deadline; and failures of the database.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may have written part of the jobs: the application must roll
    /// back the transaction.
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
            // If the rollback fails, the whole transaction fails.
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
        // Without a savepoint, only a call that stored nothing can be repeated, because it left the
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

    /// Tries the enqueue once. `saved` is `true` while there is a savepoint to roll back to.
    async fn try_within<S: Savepoint<D>>(
        &self,
        on: &mut S,
        jobs: &[NewJob],
        saves: bool,
        saved: &AtomicBool,
    ) -> Result<Vec<Enqueued>> {
        let routes = self.marks_of(jobs).await?;
        if !saves {
            return self.insert_new(on, jobs, &routes).await;
        }
        saved.store(true, Ordering::Relaxed);
        on.save().await?;
        let stored = self.store_jobs(on, jobs, &routes).await;
        match &stored {
            Ok(_) => on.release().await?,
            Err(failure) if S::survives(failure) => on.roll_back().await?,
            Err(_) => {}
        }
        saved.store(false, Ordering::Relaxed);
        stored
    }
}
