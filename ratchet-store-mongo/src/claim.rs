//! Claiming: exact order at index speed.
//!
//! A round is four commands, however many jobs it takes: what must hold (`gate`), the candidates,
//! one write that takes those that are still to be had, and a look at what it took, which also sees
//! whether a queue was paused meanwhile. Where others took the first candidates, it is the write
//! that is made again, for others of the same candidates.
//!
//! Where there are routes whose jobs need permits, a look at what is left of these comes before the
//! candidates, and those of the chosen jobs that need some are taken in a transaction of their own
//! (`permits`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocument, RawDocumentBuf};
use mongodb::options::ReadConcern;
use ratchet_core::model::{Claim, ClaimRequest, ClaimedJob, JobInput, Outcome, Settlement};
use ratchet_core::permit::Budget;
use ratchet_core::priority::ClaimRank;
use ratchet_core::time::{self, from_millis, to_millis};
use ratchet_core::{ClaimToken, InvalidInput, JobId, Json, Name, Priority, RetryPolicy, Route};
use tokio::time::Instant;

use crate::ends::is_tied;
use crate::error::{Failure, Result};
use crate::pipelines;
use crate::read::MOST_EMBEDDED;
use crate::row;
use crate::store::{MongoStore, pause};

/// How much of each claimed job is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// All of it.
    Whole,
    /// Not the payload and the checkpoint.
    WithoutInput,
}

/// How many candidates a claim looks at for each job it wants: one while nobody else claims, and
/// more when others had what it chose. It always tries to take the first ones first.
#[derive(Debug)]
pub(crate) struct Reach {
    factor: AtomicUsize,
    /// Claims since the last that had to look further.
    calm: AtomicUsize,
}

impl Reach {
    const MOST: usize = 32;
    /// How many claims in a row must do without looking further before the reach shrinks.
    const CALM: usize = 16;

    pub(crate) const fn new() -> Self {
        Self {
            factor: AtomicUsize::new(1),
            calm: AtomicUsize::new(0),
        }
    }

    fn get(&self) -> usize {
        self.factor.load(Ordering::Relaxed)
    }

    /// Claims that had to look further than they began make later ones do so from the beginning, and
    /// a row of those that had not, less far.
    fn learn(&self, began: usize, needed: usize) {
        if needed > began {
            let needed = needed.min(Self::MOST);
            self.factor.fetch_max(needed, Ordering::Relaxed);
            self.calm.store(0, Ordering::Relaxed);
            return;
        }
        let now = self.get();
        if now > 1 && self.calm.fetch_add(1, Ordering::Relaxed) + 1 >= Self::CALM {
            self.calm.store(0, Ordering::Relaxed);
            // Unless somebody changes it at this moment.
            let _ =
                self.factor
                    .compare_exchange(now, now - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// How often a claim that came back short looks for more.
const ROUNDS: usize = 12;

/// How long a claim that has something may go on looking for more.
const MORE: Duration = Duration::from_secs(1);

/// How often a claim looks at what it took.
const LOOKS: u32 = 6;

/// How many ranges one command reads: a pipeline has at most 1,000 stages.
const RANGES: usize = 40;

/// The routes of a round.
struct Chosen {
    /// Those whose jobs need no permit.
    plain: Vec<i32>,
    /// Those whose jobs need one of which some are left.
    permitted: BTreeMap<i32, Route>,
    /// What is left of these.
    budget: Budget,
}

impl Chosen {
    /// Whether nothing can be claimed of any route.
    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.permitted.is_empty()
    }

    /// Where to look for candidates: of a resource no further than there are permits.
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

/// A job that a round may take.
struct Candidate {
    id: JobId,
    /// Its route, if it needs a permit.
    permitted: Option<Route>,
}

/// What the writes of a round did.
struct Took {
    /// The candidates that they were about.
    tried: Vec<JobId>,
    /// How many they are known to have taken.
    had: usize,
    /// Why one failed, of which nobody knows how many it took.
    doubt: Option<Failure>,
}

/// What one round found.
struct Round {
    /// How many candidates there were.
    candidates: usize,
    /// How many the claim took, those included that it could not keep.
    had: usize,
    /// The database's time.
    now: i64,
    claimed: Vec<ClaimedJob>,
    /// The jobs that cannot be read, and how they are to end.
    unreadable: Vec<Settlement>,
    /// The jobs whose history is long.
    wordy: Vec<JobId>,
    /// Whether permits bounded what was looked at.
    bounded: bool,
}

/// What a round is allowed to do.
enum Gate {
    /// Nothing: the node is not active.
    Shut,
    /// There are routes that the store did not know of.
    Outdated,
    /// It is this time, and these queues are paused.
    Open { now: i64, paused: BTreeSet<String> },
}

impl MongoStore {
    /// Claims due jobs, in claim order; the inputs are at their place if `depth` asks for them.
    pub(crate) async fn claim_jobs(
        &self,
        request: &ClaimRequest,
        depth: Depth,
        until: Instant,
    ) -> Result<Vec<ClaimedJob>> {
        let mut claimed: Vec<ClaimedJob> = Vec::new();
        let mut first = None;
        let began = self.reach().get();
        let mut reach = began;
        let mut again = false;
        // Until when to look for more, once there is something.
        let mut end = None;
        for _ in 0..ROUNDS {
            let wanted = request.limit - claimed.len();
            let look_at = wanted.saturating_mul(reach);
            let round = match soon(end, self.round(request, depth, wanted, look_at)).await {
                Some(Ok(Some(round))) => round,
                Some(Err(failure)) if claimed.is_empty() => return Err(failure),
                // Nothing can be claimed; or what was claimed is the caller's, whatever became of
                // looking for more.
                _ => break,
            };
            first.get_or_insert(round.now);
            let had = round.had;
            // What could not be read gives its permits back.
            let look_again = round.bounded && !round.unreadable.is_empty();
            claimed.extend(round.claimed);
            if end.is_none() && !claimed.is_empty() {
                end = Some(until.min(time::monotonic() + MORE));
            }
            if !round.wordy.is_empty() {
                let moved = soon(end, self.move_attempts(&round.wordy)).await;
                if let Some(Err(error)) = moved {
                    tracing::warn!(%error, "a long history could not be moved; it is tried again");
                }
            }
            if !round.unreadable.is_empty() {
                let settled = soon(end, self.settle_jobs(&round.unreadable)).await;
                if !matches!(settled, Some(Ok(_))) {
                    // They go back once they have not begun for too long, and are seen again.
                    let error = settled.and_then(Result::err).map(|error| error.to_string());
                    tracing::warn!(error, "jobs that cannot be read could not be failed");
                    break;
                }
            }
            if claimed.len() == request.limit {
                break;
            }
            if look_again {
                continue;
            }
            if had == round.candidates && had < look_at {
                break;
            }
            if had < wanted {
                // Others had the rest of the candidates.
                if round.candidates == look_at {
                    // There may be more behind these.
                    reach = (reach * 2).min(Reach::MOST);
                } else if had == 0 || again {
                    break;
                } else {
                    // There were no more, but some may have been let go.
                    again = true;
                }
            }
        }
        self.reach().learn(began, reach);
        if let Some(now) = first {
            sort(&mut claimed, request, now);
        }
        Ok(claimed)
    }

    /// One round; none if the node may not claim.
    async fn round(
        &self,
        request: &ClaimRequest,
        depth: Depth,
        wanted: usize,
        look_at: usize,
    ) -> Result<Option<Round>> {
        let (now, paused) = loop {
            match self.gate(request).await? {
                Gate::Shut => return Ok(None),
                Gate::Outdated => self.routes().refresh(self.main()).await?,
                Gate::Open { now, paused } => break (now, paused),
            }
        };
        let open = |route: &Route| !paused.contains(route.queue.as_str()) && route.matches(request);
        let mut chosen = self.choose_routes(open).await?;
        let mut round = Round {
            candidates: 0,
            had: 0,
            now,
            claimed: Vec::new(),
            unreadable: Vec::new(),
            wordy: Vec::new(),
            bounded: !chosen.permitted.is_empty(),
        };
        let candidates = self.candidates(request, &mut chosen, now, look_at).await?;
        round.candidates = candidates.len();
        let call = ObjectId::new();
        let took = self.take(request, candidates, wanted, call, now).await;
        if took.had == 0 && took.doubt.is_none() {
            return Ok(Some(round));
        }
        let rows = self.rows_taken(&took, call, depth).await?;
        self.look_at_taken(&mut round, &rows, call).await?;
        match took.doubt {
            Some(failure) if round.had == 0 => Err(failure),
            _ => Ok(Some(round)),
        }
    }

    async fn gate(&self, request: &ClaimRequest) -> Result<Gate> {
        let side = self.main();
        let names = [side.nodes.name(), side.queues.name(), side.routes.name()];
        let stages = pipelines::gate(request.node, names, self.now(side).await?);
        let rows = side
            .plain()
            .aggregate(&side.meta, stages, ReadConcern::majority())
            .await?;
        let (mut time, mut paused) = (None, BTreeSet::new());
        for row in rows {
            if row.get("idle").is_ok_and(|status| status.is_some()) {
                return Ok(Gate::Shut);
            }
            if let Some(route) = row::optional_int(&row, "route")?
                && route > i64::from(self.routes().seen())
            {
                return Ok(Gate::Outdated);
            }
            time = row::optional_int(&row, "now")?.or(time);
            paused.extend(row::text(&row, "paused")?.map(str::to_owned));
        }
        let now = time.ok_or_else(|| InvalidInput::new("meta", "is missing"))?;
        Ok(Gate::Open { now, paused })
    }

    /// The routes that match, without those whose permits are used up.
    async fn choose_routes(&self, open: impl Fn(&Route) -> bool) -> Result<Chosen> {
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

    /// The first due jobs in claim order, without those for which no permit is left. What others
    /// are taking at this moment may be among them: the write decides. [permit.order]
    async fn candidates(
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
            let id = row::job_id(row, "_id")?;
            // What is no number is in no range of the index.
            let priority = Priority::from_level(row::int(row, "priority")?)?;
            let run_at = row::int(row, "run_at")?;
            let rank = ClaimRank::new(priority, run_at, id, request.aging, now);
            ranks.push((rank, row::count::<i32>(row, "route")?));
        }
        ranks.sort_unstable();
        let admitted = ranks.into_iter().filter_map(|(rank, number)| {
            let route = chosen.permitted.get(&number);
            let admitted = route.is_none_or(|route| chosen.budget.take(route));
            admitted.then(|| Candidate {
                id: rank.id(),
                permitted: route.cloned(),
            })
        });
        Ok(admitted.take(look_at).collect())
    }

    /// Takes up to `wanted` of the candidates: the first ones, and where others had those, the ones
    /// behind them. None is passed over that is to be had, so that each claimer gets its jobs in
    /// order.
    async fn take(
        &self,
        request: &ClaimRequest,
        mut candidates: Vec<Candidate>,
        wanted: usize,
        call: ObjectId,
        now: i64,
    ) -> Took {
        let mut took = Took {
            tried: Vec::new(),
            had: 0,
            doubt: None,
        };
        while took.had < wanted && !candidates.is_empty() && took.doubt.is_none() {
            let missing = (wanted - took.had).min(candidates.len());
            let (mut plain, mut permitted) = (Vec::new(), Vec::new());
            for candidate in candidates.drain(..missing) {
                took.tried.push(candidate.id);
                match candidate.permitted {
                    None => plain.push(candidate.id),
                    Some(route) => permitted.push((candidate.id, route)),
                }
            }
            for taken in [
                self.take_plain(request, &plain, call, now).await,
                self.take_permitted(request, &permitted, call, now).await,
            ] {
                match taken {
                    Ok(taken) => took.had += usize::try_from(taken).unwrap_or(missing),
                    Err(failure) => took.doubt = Some(failure),
                }
            }
        }
        took
    }

    /// Takes jobs that need no permits; how many.
    async fn take_plain(
        &self,
        request: &ClaimRequest,
        chosen: &[JobId],
        call: ObjectId,
        now: i64,
    ) -> Result<u64> {
        if chosen.is_empty() {
            return Ok(0);
        }
        let side = self.main();
        let take = pipelines::take(request.node, call, now);
        let takeable = pipelines::takeable(chosen, now);
        side.plain().update_many(&side.jobs, takeable, take).await
    }

    /// Reads what this call took, by its mark: also what it took with an update that was ended in
    /// the middle, or whose answer was lost. Nobody else knows of these jobs, so it is tried again.
    async fn rows_taken(
        &self,
        took: &Took,
        call: ObjectId,
        depth: Depth,
    ) -> Result<Vec<RawDocumentBuf>> {
        let side = self.main();
        let whole = depth == Depth::Whole;
        let mut tries = 0;
        loop {
            let stages = pipelines::look_at_taken(&took.tried, call, side.queues.name(), whole);
            let rows = side
                .plain()
                .aggregate(&side.jobs, stages, ReadConcern::majority())
                .await;
            tries += 1;
            match rows {
                Ok(rows) if took.doubt.is_none() || !rows.is_empty() || tries > 1 => {
                    return Ok(rows);
                }
                Err(failure) if tries >= LOOKS || !failure.kind.is_transient() => {
                    return Err(failure);
                }
                // A majority may have it in a moment.
                Ok(_) | Err(_) => tokio::time::sleep(pause(tries + 3)).await,
            }
        }
    }

    /// Takes the jobs out of what was read, and hands back what is in queues that were paused since.
    async fn look_at_taken(
        &self,
        round: &mut Round,
        rows: &[RawDocumentBuf],
        call: ObjectId,
    ) -> Result<()> {
        let mut paused = BTreeSet::new();
        let mut jobs: Vec<&RawDocumentBuf> = Vec::with_capacity(rows.len());
        for row in rows {
            match row::text(row, "paused") {
                Ok(Some(queue)) => {
                    paused.insert(queue);
                }
                _ => jobs.push(row),
            }
        }
        round.had = jobs.len();
        let mut undone = Vec::new();
        for row in jobs {
            let token = ClaimToken::new(row::job_id(row, "_id")?, row::count(row, "claim_seq")?);
            let route = self
                .routes()
                .get(row::int(row, "route").unwrap_or_default());
            if let Some(route) = &route
                && paused.contains(route.queue.as_str())
            {
                undone.push(token);
                continue;
            }
            if row::int(row, "kept").unwrap_or_default() > MOST_EMBEDDED {
                round.wordy.push(token.job);
            }
            match decode(row, token, route) {
                Ok(job) => round.claimed.push(job),
                Err(problem) => {
                    let error = row::unreadable(&problem);
                    tracing::warn!(job = %token.job, error, "failed a job that cannot be read");
                    let failed = Settlement::new(token, Outcome::Failed { error });
                    round.unreadable.push(failed.without_attempt());
                }
            }
        }
        if !undone.is_empty() {
            self.untake(&undone, call).await?;
        }
        Ok(())
    }

    /// Makes claims undone that nobody was told of.
    async fn untake(&self, claims: &[ClaimToken], call: ObjectId) -> Result<()> {
        let side = self.main();
        let jobs: Vec<JobId> = claims.iter().map(|token| token.job).collect();
        let (filter, update) = pipelines::untake(&jobs, call);
        let undone = side.plain().update_many(&side.jobs, filter, update).await?;
        if usize::try_from(undone) == Ok(claims.len()) {
            return Ok(());
        }
        // Somebody wants the others cancelled: releasing them does that.
        let released = |token: &ClaimToken| Settlement::new(*token, Outcome::Released);
        let released: Vec<Settlement> = claims.iter().map(released).collect();
        self.settle_jobs(&released).await?;
        Ok(())
    }
}

/// The claim of a document of `jobs`, or what of it cannot be read.
fn decode(
    row: &RawDocument,
    token: ClaimToken,
    route: Option<Route>,
) -> std::result::Result<ClaimedJob, InvalidInput> {
    let mut claim = Claim::new(
        token,
        route.ok_or_else(|| InvalidInput::new("route", "is missing"))?,
        Priority::from_level(row::int(row, "priority")?)?,
        from_millis(row::int(row, "run_at")?),
        from_millis(row::int(row, "claimed_at")?),
    );
    claim.attempts = row::count(row, "attempts")?;
    claim.crash_count = row::count(row, "crash_count")?;
    claim.payload_version = row::payload_version(row)?;
    claim.retry = RetryPolicy::from_stored(row::text(row, "retry")?)?;
    claim.timeout = row::duration(row, "timeout")?;
    claim.stall_timeout = row::duration(row, "stall_timeout")?;
    claim.lane = row::name(row, "lane")?;
    claim.awaited = is_tied(row);
    claim.trace = row::trace(row)?;
    let input = JobInput {
        payload: row::json(row, "payload").unwrap_or_else(|| Json::from_stored("null")),
        checkpoint: row::json(row, "checkpoint"),
    };
    Ok(ClaimedJob { claim, input })
}

/// Waits for work until this time, if there is one; none if it took longer. What was going on then is
/// dropped: jobs that it claimed all the same go back as not begun.
async fn soon<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match end {
        None => Some(work.await),
        Some(end) if time::monotonic() >= end => None,
        Some(end) => tokio::time::timeout_at(end, work).await.ok(),
    }
}

/// Puts jobs into claim order.
fn sort(claimed: &mut [ClaimedJob], request: &ClaimRequest, now: i64) {
    claimed.sort_by_cached_key(|job| {
        let claim = &job.claim;
        let run_at = to_millis(claim.run_at);
        ClaimRank::new(claim.priority, run_at, claim.token.job, request.aging, now)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reach_grows_at_once_and_shrinks_after_a_calm() {
        let reach = Reach::new();
        reach.learn(1, 1);
        assert_eq!(reach.get(), 1);
        reach.learn(1, 8);
        assert_eq!(reach.get(), 8);
        for _ in 1..Reach::CALM {
            reach.learn(8, 8);
            assert_eq!(reach.get(), 8);
        }
        reach.learn(8, 8);
        assert_eq!(reach.get(), 7);
        reach.learn(7, 1_000);
        assert_eq!(reach.get(), Reach::MOST);
    }
}
