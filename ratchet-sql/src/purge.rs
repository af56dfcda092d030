//! Deletes old finished jobs, and finds the jobs to delete or archive.

use std::collections::HashSet;
use std::time::Duration;

use ratchet_core::JobId;
use ratchet_core::model::{Guard, Guarded, JobFlags, PurgeRequest};
use ratchet_core::time::duration_millis;
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result;
use crate::row;
use crate::store::SqlStore;

/// A cursor over the finished jobs that are old enough to be deleted or archived, in order of their
/// finish times.
pub(crate) struct OldJobs<'a> {
    request: &'a PurgeRequest,
    /// Finish time (in milliseconds since 1970) and id of the last job that was read.
    behind: (i64, Uuid),
    is_over: bool,
    /// The jobs that were read and may have an expiry.
    expiring: Vec<Uuid>,
}

impl<'a> OldJobs<'a> {
    pub(crate) const fn new(request: &'a PurgeRequest) -> Self {
        Self {
            request,
            behind: (i64::MIN, Uuid::nil()),
            is_over: false,
            expiring: Vec::new(),
        }
    }

    /// Returns `true` once all old jobs have been read.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Returns `age` in milliseconds, capped at `i64::MAX / 2`. No job is that old.
pub(crate) fn age(age: Duration) -> i64 {
    duration_millis(age).min(i64::MAX / 2)
}

impl<D: Dialect> SqlStore<D> {
    /// Runs the statement `purge`, and returns the number of deleted records. If `guard` is no
    /// longer valid, deletes nothing and returns `Stale`.
    pub(crate) async fn delete_guarded(
        &self,
        purge: D::Query,
        guard: Option<&Guard>,
    ) -> Result<Guarded<u64>> {
        let Some(mut lease) = self.begin_guarded(self.lease().await?, guard).await? else {
            return Ok(Guarded::Stale);
        };
        let deleted = lease.execute(purge).await;
        lease.end(deleted.map(Guarded::Done)).await
    }

    /// Deletes the old finished jobs that `request` selects, up to its limit. Returns the number of
    /// deleted jobs. If the request's guard is no longer valid, deletes nothing and returns
    /// `Stale`.
    pub(crate) async fn purge_jobs(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let Some(mut lease) = self
            .begin_guarded(self.lease().await?, request.guard.as_ref())
            .await?
        else {
            return Ok(Guarded::Stale);
        };
        let purged = self.purge_inside(&mut lease, request).await;
        lease.end(purged.map(Guarded::Done)).await
    }

    async fn purge_inside(&self, lease: &mut D::Lease, request: &PurgeRequest) -> Result<u64> {
        self.forget_keys(lease, request.limit).await?;
        let (mut old, mut done) = (OldJobs::new(request), 0);
        while done < request.limit && !old.is_over() {
            let jobs = self.lock_old(lease, &mut old, request.limit - done).await?;
            let ids: Vec<Uuid> = jobs.iter().map(|(id, _)| id.as_uuid()).collect();
            for some in ids.chunks(D::DELETES_AT_ONCE) {
                let delete = self.sql().delete_jobs.query().bind(some);
                done += lease.rows(delete).await?.len();
            }
            self.forget_expiries(lease, &mut old, &ids).await?;
        }
        Ok(done as u64)
    }

    /// Deletes the expiries of deleted jobs. The jobs must have been read from `old`.
    pub(crate) async fn forget_expiries(
        &self,
        lease: &mut D::Lease,
        old: &mut OldJobs<'_>,
        deleted: &[Uuid],
    ) -> Result<()> {
        let mut expiring = std::mem::take(&mut old.expiring);
        expiring.retain(|job| deleted.contains(job));
        self.drop_expiries(lease, &expiring).await
    }

    /// Deletes up to `limit` idempotency keys that are free again, except those that another
    /// transaction has locked.
    pub(crate) async fn forget_keys(&self, lease: &mut D::Lease, limit: usize) -> Result<()> {
        let limit = i64::try_from(limit.min(D::DELETES_AT_ONCE)).unwrap_or(i64::MAX);
        let forget = self.sql().forget_keys.query().bind(limit);
        lease.execute(forget).await.map(drop)
    }

    /// Locks up to `limit` more old jobs until the transaction ends. Returns the jobs with their
    /// finish times.
    ///
    /// Does not return a parent job for which unfinished child jobs wait. A second statement finds
    /// these parents after the jobs are locked. The second statement therefore sees children that
    /// were linked while the first statement ran, and the locks prevent new links.
    pub(crate) async fn lock_old(
        &self,
        lease: &mut D::Lease,
        old: &mut OldJobs<'_>,
        limit: usize,
    ) -> Result<Vec<(JobId, i64)>> {
        let lock = self.sql().lock_old.query();
        let lock = lock
            .bind(i16::from(old.request.state.code()))
            .bind(age(old.request.older_than))
            .bind(old.behind.0)
            .bind(old.behind.1)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let (mut jobs, mut parents) = (Vec::new(), Vec::new());
        for row in lease.rows(lock).await? {
            let (id, finished_at) = (row::job_id(&row, 0)?, row.try_get::<i64>(1)?);
            old.behind = (finished_at, id.as_uuid());
            let flags: JobFlags = row.try_get(2)?;
            if flags.has_any(JobFlags::CHILDREN) {
                parents.push(id.as_uuid());
            }
            if flags.has_any(JobFlags::EXPIRES) {
                old.expiring.push(id.as_uuid());
            }
            jobs.push((id, finished_at));
        }
        old.is_over = jobs.len() < limit;
        if !parents.is_empty() {
            let mut awaited = HashSet::new();
            let find = self.sql().awaited_parents.query().bind(&parents);
            for row in lease.rows(find).await? {
                awaited.insert(row::job_id(&row, 0)?);
            }
            jobs.retain(|(id, _)| !awaited.contains(id));
        }
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    /// A server may lock the whole table if one statement deletes many rows. So each source file
    /// must delete jobs in chunks of `DELETES_AT_ONCE`.
    #[test]
    fn no_statement_deletes_more_jobs_than_the_dialect_allows() {
        for source in [
            include_str!("act.rs"),
            include_str!("archive.rs"),
            include_str!("purge.rs"),
        ] {
            let code = source.split("#[cfg(test)]").next().unwrap_or_default();
            assert_eq!(code.matches(".delete_jobs").count(), 1);
            assert_eq!(code.matches("chunks(D::DELETES_AT_ONCE)").count(), 1);
        }
    }
}
