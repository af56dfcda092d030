//! Storing jobs inside a transaction of the application.

use std::sync::atomic::{AtomicBool, Ordering};

use ratchet_core::StoreErrorKind;
use ratchet_core::model::{Enqueued, NewJob};
use tokio::time::timeout;

use crate::dialect::{Dialect, Run};
use crate::enqueue::need_more_than_an_insert;
use crate::failure::{Failure, Result};
use crate::store::SqlStore;

/// How often an enqueue is tried that lost a race, or whose routes are missing.
const TRIES: u32 = 5;

/// A connection in a transaction of the application, in which a failed enqueue takes back what it
/// wrote.
pub trait Savepoint<D: Dialect>: Run<D> {
    /// Whether jobs that one insert stores need a savepoint, too.
    const ALWAYS: bool;

    /// Whether the transaction can go on after this failure, once what came after the savepoint is
    /// taken back.
    fn survives(failure: &Failure) -> bool;

    /// Sets the savepoint.
    fn save(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Forgets the savepoint, and keeps what came after it.
    fn release(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Takes back what came after the savepoint, and forgets it.
    fn roll_back(&mut self) -> impl Future<Output = Result<()>> + Send;
}

impl<D: Dialect> SqlStore<D> {
    /// Stores the jobs of one call inside a transaction of the application.
    ///
    /// An enqueue that loses a race is repeated, since the application cannot know that it may.
    /// After a `Timeout` the transaction must be rolled back. Where the server still answers,
    /// within the same time again, what was written after the savepoint is taken back before, so
    /// that no part of the jobs can be committed by mistake.
    ///
    /// # Errors
    /// `Invalid`, after which the transaction can go on; `Contention` if every try lost a race;
    /// `Timeout` after the deadline; and failures of the database.
    ///
    /// # Cancel safety
    /// Dropped, it may have written a part of the jobs: the transaction must be rolled back.
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
            // If that fails, the transaction fails with it.
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
        // Without a savepoint, only a call that stored nothing leaves the transaction as it was.
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

    /// Tries once. `saved` is set while what was written can be taken back.
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
