//! Stores new jobs.

use ratchet_core::model::{
    EnqueuePlan, Enqueued, FairKey, HolderChange, JobFlags, KeyHolder, NewJob, TakenKeys,
    payload_version_to_stored,
};
use ratchet_core::time::{duration_millis, to_millis};
use ratchet_core::{JobId, JobState, Name, TraceContext};
use rusqlite::{CachedStatement, OptionalExtension, params};

use crate::error::Result;
use crate::expiry;
use crate::fair::Turned;
use crate::lanes;
use crate::links;
use crate::permits;
use crate::request::Work;
use crate::row;
use crate::statements::{Connection, SQL};

/// Stores the jobs of one call inside a transaction. After a failure, the caller must roll back the
/// transaction.
pub(crate) fn enqueue(work: &mut Work<'_>, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
    permits::require(work, jobs)?;
    let last_data = work.conn.prepare_cached(&SQL.last_data)?;
    let first_data = { last_data }.query_row([], |row| row.get::<_, i64>(0))? + 1;
    let mut insert = Insert {
        hot: work.conn.prepare_cached(&SQL.enqueue_job)?,
        cold: work.conn.prepare_cached(&SQL.enqueue_data)?,
        next_data: first_data,
    };
    let plan = plan(work, jobs)?;
    for change in &plan.holders {
        change_holder(work, change)?;
    }
    let mut new = Vec::new();
    for place in plan.new {
        let job = &plan.jobs[place];
        if enqueue_one(work, &mut insert, job)? && job.spec().is_linked() {
            new.push(place);
        }
    }
    let appended = insert.next_data - first_data;
    drop(insert);
    work.appended += appended;
    if !new.is_empty() {
        links::link(work, &plan.jobs, &plan.answers, &new)?;
    }
    Ok(plan.answers)
}

/// The prepared statements that store a job, used for all jobs of a call.
struct Insert<'a> {
    hot: CachedStatement<'a>,
    cold: CachedStatement<'a>,
    /// Id of the next row of `ratchet_job_data`.
    next_data: i64,
}

/// Looks up the ids and keys of the jobs, and decides what becomes of the jobs. Without keys, all
/// jobs count as new, and the insert skips those that are stored.
fn plan<'j>(work: &Work<'_>, jobs: &'j [NewJob]) -> Result<EnqueuePlan<'j>> {
    let conn = work.conn;
    let mut taken = TakenKeys::default();
    if jobs.iter().any(|job| job.spec().has_keys()) {
        let mut exists = conn.prepare_cached(&SQL.job_exists)?;
        for job in jobs {
            if exists.query_row([job.id().as_bytes()], |row| row.get(0))? {
                taken.stored(job.id());
            }
            if let Some(key) = &job.spec().idempotency_key
                && let Some(first) = find_used(work, key)?
            {
                taken.idempotency_key(key.as_str(), first);
            }
            if let Some(key) = &job.spec().unique_key
                && let Some(holder) = find_unique_key(conn, key)?
            {
                taken.unique_key(key.as_str(), holder);
            }
        }
    }
    for job in taken.contested(jobs) {
        let mut find = conn.prepare_cached(&SQL.find_holder)?;
        let found = find.query_row([job.as_bytes()], |row| {
            let kind = row::name(row, 1, "kind");
            Ok((row.get::<_, i64>(0)?, kind, row.get(2)?, row.get(3)?))
        });
        if let Some((state, Ok(Some(kind)), run_at, created_at)) = found.optional()? {
            let state = JobState::from_code(state)?;
            let holder = KeyHolder::new(job, state, kind, run_at, created_at);
            taken.holder(holder);
        }
    }
    Ok(taken.resolve(jobs, work.now))
}

/// Changes the job that has the unique key of a new job. There is only one writer, so the job is
/// still as it was read.
fn change_holder(work: &Work<'_>, change: &HolderChange) -> Result<()> {
    let conn = work.conn;
    let job = change.job();
    let id = job.as_bytes();
    let mut data = conn.prepare_cached(&SQL.find_holder)?;
    let (data, flags, route, key): (i64, _, _, _) = data.query_row([id], |row| {
        let key = row.get(7).unwrap_or_default();
        Ok((row.get(4)?, row::flags(row, 5)?, row.get(6)?, key))
    })?;
    work.note_place(route, key);
    match change {
        HolderChange::Replace {
            payload,
            payload_version,
            run_at,
            expires_at,
            ..
        } => {
            let version = payload_version_to_stored(*payload_version);
            conn.prepare_cached(&SQL.replace_payload)?.execute(params![
                data,
                payload.as_str(),
                version
            ])?;
            conn.prepare_cached(&SQL.clear_notes)?.execute([id])?;
            conn.prepare_cached(&SQL.reschedule_job)?
                .execute(params![id, run_at])?;
            expiry::replace(work, job, flags, *expires_at)?;
        }
        HolderChange::GiveUp { cancel, .. } => {
            conn.prepare_cached(&SQL.free_unique_key)?
                .execute(params![data, id])?;
            conn.prepare_cached(&SQL.drop_unique_key)?.execute([data])?;
            conn.prepare_cached(&SQL.drop_key_flag)?.execute([id])?;
            if *cancel {
                conn.prepare_cached(&SQL.request_cancel)?.execute([id])?;
            }
        }
    }
    Ok(())
}

/// Stores a new job, unless it is already stored. Returns whether this call stored the job.
fn enqueue_one(work: &mut Work<'_>, insert: &mut Insert<'_>, job: &NewJob) -> Result<bool> {
    let (id, spec) = (job.id(), job.spec());
    let fair = spec.fair_key.as_ref();
    let place = work.routes.place(work.conn, &spec.route, fair.is_some())?;
    let route = place.id;
    let queue = spec.route.queue.as_str();
    let lane = spec.lane.as_ref().map(Name::as_str);
    let state = match lane {
        _ if spec.waits() => JobState::Blocked,
        Some(lane) => lanes::state_of_next(work.conn, queue, lane)?,
        None => JobState::Pending,
    };
    let due = job.due().resolve(work.now);
    let turn = match spec.due_fair_key(state, due, work.now) {
        Some(key) => {
            let (name, level) = (key.name().as_str(), spec.priority.level());
            let job = Turned {
                route,
                level,
                key: name,
                cost: key.cost(),
            };
            Some(job.turn(work, due)?)
        }
        None => None,
    };
    let stored = insert.hot.execute(params![
        id.as_bytes(),
        route,
        spec.priority.level(),
        due,
        insert.next_data,
        JobFlags::of_new(job).bits(),
        work.now,
        state.code(),
        fair.map(|key| key.name().as_str()),
        fair.map(FairKey::cost),
        turn,
        place.shared.then_some(queue),
    ])?;
    if stored == 0 {
        return Ok(false);
    }
    let retry = spec.retry.to_stored()?;
    let origin = spec.recurring.as_ref();
    insert.cold.execute(params![
        insert.next_data,
        spec.payload.as_str(),
        retry,
        spec.timeout.map(duration_millis),
        spec.stall_timeout.map(duration_millis),
        spec.unique_key.as_ref().map(Name::as_str),
        spec.idempotency_key.as_ref().map(Name::as_str),
        lane,
        spec.trace.as_ref().map(TraceContext::traceparent),
        spec.trace.as_ref().and_then(TraceContext::tracestate),
        origin.map(|origin| origin.name.as_str()),
        origin.and_then(|origin| origin.slot).map(to_millis),
        payload_version_to_stored(spec.payload_version),
    ])?;
    insert.next_data += 1;
    if let Some(lane) = lane {
        lanes::enter(work.conn, id, queue, lane)?;
    }
    if spec.has_keys() {
        take_keys(work, job)?;
    }
    expiry::add(work, job)?;
    for tag in &spec.tags {
        work.conn
            .prepare_cached(&SQL.tag_job)?
            .execute(params![tag.as_str(), id.as_bytes()])?;
    }
    Ok(true)
}

/// Returns the job that used an idempotency key, unless the key is free.
fn find_used(work: &Work<'_>, key: &Name) -> Result<Option<JobId>> {
    let found = work
        .conn
        .prepare_cached(&SQL.find_idempotency_key)?
        .query_row(params![key.as_str(), work.now], |row| {
            row.get(0).map(JobId::from_bytes)
        })
        .optional()?;
    Ok(found)
}

/// Returns the unfinished job that holds the unique key, if any.
pub(crate) fn find_unique_key(conn: Connection<'_>, key: &Name) -> Result<Option<JobId>> {
    let found = conn
        .prepare_cached(&SQL.find_unique_key)?
        .query_row([key.as_str()], |row| row.get(0).map(JobId::from_bytes))
        .optional()?;
    Ok(found)
}

/// Deletes up to `limit` idempotency keys that are free again.
pub(crate) fn forget_keys(work: &Work<'_>, limit: usize) -> Result<()> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    work.conn
        .prepare_cached(&SQL.forget_keys)?
        .execute([work.now, limit])?;
    Ok(())
}

fn take_keys(work: &Work<'_>, job: &NewJob) -> Result<()> {
    let (id, spec) = (job.id(), job.spec());
    if let Some(key) = &spec.idempotency_key {
        work.conn
            .prepare_cached(&SQL.keep_idempotency_key)?
            .execute(params![
                key.as_str(),
                id.as_bytes(),
                work.now,
                job.key_expiry(work.now)
            ])?;
    }
    if let Some(key) = &spec.unique_key {
        take_unique_key(work.conn, id, key)?;
    }
    Ok(())
}

pub(crate) fn take_unique_key(conn: Connection<'_>, id: JobId, key: &Name) -> Result<()> {
    conn.prepare_cached(&SQL.take_unique_key)?
        .execute(params![key.as_str(), id.as_bytes()])?;
    Ok(())
}
