//! Handles jobs that another transaction has locked. For example, an application's transaction may
//! link new jobs to stored jobs. The rows of the stored jobs are then locked until this transaction
//! ends.
//!
//! A statement on many jobs waits for a locked job only for a short time. Then the statement fails,
//! and the store repeats it for the jobs that no other transaction has locked. The store processes
//! the locked jobs separately, or leaves them to a later call.
//!
//! On SQL Server and MySQL, such a statement first sets how long its session waits for locks, and
//! restores the previous value at its end. If the statement fails earlier, the lease restores the
//! value.

use std::collections::HashSet;
use std::time::Duration;

use ratchet_core::StoreErrorKind;
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::store::SqlStore;

/// Maximum time that a statement or transaction on many jobs waits for a job that another
/// transaction has locked.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// Returns `Ok(None)` if `done` is the failure of a call that waited too long for another
/// transaction's lock. Otherwise, returns `done`.
pub(crate) fn unless_held<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(failure) if failure.held => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Builds the failure of a call that waited too long for a locked job. The kind of the failure is
/// `Timeout` and not `Contention`, because an immediate retry would fail again.
pub(crate) fn held_too_long() -> Failure {
    let text = "another open transaction has locked the row of a job";
    Failure::new(StoreErrorKind::Timeout, text)
}

impl<D: Dialect> SqlStore<D> {
    /// Locks the given jobs until this transaction ends, except the jobs that another transaction
    /// has locked. Returns the jobs that are now locked by this transaction.
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
