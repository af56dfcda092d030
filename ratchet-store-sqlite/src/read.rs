//! Reads jobs.

use ratchet_core::model::{
    Among, Attempt, Detail, JobFilter, JobFlags, JobInput, JobOrder, JobRecord, PageRequest,
    StateCounts,
};
use ratchet_core::time::to_millis;
use ratchet_core::{ClaimToken, JobId, JobState, Json, Name, NodeId};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::expiry;
use crate::links;
use crate::request::Work;
use crate::routes::json_of;
use crate::row;
use crate::statements::SQL;

/// Returns the job for each of these ids. An entry is `None` if the job does not exist or cannot be
/// read.
pub(crate) fn get(
    work: &mut Work<'_>,
    ids: &[JobId],
    detail: Detail,
) -> Result<Vec<Option<JobRecord>>> {
    let mut statement = work.conn.prepare_cached(&SQL.get_job)?;
    ids.iter()
        .map(|id| {
            let mut rows = statement.query(params![id.as_bytes(), detail == Detail::Whole])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let queue = row::queue(row, 35);
            let route = work.routes.get(work.conn, row.get(2)?, queue)?;
            let mut job = route.map(|route| row::job_record(row, route));
            if let Some(Ok(found)) = &mut job {
                found.expires_at = expiry::of(work.conn, *id, row::flags(row, 32)?)?;
            }
            if let Some(Ok(found)) = &mut job
                && row::flags(row, 32)?.has_any(JobFlags::LINKED)
            {
                links::show(work.conn, found)?;
                // Links are small, but the payload of a signal may not be.
                if detail == Detail::Outline {
                    job = job.map(|job| job.map(JobRecord::outline));
                }
            }
            if !matches!(job, Some(Ok(_))) {
                tracing::warn!(job = %id, "a stored job cannot be read");
            }
            Ok(job.and_then(Result::ok))
        })
        .collect()
}

/// Returns the ids of the jobs that match the filter, for one page.
pub(crate) fn select(
    work: &mut Work<'_>,
    filter: &JobFilter,
    page: &PageRequest,
) -> Result<Vec<JobId>> {
    let Some(narrowed) = Narrowed::by(work, filter)? else {
        return Ok(Vec::new());
    };
    let among = Among::of(filter);
    let [oldest, newest] = match among {
        Among::Batch => [&SQL.list_batch_oldest, &SQL.list_batch_newest],
        Among::Tagged => [&SQL.list_tagged_oldest, &SQL.list_tagged_newest],
        Among::Ended => [&SQL.list_ended_oldest, &SQL.list_ended_newest],
        Among::Unfinished => [&SQL.list_unfinished_oldest, &SQL.list_unfinished_newest],
        _ => [&SQL.list_oldest, &SQL.list_newest],
    };
    let in_order = |oldest, newest| match page.order {
        JobOrder::OldestFirst => oldest,
        JobOrder::NewestFirst => newest,
    };
    let (after, rows) = (
        beginning(page),
        i64::try_from(page.limit).unwrap_or(i64::MAX),
    );
    let Narrowed { mask, routes } = narrowed;
    let queue = filter.queue.as_ref().map(Name::as_str);
    let id = |row: &rusqlite::Row<'_>| row::job_id(row, 0);
    if among == Among::Unfinished {
        let sql = in_order(&SQL.list_front_oldest, &SQL.list_front_newest);
        let mut front = work.conn.prepare_cached(sql)?;
        let look_at = i64::try_from(Among::front(page.limit)).unwrap_or(i64::MAX);
        let found = front.query_map(params![mask, routes, after, rows, look_at, queue], id)?;
        let found = found.collect::<rusqlite::Result<Vec<JobId>>>()?;
        if found.len() == page.limit {
            return Ok(found);
        }
    }
    let mut statement = work.conn.prepare_cached(in_order(oldest, newest))?;
    let tag = filter.tag.as_ref().map(Name::as_str);
    let ids: rusqlite::Result<_> = match (&filter.batch, tag) {
        (None, None) => statement
            .query_map(params![mask, routes, after, rows, queue], id)?
            .collect(),
        (None, Some(tag)) => statement
            .query_map(params![mask, routes, after, rows, tag, queue], id)?
            .collect(),
        (Some(batch), tag) => statement
            .query_map(
                params![mask, routes, after, rows, batch.as_bytes(), tag, queue],
                id,
            )?
            .collect(),
    };
    Ok(ids?)
}

/// Counts the jobs that match the filter, for each state.
pub(crate) fn count(work: &mut Work<'_>, filter: &JobFilter) -> Result<StateCounts> {
    let mut counts = StateCounts::new();
    let Some(narrowed) = Narrowed::by(work, filter)? else {
        return Ok(counts);
    };
    let Narrowed { mask, routes } = narrowed;
    let tag = filter.tag.as_ref().map(Name::as_str);
    let queue = filter.queue.as_ref().map(Name::as_str);
    let mut statement = work.conn.prepare_cached(match (&filter.batch, tag) {
        (Some(_), _) => &SQL.count_batch,
        (None, Some(_)) => &SQL.count_tagged,
        (None, None) => &SQL.count_matching,
    })?;
    let mut rows = match (&filter.batch, tag) {
        (None, None) => statement.query(params![mask, routes, queue])?,
        (None, Some(tag)) => statement.query(params![mask, routes, tag, queue])?,
        (Some(batch), tag) => {
            statement.query(params![mask, routes, batch.as_bytes(), tag, queue])?
        }
    };
    while let Some(row) = rows.next()? {
        let state = JobState::from_code(row.get(0)?)?;
        counts.insert(state, row::number(row, 1, "count")?);
    }
    Ok(counts)
}

/// The states and routes that a filter selects, in the form of statement parameters.
struct Narrowed {
    /// Bit mask of the wanted states, see [`mask_of`].
    mask: i64,
    /// Ids of the wanted routes, as a JSON array. `None` means all routes.
    routes: Option<String>,
}

impl Narrowed {
    /// Converts the filter. Returns `None` if no stored route matches the filter.
    fn by(work: &mut Work<'_>, filter: &JobFilter) -> Result<Option<Self>> {
        let routes = work.routes.known(work.conn)?.filtered(filter);
        if routes.as_ref().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        Ok(Some(Self {
            mask: mask_of(&filter.wanted_states()),
            routes: routes.map(|ids| json_of(ids.into_iter())),
        }))
    }
}

/// Returns a bit mask of these states. The bit at position n stands for the state with code n.
pub(crate) fn mask_of(states: &[JobState]) -> i64 {
    let bit = |mask, state: &JobState| mask | 1 << state.code();
    states.iter().fold(0, bit)
}

/// Returns the id after which the page begins. For the first page, returns a value that sorts
/// before every id, or after every id if the newest jobs come first.
pub(crate) fn beginning(page: &PageRequest) -> &[u8] {
    match (&page.after, page.order) {
        (Some(after), _) => after.as_bytes(),
        (None, JobOrder::OldestFirst) => &[],
        (None, JobOrder::NewestFirst) => &PAST_EVERY_ID,
    }
}

/// A value that sorts after every id.
const PAST_EVERY_ID: [u8; 17] = [0xff; 17];

/// Returns the input of the job for each token whose claim still runs, and `None` for every other
/// token.
pub(crate) fn load_inputs(work: &Work<'_>, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
    let mut statement = work.conn.prepare_cached(&SQL.load_input)?;
    tokens
        .iter()
        .map(|token| {
            let Ok(seq) = i64::try_from(token.seq) else {
                return Ok(None);
            };
            let node = token.node.as_ref().map(NodeId::as_bytes);
            let claimed_at = to_millis(token.claimed_at);
            let input = statement
                .query_row(
                    params![token.job.as_bytes(), seq, node, claimed_at],
                    |row| {
                        Ok(JobInput {
                            payload: row::json(row, 0)
                                .unwrap_or_else(|| Json::from_stored("missing")),
                            checkpoint: row::json(row, 1),
                        })
                    },
                )
                .optional()?;
            Ok(input)
        })
        .collect()
}

/// Returns the ended claims of a job that can be read.
pub(crate) fn history(work: &Work<'_>, job: JobId) -> Result<Vec<Attempt>> {
    let mut statement = work.conn.prepare_cached(&SQL.history)?;
    let mut rows = statement.query([job.as_bytes()])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        match row::attempt(row) {
            Ok(attempt) => attempts.push(attempt),
            Err(error) => tracing::warn!(%job, %error, "skipped a stored attempt that cannot be \
                read"),
        }
    }
    Ok(attempts)
}
