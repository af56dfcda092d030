//! Handles jobs that another transaction has locked. For example, an application's transaction that
//! linked new jobs to stored ones keeps the rows of the stored jobs locked until it ends.
//!
//! A statement on many jobs does not wait long for a locked one. It gives up, and the store repeats
//! it for the jobs that no other transaction has locked. The locked jobs are processed separately,
//! or left to a later call.
//!
//! On SQL Server such a statement begins with `SET LOCK_TIMEOUT` and at its end restores the
//! session's value. If an error ends it early, the lease restores the value.

use std::collections::HashSet;
use std::time::Duration;

use ratchet_core::StoreErrorKind;
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::store::SqlStore;

/// How long a statement or transaction on many jobs waits for a job that another transaction has
/// locked.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// Returns `None` if the work gave up waiting for another transaction's lock, and its result
/// otherwise.
pub(crate) fn unless_held<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(failure) if failure.held => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the error of a call that gave up waiting for a locked job. Its kind is `Timeout` because
/// an immediate retry would not help.
pub(crate) fn held_too_long() -> Failure {
    let text = "another open transaction has locked the row of a job";
    Failure::new(StoreErrorKind::Timeout, text)
}

impl<D: Dialect> SqlStore<D> {
    /// Locks, until this transaction ends, the jobs that no other transaction has locked, and
    /// returns them.
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
