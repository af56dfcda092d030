//! Looking at jobs.

use ratchet_core::model::{
    Attempt, JobFilter, JobInput, JobOrder, JobPage, JobRecord, PageRequest,
};
use ratchet_core::{ClaimToken, JobId, JobState, Json};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::links;
use crate::request::Work;
use crate::row::{self, IN_BATCH, WAITS};
use crate::statements;

/// The jobs with these ids, each if it exists and can be shown.
pub(crate) fn get(work: &mut Work<'_>, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
    let mut statement = work.conn.prepare_cached(statements::GET_JOB)?;
    ids.iter()
        .map(|id| {
            let mut rows = statement.query([id.as_bytes()])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let route = work.routes.get(work.conn, row.get(2)?)?.cloned();
            let mut job = route.map(|route| row::job_record(row, route));
            if let Some(Ok(job)) = &mut job {
                let flags: i64 = row.get(28)?;
                if flags & (WAITS | IN_BATCH) != 0 {
                    links::show(work.conn, job)?;
                }
            }
            if !matches!(job, Some(Ok(_))) {
                tracing::warn!(job = %id, "a stored job cannot be read");
            }
            Ok(job.and_then(Result::ok))
        })
        .collect()
}

/// One page of the jobs that match.
pub(crate) fn list(work: &mut Work<'_>, filter: &JobFilter, page: &PageRequest) -> Result<JobPage> {
    let states = states_of(filter);
    // One more than the page has, to know whether there is another page.
    let ids = selected_ids(work, filter, &states, page, page.limit + 1)?;
    let next = (ids.len() > page.limit).then(|| ids[page.limit - 1]);
    let shown = &ids[..ids.len().min(page.limit)];
    let jobs = get(work, shown)?.into_iter().flatten().collect();
    Ok(JobPage { jobs, next })
}

/// The states a filter lets through.
pub(crate) fn states_of(filter: &JobFilter) -> Vec<JobState> {
    if filter.states.is_empty() {
        JobState::ALL.to_vec()
    } else {
        filter.states.clone()
    }
}

/// The first `limit` ids of the page, of jobs in these states that match the rest of the filter.
pub(crate) fn selected_ids(
    work: &mut Work<'_>,
    filter: &JobFilter,
    states: &[JobState],
    page: &PageRequest,
    limit: usize,
) -> Result<Vec<JobId>> {
    let any_route = filter.queue.is_none() && filter.kind.is_none();
    let routes = work.routes.matching(work.conn, |route| {
        let queue = filter
            .queue
            .as_ref()
            .is_none_or(|queue| *queue == route.queue);
        queue && filter.kind.as_ref().is_none_or(|kind| *kind == route.kind)
    })?;
    if states.is_empty() || (routes.is_none() && !any_route) {
        return Ok(Vec::new());
    }
    let routes = routes.filter(|_| !any_route);
    let mask = states
        .iter()
        .fold(0_i64, |mask, state| mask | 1 << state.code());
    let rare = states
        .iter()
        .all(|state| matches!(state, JobState::Failed | JobState::Cancelled));
    let beginning = match page.order {
        JobOrder::OldestFirst => &[][..],
        JobOrder::NewestFirst => &PAST_EVERY_ID[..],
    };
    let after = page.after.as_ref().map_or(beginning, |id| id.as_bytes());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    if let Some(batch) = &filter.batch {
        let sql = match page.order {
            JobOrder::OldestFirst => statements::LIST_BATCH_OLDEST,
            JobOrder::NewestFirst => statements::LIST_BATCH_NEWEST,
        };
        let mut statement = work.conn.prepare_cached(sql)?;
        let of_batch = params![mask, routes, after, limit, batch.as_bytes()];
        let ids = statement.query_map(of_batch, |row| row::job_id(row, 0))?;
        return Ok(ids.collect::<rusqlite::Result<_>>()?);
    }
    let sql = match (page.order, rare) {
        (JobOrder::OldestFirst, false) => statements::LIST_OLDEST,
        (JobOrder::OldestFirst, true) => statements::LIST_ENDED_OLDEST,
        (JobOrder::NewestFirst, false) => statements::LIST_NEWEST,
        (JobOrder::NewestFirst, true) => statements::LIST_ENDED_NEWEST,
    };
    let mut statement = work.conn.prepare_cached(sql)?;
    let ids = statement.query_map(params![mask, routes, after, limit], |row| {
        row::job_id(row, 0)
    })?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// Sorts behind all ids.
const PAST_EVERY_ID: [u8; 17] = [0xff; 17];

/// The inputs of the claims that still hold.
pub(crate) fn load_inputs(work: &Work<'_>, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
    let mut statement = work.conn.prepare_cached(statements::LOAD_INPUT)?;
    tokens
        .iter()
        .map(|token| {
            let Ok(seq) = i64::try_from(token.seq) else {
                return Ok(None);
            };
            let input = statement
                .query_row(params![token.job.as_bytes(), seq], |row| {
                    Ok(JobInput {
                        payload: row::json(row, 0).unwrap_or_else(|| Json::from_stored("missing")),
                        checkpoint: row::json(row, 1),
                    })
                })
                .optional()?;
            Ok(input)
        })
        .collect()
}

/// The ended claims of a job.
pub(crate) fn history(work: &Work<'_>, job: JobId) -> Result<Vec<Attempt>> {
    let mut statement = work.conn.prepare_cached(statements::HISTORY)?;
    let mut rows = statement.query([job.as_bytes()])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        match row::attempt(row) {
            Ok(attempt) => attempts.push(attempt),
            Err(error) => tracing::warn!(%job, %error, "an attempt cannot be read"),
        }
    }
    Ok(attempts)
}
