//! Applies the actions of operators to jobs, and deletes old jobs.

use ratchet_core::model::{Acted, ActionOutcome, Guarded, JobFlags, PurgeRequest};
use ratchet_core::state::Response;
use ratchet_core::time::duration_millis;
use ratchet_core::{JobAction, JobId, JobState};
use rusqlite::{OptionalExtension, params};

use crate::enqueue::{find_unique_key, forget_keys, take_unique_key};
use crate::error::Result;
use crate::expiry;
use crate::lanes;
use crate::links;
use crate::locks::is_tenure;
use crate::request::Work;
use crate::row;
use crate::settle::give_up;
use crate::statements::SQL;

/// Applies the action to each of these jobs, and returns the outcomes in the same order. A job
/// whose state is not in `from` counts as not found.
pub(crate) fn act(
    work: &mut Work<'_>,
    jobs: &[JobId],
    from: &[JobState],
    action: JobAction,
) -> Result<Vec<Acted>> {
    let act = |job: &JobId| {
        let outcome = act_on(work, *job, from, action)?;
        Ok(Acted { job: *job, outcome })
    };
    jobs.iter().map(act).collect()
}

fn act_on(
    work: &Work<'_>,
    id: JobId,
    from: &[JobState],
    action: JobAction,
) -> Result<ActionOutcome> {
    let found = work
        .conn
        .prepare_cached(&SQL.read_state)?
        .query_row([id.as_bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?, row::flags(row, 2)?))
        })
        .optional()?;
    let Some((state, data, flags)) = found else {
        return Ok(ActionOutcome::NotFound);
    };
    let state = JobState::from_code(state)?;
    if !from.contains(&state) {
        return Ok(ActionOutcome::NotFound);
    }
    let to = match state.respond(action) {
        Response::Refuse => return Ok(ActionOutcome::Refused(state)),
        Response::RequestCancel => {
            work.conn
                .prepare_cached(&SQL.request_cancel)?
                .execute([id.as_bytes()])?;
            return Ok(ActionOutcome::CancelRequested);
        }
        Response::Change => {
            change(work, id, action)?;
            return Ok(ActionOutcome::Changed);
        }
        Response::Remove => {
            forget(work, &[(id, data, flags)])?;
            return Ok(ActionOutcome::Deleted);
        }
        Response::Become(to) => to,
    };
    if action == JobAction::Requeue {
        return requeue(work, id, data, flags);
    }
    let terminal = to.is_terminal();
    work.conn
        .prepare_cached(&SQL.change_state)?
        .execute(params![
            id.as_bytes(),
            state.code(),
            to.code(),
            terminal.then_some(work.now)
        ])?;
    if terminal {
        give_up(work, id, data, flags)?;
    }
    Ok(ActionOutcome::Became(to))
}

/// Applies an action that changes a value of the job. The job's state stays the same.
fn change(work: &Work<'_>, id: JobId, action: JobAction) -> Result<()> {
    let (sql, value) = match action {
        JobAction::Reschedule(due) => (&SQL.reschedule_job, due.resolve(work.now)),
        JobAction::SetPriority(priority) => (&SQL.set_priority, priority.level().into()),
        _ => return Ok(()),
    };
    work.conn
        .prepare_cached(sql)?
        .execute(params![id.as_bytes(), value])?;
    Ok(())
}

fn requeue(work: &Work<'_>, id: JobId, data: i64, flags: JobFlags) -> Result<ActionOutcome> {
    if flags.has_any(JobFlags::UNIQUE_KEY) {
        let key = work
            .conn
            .prepare_cached(&SQL.unique_key_of)?
            .query_row([data], |row| Ok(row::name(row, 0, "unique_key")))
            .optional()?;
        // If the key cannot be read, no other job can hold it.
        if let Some(Ok(Some(key))) = key {
            if let Some(holder) = find_unique_key(work.conn, &key)? {
                return Ok(ActionOutcome::KeyTaken(holder));
            }
            take_unique_key(work.conn, id, &key)?;
        }
    }
    let to = if flags.has_any(JobFlags::LANE) {
        lanes::enter_again(work.conn, id)?
    } else if flags.has_any(JobFlags::WAITS) {
        links::wait_again(work, id)?
    } else {
        JobState::Pending
    };
    work.conn
        .prepare_cached(&SQL.requeue_job)?
        .execute(params![id.as_bytes(), work.now, to.code()])?;
    if flags.has_any(JobFlags::EXPIRES) {
        expiry::remove(work.conn, id)?;
    }
    work.conn
        .prepare_cached(&SQL.clear_error)?
        .execute([id.as_bytes()])?;
    Ok(ActionOutcome::Became(to))
}

/// Deletes old finished jobs, and returns how many it deleted.
pub(crate) fn purge(work: &Work<'_>, request: &PurgeRequest) -> Result<Guarded<u64>> {
    if !is_tenure(work, request.guard.as_ref())? {
        return Ok(Guarded::Stale);
    }
    forget_keys(work, request.limit)?;
    let old = old_jobs(work, request, request.limit)?;
    forget(work, &old)?;
    Ok(Guarded::Done(old.len() as u64))
}

/// Deletes finished jobs with all their data, except their idempotency keys. Each entry contains
/// the job's id, the id of its row in `ratchet_job_data`, and its flags.
pub(crate) fn forget(work: &Work<'_>, jobs: &[(JobId, i64, JobFlags)]) -> Result<()> {
    let mut job = work.conn.prepare_cached(&SQL.purge_job)?;
    let mut notes = work.conn.prepare_cached(&SQL.purge_notes)?;
    let mut attempts = work.conn.prepare_cached(&SQL.purge_attempts)?;
    let mut tags = work.conn.prepare_cached(&SQL.purge_tags)?;
    let mut cold = work.conn.prepare_cached(&SQL.purge_data)?;
    for (id, data, flags) in jobs {
        for statement in [&mut job, &mut notes, &mut attempts, &mut tags] {
            statement.execute([id.as_bytes()])?;
        }
        cold.execute([data])?;
        if flags.has_any(JobFlags::LINKED) {
            links::forget(work.conn, *id)?;
        }
        if flags.has_any(JobFlags::EXPIRES) {
            expiry::remove(work.conn, *id)?;
        }
    }
    Ok(())
}

/// Returns the answer of a purge if the purge would change nothing. Returns `None` if there are
/// jobs or idempotency keys to delete. The function only reads, so it needs no write lock.
pub(crate) fn nothing_to_purge(
    work: &Work<'_>,
    request: &PurgeRequest,
) -> Result<Option<Guarded<u64>>> {
    if !is_tenure(work, request.guard.as_ref())? {
        return Ok(Some(Guarded::Stale));
    }
    let has_free_keys = work
        .conn
        .prepare_cached(&SQL.has_free_keys)?
        .query_row([work.now], |row| row.get::<_, bool>(0))?;
    let nothing = !has_free_keys && old_jobs(work, request, 1)?.is_empty();
    Ok(nothing.then_some(Guarded::Done(0)))
}

/// Returns up to `limit` old jobs. Each entry contains the job's id, the id of its row in
/// `ratchet_job_data`, and its flags.
fn old_jobs(
    work: &Work<'_>,
    request: &PurgeRequest,
    limit: usize,
) -> Result<Vec<(JobId, i64, JobFlags)>> {
    let cutoff = work.now.saturating_sub(duration_millis(request.older_than));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = work.conn.prepare_cached(&SQL.purge_due)?;
    let found = statement.query_map(params![request.state.code(), cutoff, limit], |row| {
        Ok((row::job_id(row, 0)?, row.get(1)?, row::flags(row, 2)?))
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}
