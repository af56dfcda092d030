//! [`SignalStore`] on SQLite.

use async_trait::async_trait;
use ratchet_core::links::is_too_late;
use ratchet_core::model::{Delivered, Signal, SignalTarget};
use ratchet_core::store::SignalStore;
use ratchet_core::{JobId, JobState, Json, Name, Result};
use rusqlite::{OptionalExtension, params};

use crate::error::Result as Inner;
use crate::links;
use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::settle::give_up;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl SignalStore for SqliteStore {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        let signal = signal.clone();
        self.write("deliver", Urgency::Normal, move |work| {
            match &signal.target {
                SignalTarget::Key(key) => deliver_to_all(work, key, &signal.payload),
                SignalTarget::Job(job) => deliver_to(work, *job, &signal.payload),
                // A kind of target that this version does not know matches no job.
                _ => Ok(Delivered::NotFound),
            }
        })
        .await
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        self.write_unless(
            "expire",
            |work| Ok(overdue(work, 1)?.is_empty().then(Vec::new)),
            move |work| expire(work, limit),
        )
        .await
    }
}

fn deliver_to_all(work: &Work<'_>, key: &Name, payload: &Json) -> Inner<Delivered> {
    let waiting = work
        .conn
        .prepare_cached(&SQL.waiting_signals)?
        .query_map(params![key.as_str(), work.now], |row| row::job_id(row, 0))?
        .collect::<rusqlite::Result<Vec<JobId>>>()?;
    if waiting.is_empty() {
        let had: bool = work
            .conn
            .prepare_cached(&SQL.signal_was_had)?
            .query_row([key.as_str()], |row| row.get(0))?;
        return Ok(if had {
            Delivered::Already
        } else {
            Delivered::NotFound
        });
    }
    for job in &waiting {
        take(work, *job, payload)?;
    }
    Ok(Delivered::To(waiting))
}

fn deliver_to(work: &Work<'_>, job: JobId, payload: &Json) -> Inner<Delivered> {
    let state = work
        .conn
        .prepare_cached(&SQL.read_state)?
        .query_row([job.as_bytes()], |row| row.get(0))
        .optional()?;
    let Some(state) = state else {
        return Ok(Delivered::NotFound);
    };
    match links::signal_of(work.conn, job)? {
        Some(signal) if signal.record.delivered.is_some() => Ok(Delivered::Already),
        Some(signal) if signal.is_open() && !is_too_late(signal.deadline, work.now) => {
            take(work, job, payload)?;
            Ok(Delivered::To(vec![job]))
        }
        _ => Ok(Delivered::NotWaiting(JobState::from_code(state)?)),
    }
}

/// Delivers a signal to a job that waits for it. If the job has no open links, makes the job
/// claimable.
fn take(work: &Work<'_>, job: JobId, payload: &Json) -> Inner<()> {
    work.conn
        .prepare_cached(&SQL.take_signal)?
        .execute(params![job.as_bytes(), work.now, payload.as_str()])?;
    if !links::has_open_links(work.conn, job)? {
        links::release(work, job)?;
    }
    Ok(())
}

fn overdue(work: &Work<'_>, limit: usize) -> Inner<Vec<JobId>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut find = work.conn.prepare_cached(&SQL.overdue_signals)?;
    let found = find.query_map([work.now, limit], |row| row::job_id(row, 0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

fn expire(work: &Work<'_>, limit: usize) -> Inner<Vec<JobId>> {
    let mut overdue = overdue(work, limit)?;
    overdue.sort_unstable();
    let mut failed = Vec::with_capacity(overdue.len());
    for id in overdue {
        let error = match links::signal_of(work.conn, id)?.map(|signal| signal.wait) {
            Some(Ok(wait)) => wait.missed(),
            Some(Err(problem)) => problem.of_stored_job(),
            None => continue,
        };
        let found = work
            .conn
            .prepare_cached(&SQL.read_state)?
            .query_row([id.as_bytes()], |row| {
                Ok((row.get(1)?, row::flags(row, 2)?))
            })
            .optional()?;
        let Some((data, flags)) = found else {
            // The job of this signal is missing. The signal is deleted, so that it is not found
            // again and does not block others.
            work.conn
                .prepare_cached(&SQL.purge_signal)?
                .execute([id.as_bytes()])?;
            continue;
        };
        work.conn
            .prepare_cached(&SQL.fail_waiting)?
            .execute(params![id.as_bytes(), work.now])?;
        work.conn
            .prepare_cached(&SQL.keep_error)?
            .execute(params![id.as_bytes(), error])?;
        give_up(work, id, data, flags)?;
        failed.push(id);
    }
    Ok(failed)
}
