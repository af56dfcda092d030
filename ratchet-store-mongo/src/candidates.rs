//! Finds the candidates of a claim: the routes it may claim from, and their first due jobs.

use std::collections::BTreeMap;

use mongodb::bson::RawDocument;
use mongodb::options::ReadConcern;
use ratchet_core::model::ClaimRequest;
use ratchet_core::permit::Budget;
use ratchet_core::priority::ClaimRank;
use ratchet_core::{InvalidInput, JobId, Name, Priority, Route};

use crate::error::Result;
use crate::pipelines;
use crate::row;
use crate::store::MongoStore;

/// Maximum number of ranges that one command reads. The server limits a pipeline to 1,000 stages.
const RANGES: usize = 40;

/// The routes in which one search of a claim looks for due jobs.
pub(crate) struct Chosen {
    /// Ids of the routes whose jobs need no permit.
    pub(crate) plain: Vec<i32>,
    /// Routes whose jobs need a permit, by id. Each route's resource has a free permit.
    pub(crate) permitted: BTreeMap<i32, Route>,
    /// Number of free permits for each resource of the routes in `permitted`.
    budget: Budget,
}

impl Chosen {
    /// Returns `true` if no route is left from which the claim may take jobs.
    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.permitted.is_empty()
    }

    /// Returns the ranges of routes to search, with at most `look_at` candidates in each. If a
    /// resource has fewer than `look_at` free permits, limits the ranges of its routes to the
    /// number of free permits.
    fn ranges(&self, look_at: usize) -> Vec<pipelines::Range> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut ranges: Vec<_> = pipelines::Range::of(&self.plain, number(look_at)).collect();
        let mut resources: BTreeMap<Option<&Name>, (Vec<i32>, u64)> = BTreeMap::new();
        for (number, route) in &self.permitted {
            let rest = self.budget.rest(route).unwrap_or(0);
            let resource = resources.entry(route.permit.as_ref()).or_default();
            resource.0.push(*number);
            resource.1 = rest;
        }
        for (routes, rest) in resources.into_values() {
            let limit = usize::try_from(rest).unwrap_or(usize::MAX).min(look_at);
            ranges.extend(pipelines::Range::of(&routes, number(limit)));
        }
        ranges
    }
}

/// A due job that the claim may try to take.
pub(crate) struct Candidate {
    pub(crate) id: JobId,
    pub(crate) priority: Priority,
    /// Route of the job if the job needs a permit, otherwise `None`.
    pub(crate) permitted: Option<Route>,
}

impl MongoStore {
    /// Returns the routes for which `open` returns `true`. Omits routes whose resource has no free
    /// permit.
    pub(crate) async fn choose_routes(&self, open: impl Fn(&Route) -> bool) -> Result<Chosen> {
        let plain = |route: &Route| open(route) && route.permit.is_none();
        let permitted = |route: &Route| open(route) && route.permit.is_some();
        let mut chosen = Chosen {
            plain: self.routes().matching(plain),
            permitted: BTreeMap::new(),
            budget: Budget::default(),
        };
        let permitted = self.routes().chosen(permitted);
        if !permitted.is_empty() {
            chosen.budget = self.rest_of_permits(&permitted).await?;
            chosen.permitted = permitted.into_iter().collect();
            let budget = &chosen.budget;
            (chosen.permitted).retain(|_, route| budget.rest(route) != Some(0));
        }
        Ok(chosen)
    }

    /// Returns up to `look_at` due jobs in claim order, without jobs for which no permit is free.
    /// Another claim may take some of these jobs at the same time. Only the write that claims a job
    /// decides which claim gets it. [permit.order]
    pub(crate) async fn candidates(
        &self,
        request: &ClaimRequest,
        chosen: &mut Chosen,
        now: i64,
        look_at: usize,
    ) -> Result<Vec<Candidate>> {
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let side = self.main();
        let mut rows = Vec::new();
        for ranges in chosen.ranges(look_at).chunks(RANGES) {
            let stages = pipelines::candidates(side.jobs.name(), ranges, now);
            let found = side
                .plain()
                .aggregate(&side.jobs, stages, ReadConcern::local())
                .await?;
            rows.extend(found);
        }
        let mut ranks = Vec::with_capacity(rows.len());
        for row in &rows {
            match ranked(row, request, now) {
                Ok(ranked) => ranks.push(ranked),
                // Skip only this document, and continue with the others.
                Err(error) => tracing::warn!(%error, "skipped a document that is not a job"),
            }
        }
        ranks.sort_unstable();
        let admitted = ranks.into_iter().filter_map(|(rank, priority, number)| {
            let route = chosen.permitted.get(&number);
            let admitted = route.is_none_or(|route| chosen.budget.take(route));
            admitted.then(|| Candidate {
                id: rank.id(),
                priority,
                permitted: route.cloned(),
            })
        });
        Ok(admitted.take(look_at).collect())
    }
}

impl MongoStore {
    /// Returns the earliest due time of the jobs of each route, by route id. Considers only jobs
    /// that are due at `now`, and omits routes without such a job. [queue.due]
    pub(crate) async fn first_due(&self, routes: &[i32], now: i64) -> Result<BTreeMap<i32, i64>> {
        let side = self.main();
        let mut first = BTreeMap::new();
        for some in routes.chunks(RANGES) {
            let one = |route: &i32| pipelines::Range {
                routes: vec![*route],
                limit: 1,
            };
            let ranges: Vec<pipelines::Range> = some.iter().map(one).collect();
            let stages = pipelines::candidates(side.jobs.name(), &ranges, now);
            let found = side
                .plain()
                .aggregate(&side.jobs, stages, ReadConcern::local())
                .await?;
            for row in &found {
                let run_at = row::int(row, "run_at")?;
                let first = first.entry(row::count(row, "route")?).or_insert(run_at);
                *first = run_at.min(*first);
            }
        }
        Ok(first)
    }
}

/// Reads a candidate. Returns its rank in claim order, its stored priority, and the id of its
/// route.
fn ranked(
    row: &RawDocument,
    request: &ClaimRequest,
    now: i64,
) -> std::result::Result<(ClaimRank, Priority, i32), InvalidInput> {
    let id = row::job_id(row, "_id")?;
    let priority = Priority::from_level(row::int(row, "priority")?)?;
    // A job with an unreadable due time sorts first. So a claim takes the job, and then fails it as
    // unreadable.
    let run_at = row::int(row, "run_at").unwrap_or_default();
    let rank = ClaimRank::new(priority, run_at, id, request.aging, now);
    Ok((rank, priority, row::count(row, "route")?))
}
