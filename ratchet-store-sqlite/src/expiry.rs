//! Expiries of jobs: until when jobs must begin.

use ratchet_core::model::{JobFlags, NewJob};
use ratchet_core::time::{Timestamp, from_millis};
use ratchet_core::{JobAction, JobId, JobState};
use rusqlite::{OptionalExtension, params};

use crate::act;
use crate::error::Result;
use crate::request::Work;
use crate::row;
use crate::statements::{Connection, SQL};

/// Stores the expiry of a new job, if the job has one.
pub(crate) fn add(work: &Work<'_>, job: &NewJob) -> Result<()> {
    match job.resolve_expiry(work.now) {
        Some(expires_at) => put(work.conn, job.id(), expires_at),
        None => Ok(()),
    }
}

/// Gives a waiting job with these flags another expiry, or none.
pub(crate) fn replace(
    work: &Work<'_>,
    id: JobId,
    flags: JobFlags,
    expires_at: Option<i64>,
) -> Result<()> {
    match expires_at {
        Some(expires_at) => put(work.conn, id, expires_at)?,
        None => remove(work.conn, id, flags)?,
    }
    if expires_at.is_some() != flags.has_any(JobFlags::EXPIRES) {
        let mut flag = work.conn.prepare_cached(&SQL.flag_expiry)?;
        flag.execute(params![id.as_bytes(), expires_at.is_some()])?;
    }
    Ok(())
}

/// Returns when a job with these flags expires, if it has an expiry.
pub(crate) fn of(conn: Connection<'_>, id: JobId, flags: JobFlags) -> Result<Option<Timestamp>> {
    if !flags.has_any(JobFlags::EXPIRES) {
        return Ok(None);
    }
    let mut find = conn.prepare_cached(&SQL.find_expiry)?;
    let found = find.query_row([id.as_bytes()], |row| row.get(0).map(from_millis));
    Ok(found.optional()?)
}

/// Removes the expiry of a job with these flags. If the job stays stored, the caller clears the
/// flag.
pub(crate) fn remove(conn: Connection<'_>, id: JobId, flags: JobFlags) -> Result<()> {
    if flags.has_any(JobFlags::EXPIRES) {
        let mut remove = conn.prepare_cached(&SQL.drop_expiry)?;
        remove.execute([id.as_bytes()])?;
    }
    Ok(())
}

/// Returns up to `limit` waiting jobs that have expired, the longest overdue first.
pub(crate) fn overdue(work: &Work<'_>, limit: usize) -> Result<Vec<JobId>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut find = work.conn.prepare_cached(&SQL.overdue_expiries)?;
    let found = find.query_map([work.now, limit], |row| row::job_id(row, 0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Cancels up to `limit` waiting jobs that have expired, and returns them in order of id.
pub(crate) fn expire(work: &mut Work<'_>, limit: usize) -> Result<Vec<JobId>> {
    let mut overdue = overdue(work, limit)?;
    overdue.sort_unstable();
    act::act(work, &overdue, &JobState::ALL, JobAction::Cancel)?;
    Ok(overdue)
}

fn put(conn: Connection<'_>, id: JobId, expires_at: i64) -> Result<()> {
    let mut put = conn.prepare_cached(&SQL.put_expiry)?;
    put.execute(params![id.as_bytes(), expires_at])?;
    Ok(())
}
