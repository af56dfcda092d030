//! Looking at jobs.

use ratchet_core::model::{
    Attempt, JobFilter, JobInput, JobOrder, JobPage, JobRecord, PageRequest, StateCounts,
};
use ratchet_core::{ClaimToken, JobId, JobState, Json, Name};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::links;
use crate::request::Work;
use crate::routes::json_of;
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
                let flags: i64 = row.get(32)?;
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
    let Some(narrowed) = Narrowed::by(work, filter, states)? else {
        return Ok(Vec::new());
    };
    let rare = states
        .iter()
        .all(|state| matches!(state, JobState::Failed | JobState::Cancelled));
    let sql = match (page.order, filter.tag.is_some(), rare) {
        (JobOrder::OldestFirst, _, _) if filter.batch.is_some() => statements::LIST_BATCH_OLDEST,
        (JobOrder::NewestFirst, _, _) if filter.batch.is_some() => statements::LIST_BATCH_NEWEST,
        (JobOrder::OldestFirst, true, _) => statements::LIST_TAGGED_OLDEST,
        (JobOrder::NewestFirst, true, _) => statements::LIST_TAGGED_NEWEST,
        (JobOrder::OldestFirst, false, false) => statements::LIST_OLDEST,
        (JobOrder::OldestFirst, false, true) => statements::LIST_ENDED_OLDEST,
        (JobOrder::NewestFirst, false, false) => statements::LIST_NEWEST,
        (JobOrder::NewestFirst, false, true) => statements::LIST_ENDED_NEWEST,
    };
    let (after, limit) = (beginning(page), i64::try_from(limit).unwrap_or(i64::MAX));
    let Narrowed { mask, routes } = narrowed;
    let mut statement = work.conn.prepare_cached(sql)?;
    let id = |row: &rusqlite::Row<'_>| row::job_id(row, 0);
    let tag = filter.tag.as_ref().map(Name::as_str);
    let ids: rusqlite::Result<_> = match (&filter.batch, tag) {
        (None, None) => statement
            .query_map(params![mask, routes, after, limit], id)?
            .collect(),
        (None, Some(tag)) => statement
            .query_map(params![mask, routes, after, limit, tag], id)?
            .collect(),
        (Some(batch), tag) => statement
            .query_map(
                params![mask, routes, after, limit, batch.as_bytes(), tag],
                id,
            )?
            .collect(),
    };
    Ok(ids?)
}

/// How many jobs of each state match.
pub(crate) fn count(work: &mut Work<'_>, filter: &JobFilter) -> Result<StateCounts> {
    let mut counts = StateCounts::new();
    let Some(narrowed) = Narrowed::by(work, filter, &states_of(filter))? else {
        return Ok(counts);
    };
    let Narrowed { mask, routes } = narrowed;
    let tag = filter.tag.as_ref().map(Name::as_str);
    let mut statement = work.conn.prepare_cached(match (&filter.batch, tag) {
        (Some(_), _) => statements::COUNT_BATCH,
        (None, Some(_)) => statements::COUNT_TAGGED,
        (None, None) => statements::COUNT_MATCHING,
    })?;
    let mut rows = match (&filter.batch, tag) {
        (None, None) => statement.query(params![mask, routes])?,
        (None, Some(tag)) => statement.query(params![mask, routes, tag])?,
        (Some(batch), tag) => statement.query(params![mask, routes, batch.as_bytes(), tag])?,
    };
    while let Some(row) = rows.next()? {
        let state = JobState::from_code(row.get(0)?)?;
        counts.insert(state, row::number(row, 1, "count")?);
    }
    Ok(counts)
}

/// A filter as statements take it, its tag aside.
struct Narrowed {
    /// A bit for each state.
    mask: i64,
    /// The routes, as a JSON array; none: any.
    routes: Option<String>,
}

impl Narrowed {
    /// None if nothing can match.
    fn by(work: &mut Work<'_>, filter: &JobFilter, states: &[JobState]) -> Result<Option<Self>> {
        let any_route = filter.queue.is_none() && filter.kind.is_none();
        let routes = work.routes.matching(work.conn, |route| {
            let queue = filter.queue.as_ref();
            let queue = queue.is_none_or(|queue| *queue == route.queue);
            queue && filter.kind.as_ref().is_none_or(|kind| *kind == route.kind)
        })?;
        if states.is_empty() || (routes.is_empty() && !any_route) {
            return Ok(None);
        }
        let ids = routes.into_iter().map(|(id, _)| id);
        Ok(Some(Self {
            mask: mask_of(states),
            routes: (!any_route).then(|| json_of(ids)),
        }))
    }
}

/// A bit for each of these states.
pub(crate) fn mask_of(states: &[JobState]) -> i64 {
    let bit = |mask, state: &JobState| mask | 1 << state.code();
    states.iter().fold(0, bit)
}

/// What the page begins behind.
pub(crate) fn beginning(page: &PageRequest) -> &[u8] {
    match (&page.after, page.order) {
        (Some(after), _) => after.as_bytes(),
        (None, JobOrder::OldestFirst) => &[],
        (None, JobOrder::NewestFirst) => &PAST_EVERY_ID,
    }
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
