//! Finds the candidates of a claim: the routes it may claim from, and their first due jobs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;

use mongodb::bson::{RawDocument, RawDocumentBuf};
use mongodb::options::ReadConcern;
use ratchet_core::dictionary::Streams;
use ratchet_core::model::{ClaimRequest, PauseScope, Pauses};
use ratchet_core::permit::Budget;
use ratchet_core::priority::merge_admitted;
use ratchet_core::{InvalidInput, JobId, Name, Priority, Route, Selection};

use crate::error::Result;
use crate::fair;
use crate::pipelines::{self, Queues, Seen};
use crate::routes::Last;
use crate::row;
use crate::store::MongoStore;

/// Maximum number of ranges that one command reads. The server limits a pipeline to 1,000 stages.
const RANGES: usize = 40;

/// What one search of a claim looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// Maximum number of candidates.
    pub(crate) look_at: usize,
    /// Whether the search first gives turns to due jobs that have none.
    pub(crate) wakes: bool,
    /// Whether the search leaves out jobs with a fair key, because the claim may park no more.
    pub(crate) leaves_out_fair: bool,
}

/// The routes in which one search of a claim looks for due jobs.
pub(crate) struct Chosen {
    /// Ids of the routes whose jobs need no permit and have no fair key.
    plain: Vec<i32>,
    /// Ids of the routes whose jobs have a fair key.
    fair: BTreeSet<i32>,
    /// Ids of the shared routes.
    shared: Vec<i32>,
    /// The queues whose jobs of the shared routes the claim may take. Each part is a search of its
    /// own.
    queues: Vec<Queues>,
    /// Routes whose jobs need a permit, by id. Each route's resource has a free permit.
    permitted: BTreeMap<i32, Route>,
    /// Routes whose jobs a claim takes in a transaction: those in `permitted`, and those in `fair`
    /// if there are limits.
    checked: BTreeMap<i32, Route>,
    /// Number of free permits for each resource of the routes in `permitted`.
    budget: Budget,
    /// The last route of the cache from which these were chosen.
    last: Last,
}

impl Chosen {
    /// Returns `true` if no route is left from which the claim may take jobs.
    fn is_empty(&self) -> bool {
        let shared = self.shared.is_empty() || self.queues.is_empty();
        shared && self.plain.is_empty() && self.permitted.is_empty() && self.fair.is_empty()
    }

    /// Returns whether the claim may take jobs with a fair key.
    pub(crate) fn has_fair(&self) -> bool {
        !self.fair.is_empty()
    }

    /// Returns whether the claim may take jobs that need a permit.
    pub(crate) fn needs_permits(&self) -> bool {
        !self.permitted.is_empty()
    }

    /// Returns the ranges of routes to search, with at most `look_at` candidates in each. If a
    /// resource has fewer than `look_at` free permits, limits the ranges of its routes to the
    /// number of free permits. Each route of jobs with a fair key is a range of its own, because
    /// its jobs have an order of their own.
    fn ranges(&self, look_at: usize) -> Vec<pipelines::Range> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let limit = |rest: u64| number(usize::try_from(rest).unwrap_or(usize::MAX).min(look_at));
        // Jobs move from shared routes to others, and not back. So a job that moves between two of
        // these reads may be found twice, but is not missed.
        let mut ranges = Vec::new();
        for queues in &self.queues {
            let range = pipelines::Range::of(&self.shared, number(look_at), queues.clone());
            ranges.extend(range);
        }
        let own = pipelines::Range::of(&self.plain, number(look_at), Queues::Own);
        ranges.extend(own);
        let mut resources: BTreeMap<Option<&Name>, (Vec<i32>, u64)> = BTreeMap::new();
        for (number, route) in &self.permitted {
            if self.fair.contains(number) {
                continue;
            }
            let rest = self.budget.rest(route).unwrap_or(0);
            let resource = resources.entry(route.permit.as_ref()).or_default();
            resource.0.push(*number);
            resource.1 = rest;
        }
        for (routes, rest) in resources.into_values() {
            ranges.extend(pipelines::Range::of(&routes, limit(rest), Queues::Own));
        }
        ranges.extend(self.fair.iter().map(|route| {
            let rest = self.permitted.get(route);
            let rest = rest.and_then(|route| self.budget.rest(route));
            pipelines::Range {
                routes: vec![*route],
                limit: limit(rest.unwrap_or(u64::MAX)),
                by_turn: true,
                queues: Queues::Own,
            }
        }));
        ranges
    }
}

/// A due job that the claim may try to take.
pub(crate) struct Candidate {
    pub(crate) id: JobId,
    pub(crate) seen: Seen,
    /// Route of the job if the job needs a permit, or if its fair key may have a limit.
    pub(crate) checked: Option<Route>,
}

/// The candidates of a search that have one order: those of a priority, or of a priority and a
/// route.
struct Stream<'c> {
    seen: Seen,
    /// Route of the jobs if they need a permit, or if their fair keys may have limits.
    checked: Option<&'c Route>,
    /// Due time and id of each job.
    jobs: Vec<(i64, JobId)>,
}

impl MongoStore {
    /// Returns the routes that match the request and are not paused. Omits routes whose resource
    /// has no free permit. `limits` tells whether fair keys may have limits.
    pub(crate) async fn choose_routes(
        &self,
        request: &ClaimRequest,
        pauses: &Pauses,
        limits: bool,
    ) -> Result<Chosen> {
        let last = self.routes().last();
        let Streams {
            own,
            shared,
            queues,
        } = self.routes().streams(request);
        let own = own.into_iter().filter(|(_, route)| !pauses.cover(route));
        let (permitted, plain): (Vec<_>, Vec<_>) =
            own.partition(|(_, route)| route.permit.is_some());
        let is_paused = |name: &Name| pauses.of_queue(name).is_some();
        let queues = match queues {
            Selection::Only(names) => {
                let open = names.iter().filter(|name| !is_paused(name));
                let open: Vec<String> = open.map(Name::to_string).collect();
                Queues::only(&open).collect()
            }
            Selection::All => vec![Queues::Except(
                pauses.queues().map(Name::to_string).collect(),
            )],
            Selection::Except(names) => {
                let shut = names.iter().chain(pauses.queues());
                vec![Queues::Except(shut.map(Name::to_string).collect())]
            }
        };
        let is_open = |kind: &Name| !pauses.contains(&PauseScope::Kind(kind.clone()));
        let shared = shared
            .into_iter()
            .filter(|(_, shared)| is_open(&shared.kind));
        let mut chosen = Chosen {
            plain: plain.into_iter().map(|(id, _)| id).collect(),
            fair: BTreeSet::new(),
            shared: shared.map(|(id, _)| id).collect(),
            queues,
            permitted: BTreeMap::new(),
            checked: BTreeMap::new(),
            budget: Budget::default(),
            last,
        };
        if chosen.shared.is_empty() {
            chosen.queues.clear();
        }
        if !permitted.is_empty() {
            chosen.budget = self.rest_of_permits(&permitted).await?;
            chosen.permitted = permitted.into_iter().collect();
            let budget = &chosen.budget;
            (chosen.permitted).retain(|_, route| budget.rest(route) != Some(0));
        }
        let all = chosen.plain.iter().chain(chosen.permitted.keys());
        chosen.fair = self.routes().fair(all.copied());
        let fair = &chosen.fair;
        chosen.plain.retain(|route| !fair.contains(route));
        chosen.checked = chosen.permitted.clone();
        if limits {
            let route = |id: &i32| Some((*id, self.routes().get((*id).into(), None)?));
            let fair = fair.iter().filter_map(route);
            chosen.checked.extend(fair);
        }
        Ok(chosen)
    }

    /// Returns up to `search.look_at` due jobs in claim order, without jobs for which no permit is
    /// free. Another claim may take some of these jobs at the same time. Only the write that claims
    /// a job decides which claim gets it. [permit.order] [fair.turn]
    ///
    /// Returns `None` if the search may have missed jobs, because they moved from a shared route to
    /// a route that was added after the routes were chosen. [queue.separate]
    pub(crate) async fn candidates(
        &self,
        request: &ClaimRequest,
        chosen: &mut Chosen,
        now: i64,
        search: Search,
    ) -> Result<Option<Vec<Candidate>>> {
        let look_at = search.look_at;
        if search.leaves_out_fair {
            for route in std::mem::take(&mut chosen.fair) {
                chosen.permitted.remove(&route);
            }
        }
        if chosen.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut found = self.search(chosen, now, look_at, search.wakes).await?;
        if found.iter().any(|row| row::flag(row, fair::ASLEEP)) {
            self.wake(&chosen.fair, now).await?;
            found = self.search(chosen, now, look_at, false).await?;
        }
        if !chosen.shared.is_empty() {
            let mut last = None;
            for row in &found {
                last = Last::find(row)?.or(last);
            }
            if last != Some(chosen.last) {
                return Ok(None);
            }
            found.retain(|row| row.get("last").is_ok_and(|last| last.is_none()));
        }
        let Chosen {
            fair,
            permitted,
            checked,
            budget,
            ..
        } = chosen;
        let mut streams: BTreeMap<(Option<i32>, Seen), Stream<'_>> = BTreeMap::new();
        let mut ids = HashSet::with_capacity(found.len());
        for row in &found {
            let (route, priority, job) = match candidate(row) {
                Ok(candidate) => candidate,
                // Skip only this document, and continue with the others.
                Err(error) => {
                    tracing::warn!(%error, "skipped a document that is not a job");
                    continue;
                }
            };
            if !ids.insert(job.1) {
                // The job moved to another route between two reads.
                continue;
            }
            let has_turn = fair.contains(&route);
            let seen = Seen { priority, has_turn };
            let of_route = (has_turn || permitted.contains_key(&route)).then_some(route);
            let stream = streams.entry((of_route, seen)).or_insert(Stream {
                seen,
                checked: checked.get(&route),
                jobs: Vec::new(),
            });
            stream.jobs.push(job);
        }
        let mut streams: Vec<Stream<'_>> = streams.into_values().collect();
        for stream in streams.iter_mut().filter(|one| !one.seen.has_turn) {
            stream.jobs.sort_unstable();
        }
        let merged = streams.iter().map(|stream| {
            let jobs = stream.jobs.iter().copied();
            (stream.seen.priority, jobs.map(Ok::<_, Infallible>))
        });
        // The stream of each admitted job.
        let mut admitted = Vec::new();
        let admit = |stream: usize| {
            let is_free = (streams[stream].checked).is_none_or(|route| budget.take(route));
            admitted.extend(is_free.then_some(stream));
            is_free
        };
        let Ok(ids) = merge_admitted(merged, request.aging, now, look_at, admit);
        let of_stream = |(id, stream): (JobId, usize)| Candidate {
            id,
            seen: streams[stream].seen,
            checked: streams[stream].checked.cloned(),
        };
        Ok(Some(ids.into_iter().zip(admitted).map(of_stream).collect()))
    }

    /// Reads the first due jobs of the chosen routes. If `looks_for_asleep` is true, adds a
    /// document with the field [`ASLEEP`](fair::ASLEEP) if there are due jobs without a turn.
    /// If there are shared routes, also adds the last stored route, which is read after them.
    async fn search(
        &self,
        chosen: &Chosen,
        now: i64,
        look_at: usize,
        looks_for_asleep: bool,
    ) -> Result<Vec<RawDocumentBuf>> {
        let side = self.main();
        let mut rows = Vec::new();
        let ranges = chosen.ranges(look_at);
        let mut chunks = ranges.chunks(RANGES).peekable();
        while let Some(ranges) = chunks.next() {
            let mut stages = pipelines::candidates(side.jobs.name(), ranges, now);
            let fair = ranges.iter().filter(|range| range.by_turn);
            let fair: Vec<i32> = fair.flat_map(|range| &range.routes).copied().collect();
            if looks_for_asleep && !fair.is_empty() {
                stages.push(fair::any_asleep(side.jobs.name(), &fair, now));
            }
            if chunks.peek().is_none() && !chosen.shared.is_empty() {
                stages.push(pipelines::last_route(side.routes.name()));
            }
            let found = side
                .plain()
                .aggregate(&side.jobs, stages, ReadConcern::local())
                .await?;
            rows.extend(found);
        }
        Ok(rows)
    }
}

impl MongoStore {
    /// Returns the earliest due time of the jobs of each route, by route id and, for shared routes,
    /// queue. Considers only jobs that are due at `now`, and omits routes without such a job.
    /// [queue.due]
    pub(crate) async fn first_due(
        &self,
        routes: &[(i32, Option<Name>)],
        now: i64,
    ) -> Result<BTreeMap<(i32, Option<Name>), i64>> {
        let side = self.main();
        let mut first = BTreeMap::new();
        for some in routes.chunks(RANGES) {
            let one = |(route, queue): &(i32, Option<Name>)| pipelines::Range {
                routes: vec![*route],
                limit: 1,
                by_turn: false,
                queues: match queue {
                    None => Queues::Own,
                    Some(queue) => Queues::Only(vec![queue.to_string()]),
                },
            };
            let ranges: Vec<pipelines::Range> = some.iter().map(one).collect();
            let stages = pipelines::candidates(side.jobs.name(), &ranges, now);
            let found = side
                .plain()
                .aggregate(&side.jobs, stages, ReadConcern::local())
                .await?;
            for row in &found {
                let run_at = row::int(row, "run_at")?;
                let of = (row::count(row, "route")?, row::name(row, "queue")?);
                let first = first.entry(of).or_insert(run_at);
                *first = run_at.min(*first);
            }
        }
        Ok(first)
    }
}

/// Reads a candidate. Returns the id of its route, its stored priority, and its due time and id.
fn candidate(
    row: &RawDocument,
) -> std::result::Result<(i32, Priority, (i64, JobId)), InvalidInput> {
    let id = row::job_id(row, "_id")?;
    let priority = Priority::from_level(row::int(row, "priority")?)?;
    // A job with an unreadable due time sorts first. So a claim takes the job, and then fails it as
    // unreadable.
    let run_at = row::int(row, "run_at").unwrap_or_default();
    Ok((row::count(row, "route")?, priority, (run_at, id)))
}
