//! Jobs that another transaction holds: one of an application that has linked new jobs to them, and
//! stays open, keeps their rows until it ends.
//!
//! A statement on many jobs does not wait for one of them for long. It is given up then, and done
//! for those that no other transaction holds; the others are done, or left to a later call, by
//! themselves.
//!
//! On SQL Server such a statement says how long by `SET LOCK_TIMEOUT` at its beginning, and sets at
//! its end what the session began with. An error ends it before: then the lease sees to that.

use std::collections::HashSet;
use std::time::Duration;

use ratchet_core::StoreErrorKind;
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::store::SqlStore;

/// How long a statement or a transaction on many jobs waits for one that another transaction holds.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// What became of something, unless it was given up because of what others hold.
pub(crate) fn unless_held<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(failure) if failure.held => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the error of a call that gave up waiting for a locked job. Another try at once would not
/// help.
pub(crate) fn held_too_long() -> Failure {
    let text = "a transaction that stays open holds the row of a job";
    Failure::new(StoreErrorKind::Timeout, text)
}

impl<D: Dialect> SqlStore<D> {
    /// Locks those of these jobs that no other transaction holds, until the transaction ends.
    pub(crate) async fn lock_free(
        &self,
        lease: &mut D::Lease,
        jobs: Vec<Uuid>,
    ) -> Result<HashSet<Uuid>> {
        let lock = self.sql().lock_free.query().bind(&jobs);
        let rows = lease.rows(lock).await?;
        rows.iter()
            .map(|row| Ok(row::job_id(row, 0)?.as_uuid()))
            .collect()
    }
}
