//! Claims due jobs in exact claim order, from an index.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use ratchet_core::fair::{Places, parked};
use ratchet_core::model::{AttemptOutcome, Claim, ClaimRequest, ClaimedJob, JobFlags, JobInput};
use ratchet_core::permit::Budget;
use ratchet_core::priority::{Choice, merge_decided};
use ratchet_core::time::from_millis;
use ratchet_core::{
    ClaimToken, InvalidInput, JobId, Json, Name, Priority, RetryPolicy, Route, Selection,
    StoreErrorKind,
};
use rusqlite::{CachedStatement, OptionalExtension, Row, Rows, params};

use crate::error::{Failure, Result};
use crate::expiry;
use crate::fair;
use crate::fair_limits;
use crate::permits;
use crate::request::Work;
use crate::routes::json_of;
use crate::row;
use crate::settle::{Ended, end_claim};
use crate::statements::{Connection, SQL, Statement};

/// Returns whether a claim would write nothing. The function only reads, so it needs no write lock.
pub(crate) fn is_idle(work: &mut Work<'_>, request: &ClaimRequest) -> Result<bool> {
    if !work.routes.known(work.conn)?.markers(request).is_empty() {
        return Ok(false);
    }
    if fair_limits::has_freed(work, request)? {
        return Ok(false);
    }
    let wanted = Wanted::of(work, request)?;
    for search in wanted.searches() {
        let mut statement = work.conn.prepare_cached(search.statement)?;
        let mut rows = search.rows(&mut statement, work.now, request)?;
        if rows.next()?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Claims up to `request.limit` due jobs, in claim order.
pub(crate) fn claim(work: &mut Work<'_>, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
    let markers = work.routes.known(work.conn)?.markers(request);
    for marker in markers {
        work.routes.add(work.conn, marker, false)?;
    }
    fair_limits::wake_parked(work, request)?;
    let mut claimed = Vec::new();
    // The loop runs more than once only if some jobs could not be read. Such jobs become failed, so
    // they are not found again.
    while claimed.len() < request.limit {
        let (chosen, places) = choose(work, request, request.limit - claimed.len())?;
        if chosen.is_empty() {
            break;
        }
        claimed.reserve_exact(chosen.len());
        let moved = take(work, request, (&chosen, &places), &mut claimed)?;
        if !moved {
            // Otherwise the loop would choose the same jobs forever, and hold the write lock.
            let text = "the claim index names jobs that are not pending; run REINDEX";
            return Err(Failure::new(StoreErrorKind::Corrupt, text));
        }
    }
    // Jobs with fair keys were chosen in another order.
    ClaimedJob::sort(&mut claimed, request.aging, work.now);
    Ok(claimed)
}

/// The routes from which a claim takes jobs.
struct Wanted {
    /// Ids of the routes of single queues, as a JSON array for the SQL function `json_each`. `None`
    /// if there are none.
    own: Option<String>,
    /// Ids of the shared routes, in the same way.
    shared: Option<String>,
    /// The queues whose jobs of the shared routes the claim takes.
    queues: Queues,
    /// Whether any of the routes is for jobs with a fair key.
    fair: bool,
    /// The routes of single queues, by id.
    routes: HashMap<i64, Route>,
    /// Number of free permits of each resource that jobs of these routes need.
    budget: Budget,
}

impl Wanted {
    /// Returns the routes that match the request. If jobs of a route need a permit and no such
    /// permit is free, omits the route.
    fn of(work: &mut Work<'_>, request: &ClaimRequest) -> Result<Self> {
        let known = work.routes.known(work.conn)?;
        let streams = known.streams(request);
        let budget = permits::budget(work.conn, streams.own.iter().map(|(_, route)| route))?;
        let mut routes = HashMap::new();
        for (id, route) in streams.own {
            if budget.rest(&route) != Some(0) {
                routes.insert(id, route);
            }
        }
        let mut ids: Vec<i64> = routes.keys().copied().collect();
        ids.sort_unstable();
        let json = |ids: Vec<i64>| (!ids.is_empty()).then(|| json_of(ids.into_iter()));
        Ok(Self {
            fair: ids.iter().any(|id| known.is_fair(*id)),
            own: json(ids),
            shared: json(streams.shared.into_iter().map(|(id, _)| id).collect()),
            queues: Queues::of(&streams.queues)?,
            routes,
            budget,
        })
    }

    /// Returns the searches for streams that have due jobs.
    fn searches(&self) -> impl Iterator<Item = Search<'_>> {
        let own = self.own.as_deref().map(|routes| Search {
            statement: &SQL.claim_streams,
            routes,
            queues: None,
        });
        let shared = self.shared.as_deref().map(|routes| match &self.queues {
            Queues::Only(queues) => Search {
                statement: &SQL.claim_queue_streams,
                routes,
                queues: Some(queues),
            },
            Queues::Except(queues) => Search {
                statement: &SQL.claim_shared_streams,
                routes,
                queues: Some(queues),
            },
        });
        own.into_iter().chain(shared)
    }
}

/// A selection of queues, as a JSON array for the SQL function `json_each`.
enum Queues {
    Only(String),
    Except(String),
}

impl Queues {
    fn of(selection: &Selection) -> Result<Self> {
        let json = |queues: &[Name]| {
            let queues: Vec<&str> = queues.iter().map(Name::as_str).collect();
            serde_json::to_string(&queues)
                .map_err(|error| InvalidInput::new("queue", error.to_string()))
        };
        Ok(match selection {
            Selection::All => Self::Except(json(&[])?),
            Selection::Except(queues) => Self::Except(json(queues)?),
            Selection::Only(queues) => Self::Only(json(queues)?),
        })
    }
}

/// A search for the streams of some routes that have due jobs.
struct Search<'a> {
    statement: &'static Statement,
    /// Ids of the routes, as a JSON array.
    routes: &'a str,
    /// The third parameter of the statement after the routes, if it has one.
    queues: Option<&'a str>,
}

impl Search<'_> {
    fn rows<'s>(
        &self,
        statement: &'s mut CachedStatement<'_>,
        now: i64,
        request: &ClaimRequest,
    ) -> Result<Rows<'s>> {
        let node = request.node.as_bytes();
        Ok(match self.queues {
            None => statement.query(params![self.routes, now, node])?,
            Some(queues) => statement.query(params![self.routes, now, node, queues])?,
        })
    }
}

/// Chooses up to `limit` jobs to claim, and returns them in claim order. Parks the jobs whose fair
/// keys are at their limits.
fn choose(
    work: &mut Work<'_>,
    request: &ClaimRequest,
    limit: usize,
) -> Result<(Vec<JobId>, Places)> {
    let wanted = Wanted::of(work, request)?;
    if let Some(own) = wanted.own.as_deref().filter(|_| wanted.fair) {
        fair::wake(work, own)?;
    }
    let mut routes: Vec<i64> = Vec::new();
    let mut streams = Vec::new();
    let limited = Limited::default();
    for search in wanted.searches() {
        let mut statement = work.conn.prepare_cached(search.statement)?;
        let mut rows = search.rows(&mut statement, work.now, request)?;
        while let Some(row) = rows.next()? {
            let (route, level) = (row.get(0)?, row.get(1)?);
            routes.push(route);
            let part = match (search.queues, &wanted.queues) {
                (None, _) => Part::Own,
                (Some(except), Queues::Except(_)) => Part::Except(except.to_owned()),
                (Some(_), Queues::Only(_)) => Part::Queue(row.get(4)?),
            };
            let has_limits = matches!(part, Part::Own) && row.get(5)?;
            // The first job of a stream of turns is not the one that is due first.
            let (last, read) = if matches!(part, Part::Own) && row.get(4)? {
                (Last::Turn(i64::MIN, String::new(), NO_JOB), VecDeque::new())
            } else {
                let head = (row.get(2)?, row::job_id(row, 3)?);
                (Last::Due(head.0, head.1), VecDeque::from([head]))
            };
            let stream = Stream {
                conn: work.conn,
                now: work.now,
                route,
                part,
                level,
                chunk: 0,
                last,
                read,
                ended: false,
                limited: has_limits.then_some(&limited),
            };
            streams.push((Priority::from_level(level)?, stream));
        }
    }
    // The first chunk of each stream is its share of the limit. If more of its jobs are needed,
    // later chunks are larger.
    let chunk = limit.div_ceil(streams.len().max(1)).max(16);
    for (_, stream) in &mut streams {
        stream.chunk = chunk;
    }
    let (conn, now) = (work.conn, work.now);
    let mut places = Places::new(wanted.budget);
    let decide = |stream: usize, id: JobId| {
        // Jobs of shared routes need no permit and have no fair key.
        let Some(route) = wanted.routes.get(&routes[stream]) else {
            return Ok(Choice::Take);
        };
        let key = limited.borrow().get(&id).map(|(key, _)| key.clone());
        let free = || match &key {
            None => Ok(None),
            Some(key) => fair_limits::free_places(work, &route.queue, key),
        };
        places.admit(id, route, key.as_ref(), free)
    };
    let chosen = merge_decided(streams, request.aging, now, limit, decide)?;
    let mut park = conn.prepare_cached(&SQL.give_turn)?;
    let limited = limited.borrow();
    for id in places.parked() {
        let run_at = limited.get(id).map_or(0, |(_, run_at)| *run_at);
        park.execute(params![id.as_bytes(), parked(run_at)])?;
    }
    Ok((chosen, places))
}

/// Fair key and due time of the jobs that were read, if any key has a limit.
type Limited = RefCell<HashMap<JobId, (Name, i64)>>;

/// An iterator over the due jobs of one route and priority, in the order in which claims take them.
/// It reads the jobs in chunks when they are needed.
struct Stream<'a> {
    conn: Connection<'a>,
    now: i64,
    route: i64,
    part: Part,
    level: i64,
    /// Number of jobs in the next chunk.
    chunk: usize,
    last: Last,
    read: VecDeque<(i64, JobId)>,
    ended: bool,
    /// Where to note the fair keys of the jobs that are read.
    limited: Option<&'a Limited>,
}

/// The jobs of a route that are in a stream.
enum Part {
    /// All jobs. The route belongs to one queue.
    Own,
    /// All jobs of a shared route, except those of paused queues and of these queues (a JSON
    /// array).
    Except(String),
    /// The jobs of one queue in a shared route.
    Queue(String),
}

/// The place of the last job that was read of a stream.
enum Last {
    /// Due time and id.
    Due(i64, JobId),
    /// Turn, fair key and id.
    Turn(i64, String, JobId),
}

/// An id before those of all jobs.
const NO_JOB: JobId = JobId::from_bytes([0; 16]);

impl Stream<'_> {
    fn read_on(&mut self) -> Result<()> {
        let (route, level) = (self.route, self.level);
        let chunk = i64::try_from(self.chunk).unwrap_or(i64::MAX);
        let mut statement;
        let mut rows = match &self.last {
            Last::Due(run_at, id) => {
                let (now, id) = (self.now, id.as_bytes());
                let (sql, queues) = match &self.part {
                    Part::Own => (&SQL.claim_due, None),
                    Part::Except(queues) => (&SQL.claim_shared_due, Some(queues)),
                    Part::Queue(queue) => (&SQL.claim_queue_due, Some(queue)),
                };
                statement = self.conn.prepare_cached(sql)?;
                match queues {
                    None => statement.query(params![route, level, now, run_at, id, chunk])?,
                    Some(queues) => {
                        statement.query(params![route, level, now, run_at, id, chunk, queues])?
                    }
                }
            }
            Last::Turn(turn, key, id) => {
                statement = self.conn.prepare_cached(&SQL.claim_turns)?;
                statement.query(params![route, level, turn, key, id.as_bytes(), chunk])?
            }
        };
        while let Some(row) = rows.next()? {
            let (run_at, id) = (row.get(0)?, row::job_id(row, 1)?);
            self.read.push_back((run_at, id));
            if let (Some(limited), Last::Turn(..)) = (self.limited, &self.last)
                && let Ok(Some(key)) = row::name(row, 3, "fair_key")
            {
                limited.borrow_mut().insert(id, (key, run_at));
            }
            self.last = match &self.last {
                Last::Due(..) => Last::Due(run_at, id),
                Last::Turn(..) => Last::Turn(row.get(2)?, row.get(3)?, id),
            };
        }
        self.ended = self.read.len() < self.chunk;
        self.chunk *= 2;
        Ok(())
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<(i64, JobId)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_empty()
            && !self.ended
            && let Err(failure) = self.read_on()
        {
            self.ended = true;
            return Some(Err(failure));
        }
        self.read.pop_front().map(Ok)
    }
}

/// Claims the chosen jobs for the node, and adds them to `claimed`. A job that cannot be read
/// becomes a dead letter instead. Returns whether any of the chosen jobs was still pending.
fn take(
    work: &mut Work<'_>,
    request: &ClaimRequest,
    (chosen, places): (&[JobId], &Places),
    claimed: &mut Vec<ClaimedJob>,
) -> Result<bool> {
    let mut read = work.conn.prepare_cached(&SQL.claim_read)?;
    let mut update = work.conn.prepare_cached(&SQL.claim_job)?;
    let mut moved = false;
    for id in chosen {
        let found = {
            let mut rows = read.query(params![id.as_bytes(), request.payloads])?;
            // The write lock was taken before the jobs were chosen, so a row is missing here only
            // if the index is damaged.
            let Some(row) = rows.next()? else {
                continue;
            };
            match decode(work, row, *id, request)? {
                Ok(job) => Ok((job, row::flags(row, 14)?)),
                Err(problem) => Err((problem, row.get(0)?, row.get(13)?, row::flags(row, 14)?)),
            }
        };
        moved = true;
        match found {
            Ok((mut job, flags)) => {
                update.execute(params![id.as_bytes(), request.node.as_bytes(), work.now])?;
                job.claim.limited = places.is_limited(*id);
                job.claim.expires_at = expiry::of(work.conn, *id, flags)?;
                if let Some(input) = &mut job.input
                    && job.claim.token.seq > 1
                {
                    input.checkpoint = checkpoint(work.conn, *id)?;
                }
                claimed.push(job);
            }
            Err((problem, claim_seq, data, flags)) => {
                let text = problem.of_stored_job();
                tracing::warn!(job = %id, error = text, "failed a job that cannot be read");
                if places.is_limited(*id) {
                    fair_limits::note_place_of(work, *id)?;
                }
                fail_unreadable(work, *id, claim_seq, data, flags, &text)?;
            }
        }
    }
    Ok(moved)
}

/// Reads a claimed job from a row of the statement `claim_read`. The inner error names a column
/// that cannot be read.
fn decode(
    work: &mut Work<'_>,
    row: &Row<'_>,
    id: JobId,
    request: &ClaimRequest,
) -> Result<Result<ClaimedJob, InvalidInput>> {
    let queue = row::queue(row, 17);
    let Some(route) = work.routes.get(work.conn, row.get(1)?, queue)? else {
        return Ok(Err(InvalidInput::new("route", "is missing")));
    };
    let read = || {
        let claim_seq: u64 = row::number(row, 0, "claim_seq")?;
        let _data: u64 = row::number(row, 6, "data")?;
        let mut claim = Claim::new(
            ClaimToken::new(id, claim_seq + 1, Some(request.node), from_millis(work.now)),
            route,
            Priority::from_level(row::number(row, 2, "priority")?)?,
            from_millis(row::number(row, 3, "run_at")?),
        );
        claim.attempts = row::number(row, 4, "attempts")?;
        claim.crash_count = row::number(row, 5, "crash_count")?;
        claim.payload_version = row::payload_version(row, 16)?;
        claim.retry = RetryPolicy::from_stored(row::text(row, 7, "retry")?)?;
        claim.timeout = row::duration(row, 8, "timeout")?;
        claim.stall_timeout = row::duration(row, 9, "stall_timeout")?;
        claim.lane = row::name(row, 15, "lane")?;
        let flags = JobFlags::from_bits(row::number(row, 14, "flags")?);
        claim.awaited = flags.has_any(JobFlags::FOLLOWED);
        claim.trace = row::trace(row, 10, 11)?;
        let input = request.payloads.then(|| JobInput {
            payload: row::json(row, 12).unwrap_or_else(|| Json::from_stored("null")),
            checkpoint: None,
        });
        Ok(ClaimedJob { claim, input })
    };
    Ok(read())
}

/// Returns the last checkpoint of a job, if any. A job that was never claimed before has none.
fn checkpoint(conn: Connection<'_>, id: JobId) -> Result<Option<Json>> {
    let checkpoint = conn
        .prepare_cached(&SQL.load_checkpoint)?
        .query_row([id.as_bytes()], |row| Ok(row::json(row, 0)))
        .optional()?;
    Ok(checkpoint.flatten())
}

fn fail_unreadable(
    work: &Work<'_>,
    id: JobId,
    claim_seq: i64,
    data: i64,
    flags: JobFlags,
    text: &str,
) -> Result<()> {
    work.conn
        .prepare_cached(&SQL.fail_unreadable)?
        .execute(params![id.as_bytes(), work.now])?;
    let ended = Ended {
        id,
        seq: claim_seq + 1,
        node: None,
        claimed_at: work.now,
        data,
        flags,
        terminal: true,
    };
    end_claim(work, &ended, AttemptOutcome::Failed, None, Some(text))?;
    work.conn
        .prepare_cached(&SQL.keep_error)?
        .execute(params![id.as_bytes(), text])?;
    Ok(())
}
