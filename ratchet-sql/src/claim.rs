//! Claims due jobs in exact claim order. The statement reads this order from an index.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;

use ratchet_core::claiming::{Persistence, RoundFound, Rounds, SEARCH_TIME, until};
use ratchet_core::fair::{PARKED_BY_A_CLAIM, Places};
use ratchet_core::model::{Claim, ClaimRequest, ClaimedJob, JobFlags, JobInput, Settlement};
use ratchet_core::permit::Budget;
use ratchet_core::priority::{Choice, merge_decided};
use ratchet_core::time::{self, from_millis, to_millis};
use ratchet_core::{
    Aging, ClaimToken, InvalidInput, JobId, Json, Name, Priority, RetryPolicy, Route,
    StoreErrorKind,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::fair_limits::{Free, Limited, Place};
use crate::routes::Chosen;
use crate::row;
use crate::statement::OwnStatements as _;
use crate::store::SqlStore;

/// Settings that determine how often a claim searches again for due jobs.
///
/// With `free_repeats`, some rounds do not count towards `rounds`. The number of such rounds is
/// still limited. Each of them uses up the permits of a resource or settles unreadable jobs as
/// failed, and both can happen only a limited number of times.
const PERSISTENCE: Persistence = Persistence {
    rounds: 12,
    free_repeats: true,
    widens_bounded: true,
    after_some: 1,
    after_none: 0,
};

/// Result of one round of a claim. Each round searches once for due jobs, and again after it has
/// parked some.
#[derive(Default)]
struct Round {
    /// Whether the cached routes are outdated. If so, the round claimed no jobs.
    outdated: bool,
    /// Maximum number of jobs that the last search was to take.
    wanted: usize,
    /// Number of candidates, which are the due jobs that the last search found.
    candidates: usize,
    /// Number of jobs that the last search took.
    taken: usize,
    /// Time of the claim by the database's clock, in milliseconds since 1970.
    now: i64,
    claimed: Vec<ClaimedJob>,
    /// Turn and fair key of each claimed job that had a turn.
    turns: HashMap<JobId, (i64, String)>,
    /// Queue and fair key of each claimed job whose key may have a limit.
    limited: HashMap<JobId, Place>,
    /// Number of jobs that the last search took of each key that may have a limit, with those that
    /// cannot be read.
    own: BTreeMap<Place, u64>,
    /// Claimed jobs that cannot be read. Contains the route of each job, if it is known, and the
    /// settlement that ends the job as failed.
    unreadable: Vec<(Option<Route>, Settlement)>,
    /// Number of claims that the round undid because no permit was left.
    refused: usize,
    /// The claimed jobs that may have an expiry.
    expiring: Vec<Uuid>,
    /// Whether the number of free permits limited the number of candidates.
    bounded: bool,
    /// The routes for jobs with a fair key, if due jobs of them have no turn. Then the round
    /// claimed no jobs.
    asleep: Vec<i32>,
    /// Whether limits of fair keys may apply to the jobs, so that the claim must lock their routes.
    /// Then the round claimed no jobs.
    has_limits: bool,
}

/// What a claim may take of the jobs that need permits or whose fair keys have limits.
struct Allowance {
    places: Places,
    /// How many more jobs of each key may run.
    free: Free,
    /// The routes from which the claim takes no more jobs: no permit is left, or it has parked as
    /// many jobs as it may.
    ended: HashSet<Route>,
}

impl Round {
    /// Returns up to `limit` of the claimed jobs: those that the allowance admits. Uses up the
    /// allowance in the order in which a claim takes jobs: jobs with a fair key in the order of
    /// their turns. `[permit.order]` `[fair.turn]` `[fair.limit.max]`
    fn admit(&self, aging: Aging, limit: usize, allowed: &mut Allowance) -> HashSet<JobId> {
        let mut levels: BTreeMap<(&Route, Priority, bool), Vec<&ClaimedJob>> = BTreeMap::new();
        for job in &self.claimed {
            let has_turn = self.turns.contains_key(&job.claim.token.job);
            let level = (&job.claim.route, job.claim.priority, has_turn);
            levels.entry(level).or_default().push(job);
        }
        let routes: Vec<&Route> = levels.keys().map(|(route, ..)| *route).collect();
        let streams = levels.into_iter().map(|((_, priority, _), mut jobs)| {
            jobs.sort_by_key(|job| {
                let id = job.claim.token.job;
                let turn = self.turns.get(&id);
                let due = turn.is_none().then_some(job.claim.run_at);
                (turn, due, id)
            });
            let jobs = jobs.into_iter().map(|job| {
                let run_at = to_millis(job.claim.run_at);
                Ok::<_, Infallible>((run_at, job.claim.token.job))
            });
            (priority, jobs)
        });
        let decide = |stream: usize, id: JobId| {
            let place = self.limited.get(&id);
            let key = place.map(|(_, key)| key);
            let choice = allowed.places.admit(id, routes[stream], key, || {
                let free = place.and_then(|place| allowed.free.get(place));
                Ok::<_, Infallible>(free.copied().flatten())
            })?;
            if choice == Choice::End {
                allowed.ended.insert(routes[stream].clone());
            }
            Ok(choice)
        };
        let Ok(admitted) = merge_decided(streams, aging, self.now, limit, decide);
        admitted.into_iter().collect()
    }

    /// Adds the jobs of a later search of the same round.
    fn add(&mut self, later: Self) {
        let mut claimed = std::mem::take(&mut self.claimed);
        let mut unreadable = std::mem::take(&mut self.unreadable);
        let mut expiring = std::mem::take(&mut self.expiring);
        let refused = self.refused;
        claimed.extend(later.claimed);
        unreadable.extend(later.unreadable);
        expiring.extend(later.expiring);
        *self = Self {
            claimed,
            unreadable,
            expiring,
            refused: refused + later.refused,
            ..later
        };
    }
}

/// Input of one round of a claim.
struct Look<'a> {
    request: &'a ClaimRequest,
    /// Maximum number of jobs to claim in this round.
    wanted: usize,
    /// Determines how many candidates the round reads.
    rounds: &'a Rounds<'a>,
    /// Whether to claim nothing if there are due jobs that have a fair key and no turn.
    wakes: bool,
    /// Whether limits of fair keys may apply.
    has_limits: bool,
}

/// Input of one search of a round.
struct Search<'a> {
    /// Maximum number of jobs to claim.
    wanted: usize,
    chosen: &'a Chosen,
    budget: &'a Budget,
    /// The routes that the transaction has locked because of limits. `None` if the search claims
    /// nothing where limits may apply.
    limited: Option<&'a Limited>,
}

impl<D: Dialect> SqlStore<D> {
    /// Claims due jobs, and returns them in claim order.
    ///
    /// If a round claims fewer jobs than `request.limit`, another round may search for more jobs.
    /// After the first claimed job, the search ends at `deadline`, or after [`SEARCH_TIME`] if this
    /// is earlier.
    pub(crate) async fn claim_jobs(
        &self,
        request: &ClaimRequest,
        deadline: Instant,
    ) -> Result<Vec<ClaimedJob>> {
        self.mark_excluded(request).await;
        let mut claimed: Vec<ClaimedJob> = Vec::new();
        let mut first = None;
        let mut rounds = Rounds::begin(self.lookahead(), PERSISTENCE);
        // Time at which the search for more jobs ends. Set once some jobs are claimed. A round that
        // is still running at this time is dropped, which closes its connection. If the database
        // has already committed the claims of this round, the node's next heartbeat lists them, and
        // the node releases them.
        let mut end = None;
        // Jobs that are still without a turn afterwards are locked by other transactions.
        let mut wakes = true;
        let mut has_limits = false;
        while rounds.begin_round() {
            let wanted = request.limit.saturating_sub(claimed.len());
            let look = Look {
                request,
                wanted,
                rounds: &rounds,
                wakes,
                has_limits,
            };
            let round = match until(end, self.round(&look)).await {
                Some(Ok(round)) => round,
                Some(Err(failure)) if claimed.is_empty() => return Err(failure),
                // Return the jobs claimed so far, even if a later round failed or timed out.
                _ => break,
            };
            if round.outdated {
                let refresh = async {
                    let mut lease = self.lease().await?;
                    self.routes().refresh(&mut lease, self.sql()).await
                };
                match until(end, refresh).await {
                    Some(Ok(())) => continue,
                    Some(Err(failure)) if claimed.is_empty() => return Err(failure),
                    _ => break,
                }
            }
            if round.has_limits {
                has_limits = true;
                continue;
            }
            if has_limits {
                wakes = false;
            }
            if !round.asleep.is_empty() {
                wakes = false;
                match until(end, self.wake(&round.asleep)).await {
                    Some(Ok(())) => continue,
                    Some(Err(failure)) if claimed.is_empty() => return Err(failure),
                    _ => break,
                }
            }
            first.get_or_insert(round.now);
            let found = RoundFound {
                wanted: round.wanted,
                candidates: round.candidates,
                taken: round.taken,
                bounded: round.bounded,
                // The next round may find other jobs: it skips the resources whose permits this
                // round has used up, and the unreadable jobs have released their permits.
                conditions_changed: round.refused > 0
                    || (round.bounded && !round.unreadable.is_empty()),
            };
            claimed.extend(round.claimed);
            if end.is_none() && !claimed.is_empty() {
                end = Some(deadline.min(time::monotonic() + SEARCH_TIME));
            }
            if !round.unreadable.is_empty() {
                let failed = round.unreadable.into_iter().map(|(_, failed)| failed);
                let failed: Vec<Settlement> = failed.collect();
                let settled = until(end, self.settle_jobs(&failed)).await;
                if !matches!(settled, Some(Ok(_))) {
                    // The node's next heartbeat lists these claims. The node then releases the
                    // claims.
                    let error = settled.and_then(Result::err).map(|error| error.to_string());
                    tracing::warn!(error, "could not fail the claimed jobs that cannot be read");
                    break;
                }
            }
            if claimed.len() >= request.limit || !rounds.looks_again(found) {
                break;
            }
        }
        rounds.end();
        if let Some(now) = first {
            ClaimedJob::sort(&mut claimed, request.aging, now);
        }
        Ok(claimed)
    }

    /// Makes the queues that the request excludes own queues, so that later claims need not skip
    /// their jobs. Failures are only logged, because the claim works without this.
    async fn mark_excluded(&self, request: &ClaimRequest) {
        let marked = self.routes().mark(self.pools(), self.sql(), request).await;
        if let Err(failure) = marked {
            let error = failure.to_string();
            tracing::debug!(error, "could not mark the queues that a claim excludes");
        }
    }

    async fn round(&self, look: &Look<'_>) -> Result<Round> {
        let mut chosen = self.routes().chosen(look.request);
        let mut lease = self.lease().await?;
        if look.has_limits {
            lease.begin().await?;
            let taken = self.take_limited(&mut lease, look, chosen).await;
            return match lease.end(taken).await {
                // The transaction has changed nothing.
                Err(failure) if failure.refuted => Ok(Round {
                    outdated: true,
                    ..Round::default()
                }),
                taken => taken,
            };
        }
        if chosen.needs_permits() {
            self.leave_used_up_out(&mut lease, &mut chosen).await?;
        }
        if !chosen.needs_permits() {
            let unlimited = Budget::default();
            let search = Search {
                wanted: look.wanted,
                chosen: &chosen,
                budget: &unlimited,
                limited: None,
            };
            let mut round = self.take(&mut lease, look, &search).await?;
            self.read_expiries(&mut lease, &mut round).await?;
            return Ok(round);
        }
        lease.begin().await?;
        let taken = self.take_permitted(&mut lease, look, chosen).await;
        lease.end(taken).await
    }

    /// Claims due jobs, some of which need permits. Must run in a transaction. Locks the permits
    /// until the transaction ends, so no other claim uses the same permits at the same time.
    async fn take_permitted(
        &self,
        lease: &mut D::Lease,
        look: &Look<'_>,
        mut chosen: Chosen,
    ) -> Result<Round> {
        let budget = self.lock_permits(lease, &mut chosen).await?;
        let mut round = self.take_allowed(lease, look, chosen, budget, None).await?;
        round.bounded = true;
        self.read_expiries(lease, &mut round).await?;
        Ok(round)
    }

    /// Claims due jobs, some of which have fair keys with limits. Must run in a transaction. First
    /// gives turns to parked jobs for which places are free, and then to due jobs that sleep.
    ///
    /// Locks the routes, and then the permits, until the transaction ends. No call locks a route
    /// while it has locked a permit.
    ///
    /// # Errors
    /// A failure that is `refuted` if the cached routes are outdated.
    async fn take_limited(
        &self,
        lease: &mut D::Lease,
        look: &Look<'_>,
        mut chosen: Chosen,
    ) -> Result<Round> {
        let limited = self.lock_limited(lease, &chosen).await?;
        if let Some(turns) = self.sql().own.turns() {
            self.wake_parked(lease, &turns, &chosen, &limited).await?;
            let fair = chosen.fair();
            if look.wakes && !fair.is_empty() {
                self.wake_inside(lease, &turns, &fair).await?;
            }
        }
        if chosen.needs_permits() {
            self.leave_used_up_out(lease, &mut chosen).await?;
        }
        let bounded = chosen.needs_permits();
        let budget = match bounded {
            true => self.lock_permits(lease, &mut chosen).await?,
            false => Budget::default(),
        };
        let mut round = self
            .take_allowed(lease, look, chosen, budget, Some(&limited))
            .await?;
        if round.outdated {
            let mut failure = Failure::new(StoreErrorKind::Contention, D::ROUTES_MISSING);
            failure.refuted = true;
            return Err(failure);
        }
        round.bounded = bounded;
        self.read_expiries(lease, &mut round).await?;
        Ok(round)
    }

    /// Claims due jobs, and undoes the claims for which no permit is left. Parks the jobs of fair
    /// keys that are at their limits, and then searches for others. The permits and the routes in
    /// `limited` must be locked.
    async fn take_allowed(
        &self,
        lease: &mut D::Lease,
        look: &Look<'_>,
        mut chosen: Chosen,
        budget: Budget,
        limited: Option<&Limited>,
    ) -> Result<Round> {
        let mut allowed = Allowance {
            places: Places::new(budget),
            free: Free::new(),
            ended: HashSet::new(),
        };
        let mut all = Round::default();
        let mut wanted = look.wanted;
        loop {
            let search = Search {
                wanted,
                chosen: &chosen,
                budget: allowed.places.budget(),
                limited,
            };
            let mut round = self.take(lease, look, &search).await?;
            if limited.is_some() {
                let own = std::mem::take(&mut round.own);
                self.count_free(lease, &own, &mut allowed.free).await?;
            }
            let left = look.wanted - all.claimed.len();
            let parked = self
                .keep_allowed(lease, look, &mut round, left, &mut allowed)
                .await?;
            let found_all = round.taken < wanted;
            all.add(round);
            if parked == 0 || found_all || all.claimed.len() >= look.wanted {
                return Ok(all);
            }
            // More jobs than wanted, so that the number of searches does not grow with that of the
            // jobs to park.
            wanted = (2 * wanted).min(PARKED_BY_A_CLAIM.max(look.wanted));
            let ended = &allowed.ended;
            chosen.routes.retain(|(_, route)| !ended.contains(route));
        }
    }

    /// Keeps up to `limit` claims of a round. Undoes the others, and parks their jobs if no places
    /// are free. Returns the number of parked jobs.
    async fn keep_allowed(
        &self,
        lease: &mut D::Lease,
        look: &Look<'_>,
        round: &mut Round,
        limit: usize,
        allowed: &mut Allowance,
    ) -> Result<usize> {
        let mut undone = Vec::new();
        // An unreadable job also needs a permit, which it holds until it has failed.
        round.unreadable.retain(|(route, failed)| {
            let admitted = route
                .as_ref()
                .is_none_or(|route| allowed.places.budget().take(route));
            if !admitted {
                undone.push(failed.token.job);
            }
            admitted
        });
        let before = allowed.places.parked().len();
        let admitted = round.admit(look.request.aging, limit, allowed);
        let parked: HashSet<JobId> = allowed.places.parked()[before..].iter().copied().collect();
        let (mut refused, mut full) = (undone.len(), Vec::new());
        for mut job in std::mem::take(&mut round.claimed) {
            let id = job.claim.token.job;
            if admitted.contains(&id) {
                job.claim.limited = allowed.places.is_limited(id);
                round.claimed.push(job);
            } else if parked.contains(&id) {
                full.push(job);
            } else {
                let rest = allowed.places.budget().rest(&job.claim.route);
                refused += usize::from(rest == Some(0));
                undone.push(id);
            }
        }
        self.park(lease, &full).await?;
        if !undone.is_empty() {
            self.unclaim(lease, &undone).await?;
        }
        round.refused = refused;
        Ok(full.len())
    }

    /// Adds their expiries to the claims. `[expiry.claim]`
    async fn read_expiries(&self, lease: &mut D::Lease, round: &mut Round) -> Result<()> {
        let expiries = self.expiries_of(lease, &round.expiring).await?;
        for claim in round.claimed.iter_mut().map(|job| &mut job.claim) {
            let expiry = expiries.get(&claim.token.job);
            claim.expires_at = expiry.map(|expiry| from_millis(*expiry));
        }
        Ok(())
    }

    /// Claims due jobs with one statement.
    ///
    /// If the jobs of a route need permits, the number of candidates of this route depends on the
    /// number of free permits. There may be several candidates for each free permit, so the
    /// statement may claim more jobs than there are permits. The caller must undo the excess
    /// claims.
    async fn take(
        &self,
        lease: &mut D::Lease,
        look: &Look<'_>,
        search: &Search<'_>,
    ) -> Result<Round> {
        let Search { chosen, budget, .. } = search;
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let wanted = chosen.wanted();
        let ids: Vec<i32> = wanted.iter().map(|one| one.id).collect();
        let queues = wanted.iter().map(|one| one.queue.map_or("", Name::as_str));
        let queues: Vec<&str> = queues.collect();
        let kinds: Vec<&str> = wanted.iter().map(|one| one.kind.as_str()).collect();
        let most = |rest: u64| {
            let rest = usize::try_from(rest).unwrap_or(usize::MAX);
            number(look.rounds.candidates_for(rest))
        };
        let most = wanted.iter().map(|one| budget.rest(one.own?).map(most));
        let most: Vec<Option<i64>> = most.collect();
        let mut claim = self
            .sql()
            .claim_jobs
            .query()
            .table(&[
                ("route", &ids),
                ("queue", &queues),
                ("kind", &kinds),
                ("most", &most),
            ])
            .bind(chosen.last.id)
            .bind(look.request.aging.interval_millis())
            .bind(number(look.rounds.candidates_for(search.wanted)))
            .bind(number(search.wanted))
            .bind(look.request.node.as_uuid())
            .bind(look.request.payloads)
            .bind(chosen.last.stamp);
        let with_turns = self.sql().own.turns().is_some();
        let fair: Vec<i32> = chosen.fair();
        if with_turns {
            claim = claim
                .bind(&fair)
                .bind(look.wakes && search.limited.is_none());
        }
        let with_queues = self.with_queues();
        if with_queues {
            claim = claim.bind(&chosen.shared()).bind(&chosen.excluded());
        }
        let with_limits = self.sql().own.limits().is_some();
        if with_limits {
            let of_queues = chosen.of_queues.iter().map(|(id, _)| *id);
            let unlocked: Vec<i32> = match search.limited {
                None => of_queues.collect(),
                Some(_) => Vec::new(),
            };
            let none = Limited::default();
            let limited = search.limited.unwrap_or(&none);
            claim = claim
                .bind(&unlocked)
                .bind(&limited.each)
                .bind(&limited.some);
        }
        let rows = lease.rows(claim).await?;
        let mut round = Round {
            wanted: search.wanted,
            claimed: Vec::with_capacity(rows.len()),
            ..Round::default()
        };
        for row in &rows {
            round.outdated = !row.try_get::<bool>(0)?;
            round.candidates = row::count(row.try_get::<i64>(1)?, "candidates")?;
            round.now = row.try_get(2)?;
            match with_turns.then(|| row.try_get(21)).transpose()? {
                None | Some(0_i32) => {}
                Some(1) => round.asleep.clone_from(&fair),
                Some(_) => round.has_limits = true,
            }
            let Some(id) = row.try_get::<Option<Uuid>>(3)? else {
                break;
            };
            round.taken += 1;
            let node = Some(look.request.node);
            let now = from_millis(round.now);
            let token = ClaimToken::new(id.into(), row::seq(row, 4)?, node, now);
            let queue = match with_queues {
                // A text that cannot be read becomes an invalid name.
                true => row.try_get(24).unwrap_or(Some("\0")),
                false => None,
            };
            let route = row.try_get(5).ok();
            let route = route.and_then(|route| chosen.get(route, queue));
            let flags: JobFlags = row.try_get(20).unwrap_or_default();
            let mut place = None;
            if search.limited.is_some()
                && flags.has_any(JobFlags::LIMITED)
                && let (Some(route), Ok(Some(key))) = (&route, row::name(row, 23, "fair_key"))
            {
                let of_key = place.insert((route.queue.clone(), key));
                *round.own.entry(of_key.clone()).or_default() += 1;
            }
            match decode(row, token, route.clone(), look.request.payloads) {
                Ok(job) => {
                    if with_turns && let Some(turn) = row.try_get(22)? {
                        // A damaged row may have no key.
                        let key: Option<String> = row.try_get(23)?;
                        let key = key.unwrap_or_default();
                        round.turns.insert(job.claim.token.job, (turn, key));
                    }
                    if let Some(place) = place {
                        round.limited.insert(job.claim.token.job, place);
                    }
                    if flags.has_any(JobFlags::EXPIRES) {
                        round.expiring.push(id);
                    }
                    round.claimed.push(job);
                }
                Err(error) => {
                    tracing::warn!(job = %token.job, %error, "claimed a job that cannot be read; it will fail");
                    let failed = Settlement::unreadable(token, &error);
                    round.unreadable.push((route, failed));
                }
            }
        }
        Ok(round)
    }
}

/// Decodes a claimed job from a row of the statement `claim_jobs`.
fn decode(
    row: &impl Row,
    token: ClaimToken,
    route: Option<Route>,
    payloads: bool,
) -> std::result::Result<ClaimedJob, InvalidInput> {
    let broken = |_: Failure| InvalidInput::new("the row", "cannot be decoded");
    let level: i16 = row.try_get(6).map_err(broken)?;
    let mut claim = Claim::new(
        token,
        route.ok_or_else(|| InvalidInput::new("route", "is missing"))?,
        Priority::from_level(level.into())?,
        from_millis(row.try_get(7).map_err(broken)?),
    );
    claim.attempts = row::count(row.try_get::<i32>(8).map_err(broken)?, "attempts")?;
    claim.crash_count = row::count(row.try_get::<i32>(9).map_err(broken)?, "crash_count")?;
    if row.try_get::<Option<Uuid>>(10).map_err(broken)?.is_none() {
        return Err(InvalidInput::new("data", "is missing"));
    }
    claim.payload_version = row::payload_version(row, 19)?;
    claim.retry = RetryPolicy::from_stored(row::text(row, 11, "retry")?)?;
    claim.timeout = row::duration(row, 12, "timeout")?;
    claim.stall_timeout = row::duration(row, 13, "stall_timeout")?;
    claim.lane = row::name(row, 18, "lane")?;
    let flags: JobFlags = row.try_get(20).map_err(broken)?;
    claim.awaited = flags.has_any(JobFlags::FOLLOWED);
    claim.trace = row::trace(row, 14, 15)?;
    let input = payloads.then(|| JobInput {
        payload: row::json(row, 16).unwrap_or_else(|| Json::from_stored("null")),
        checkpoint: row::json(row, 17),
    });
    Ok(ClaimedJob { claim, input })
}
