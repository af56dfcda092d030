//! Claiming: exact order at index speed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::model::{Claim, ClaimRequest, ClaimedJob, JobInput, Outcome, Settlement};
use ratchet_core::permit::Budget;
use ratchet_core::priority::ClaimRank;
use ratchet_core::time::{self, from_millis, to_millis};
use ratchet_core::{ClaimToken, InvalidInput, Json, Priority, RetryPolicy, Route};
use tokio::time::Instant;
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::routes::Chosen;
use crate::row::{self, HAS_CHILDREN, IN_BATCH};
use crate::store::SqlStore;

/// How many candidates a claim looks at for each job it wants: one while nobody else claims, and
/// more when others had what it chose.
#[derive(Debug)]
pub(crate) struct Reach {
    factor: AtomicUsize,
    /// Claims since the last that had to look further.
    calm: AtomicUsize,
}

impl Reach {
    const MOST: usize = 32;
    /// How many claims in a row must do without looking further before the reach shrinks. To have
    /// looked further than needed costs an index range; not far enough, a whole round: among four
    /// nodes one claim in four was in vain when each claim that went well shrank the reach.
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
    /// a row of those that had not, less far. Others learn meanwhile: what a claim began with says
    /// nothing about what it needed.
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

/// What one round found.
struct Round {
    /// Whether there are other routes than the store knew of; then nothing was claimed.
    outdated: bool,
    /// How many candidates there were.
    candidates: usize,
    /// The database's time.
    now: i64,
    claimed: Vec<ClaimedJob>,
    /// The jobs that cannot be read, their routes, and how they are to end.
    unreadable: Vec<(Option<Route>, Settlement)>,
    /// How many candidates there were no permits for.
    refused: usize,
    /// Whether permits bounded what was looked at.
    bounded: bool,
}

/// What one round looks for.
struct Look<'a> {
    request: &'a ClaimRequest,
    /// How many jobs.
    wanted: usize,
    /// Among how many candidates for each of them.
    reach: usize,
}

impl Look<'_> {
    /// Among how many candidates.
    fn look_at(&self) -> usize {
        self.wanted.saturating_mul(self.reach)
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Claims due jobs, in claim order.
    pub(crate) async fn claim_jobs(
        &self,
        request: &ClaimRequest,
        until: Instant,
    ) -> Result<Vec<ClaimedJob>> {
        let mut claimed: Vec<ClaimedJob> = Vec::new();
        let mut first = None;
        let began = self.reach().get();
        let mut reach = began;
        let mut again = false;
        // How many candidates the last round had that came back short.
        let mut seen = 0;
        // Until when to look for more, once there is something.
        let mut end = None;
        let mut rounds = 0;
        while rounds < ROUNDS {
            rounds += 1;
            let wanted = request.limit - claimed.len();
            let look = Look {
                request,
                wanted,
                reach,
            };
            let round = match soon(end, self.round(&look)).await {
                Some(Ok(round)) => round,
                Some(Err(failure)) if claimed.is_empty() => return Err(failure),
                // What was claimed is the caller's, whatever became of looking for more.
                _ => break,
            };
            if round.outdated {
                let refresh = async {
                    let mut lease = self.lease().await?;
                    self.routes().refresh(&mut lease, self.sql()).await
                };
                match soon(end, refresh).await {
                    Some(Ok(())) => continue,
                    Some(Err(failure)) if claimed.is_empty() => return Err(failure),
                    _ => break,
                }
            }
            first.get_or_insert(round.now);
            let had = round.claimed.len() + round.unreadable.len() + round.refused;
            // The next round leaves the resources out that this one used up; and what could not be
            // read has given its permits back.
            let look_again = round.refused > 0 || (round.bounded && !round.unreadable.is_empty());
            claimed.extend(round.claimed);
            if end.is_none() && !claimed.is_empty() {
                end = Some(until.min(time::monotonic() + MORE));
            }
            if !round.unreadable.is_empty() {
                let failed = round.unreadable.into_iter().map(|(_, failed)| failed);
                let failed: Vec<Settlement> = failed.collect();
                let settled = soon(end, self.settle_jobs(&failed)).await;
                if !matches!(settled, Some(Ok(_))) {
                    // The node's next heartbeat lists them, and hands them back.
                    let error = settled.and_then(Result::err).map(|error| error.to_string());
                    tracing::warn!(error, "jobs that cannot be read could not be failed");
                    break;
                }
            }
            if claimed.len() == request.limit {
                break;
            }
            if look_again {
                // Each of these uses a resource up, so they come to an end by themselves.
                rounds -= 1;
                continue;
            }
            let all = round.candidates < look.look_at();
            if had == round.candidates && all {
                break;
            }
            if had < wanted {
                // Others had the rest of the candidates.
                if !all || (round.bounded && round.candidates > seen) {
                    // There may be more behind these.
                    seen = round.candidates;
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

    async fn round(&self, look: &Look<'_>) -> Result<Round> {
        let mut chosen = self.routes().matching(|route| route.matches(look.request));
        let mut lease = self.lease().await?;
        if chosen.needs_permits() {
            self.leave_used_up_out(&mut lease, &mut chosen).await?;
        }
        if !chosen.needs_permits() {
            return self
                .take(&mut lease, look, &chosen, &Budget::default())
                .await;
        }
        lease.begin().await?;
        let taken = self.take_permitted(&mut lease, look, chosen).await;
        lease.end(taken).await
    }

    /// Claims jobs of which some need permits, in a transaction: whoever has their permits locked is
    /// the only one to claim by them.
    async fn take_permitted(
        &self,
        lease: &mut D::Lease,
        look: &Look<'_>,
        mut chosen: Chosen,
    ) -> Result<Round> {
        let mut budget = self.lock_permits(lease, &mut chosen).await?;
        let mut round = self.take(lease, look, &chosen, &budget).await?;
        round.bounded = true;
        sort(&mut round.claimed, look.request, round.now);
        let mut refused = Vec::new();
        // What cannot be read holds its permit until it has failed.
        round.unreadable.retain(|(route, failed)| {
            let admitted = route.as_ref().is_none_or(|route| budget.take(route));
            if !admitted {
                refused.push(failed.token.job);
            }
            admitted
        });
        round.claimed.retain(|job| {
            let admitted = budget.take(&job.claim.route);
            if !admitted {
                refused.push(job.claim.token.job);
            }
            admitted
        });
        if !refused.is_empty() {
            self.unclaim(lease, &refused).await?;
        }
        round.refused = refused.len();
        Ok(round)
    }

    /// Claims what is due, of each route no more than this budget has for it times the reach: what is
    /// too much, the caller gives back.
    async fn take(
        &self,
        lease: &mut D::Lease,
        look: &Look<'_>,
        chosen: &Chosen,
        budget: &Budget,
    ) -> Result<Round> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let routes = || chosen.routes.iter();
        let queues: Vec<&str> = routes().map(|(_, route)| route.queue.as_str()).collect();
        let most = |rest: u64| {
            let rest = usize::try_from(rest).unwrap_or(usize::MAX);
            number(rest.saturating_mul(look.reach))
        };
        let most: Vec<Option<i64>> = routes()
            .map(|(_, route)| budget.rest(route).map(most))
            .collect();
        let ids = chosen.ids();
        let claim = self
            .sql()
            .claim_jobs
            .query()
            .table(&[("route", &ids), ("queue", &queues), ("most", &most)])
            .bind(chosen.last.id)
            .bind(look.request.aging.interval_millis())
            .bind(number(look.look_at()))
            .bind(number(look.wanted))
            .bind(look.request.node.as_uuid())
            .bind(look.request.payloads)
            .bind(chosen.last.stamp);
        let rows = lease.rows(claim).await?;
        let mut round = Round {
            outdated: false,
            candidates: 0,
            now: 0,
            claimed: Vec::with_capacity(rows.len()),
            unreadable: Vec::new(),
            refused: 0,
            bounded: false,
        };
        for row in &rows {
            round.outdated = !row.try_get::<bool>(0)?;
            round.candidates = row::count(row.try_get::<i64>(1)?, "candidates")?;
            round.now = row.try_get(2)?;
            let Some(id) = row.try_get::<Option<Uuid>>(3)? else {
                break;
            };
            let node = Some(look.request.node);
            let now = from_millis(round.now);
            let token = ClaimToken::new(id.into(), row::seq(row, 4)?, node, now);
            let route = row.try_get(5).ok().and_then(|route| chosen.get(route));
            match decode(row, token, route, look.request.payloads) {
                Ok(job) => round.claimed.push(job),
                Err(problem) => {
                    let error = problem.of_stored_job();
                    tracing::warn!(job = %token.job, error, "failed a job that cannot be read");
                    let failed = Settlement::new(token, Outcome::Failed { error });
                    round
                        .unreadable
                        .push((route.cloned(), failed.without_attempt()));
                }
            }
        }
        Ok(round)
    }
}

/// The claim of a row of `claim_jobs`, or what of it cannot be read.
fn decode(
    row: &impl Row,
    token: ClaimToken,
    route: Option<&Route>,
    payloads: bool,
) -> std::result::Result<ClaimedJob, InvalidInput> {
    let broken = |_: Failure| InvalidInput::new("the row", "cannot be decoded");
    let level: i16 = row.try_get(6).map_err(broken)?;
    let mut claim = Claim::new(
        token,
        route
            .cloned()
            .ok_or_else(|| InvalidInput::new("route", "is missing"))?,
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
    let flags: i16 = row.try_get(20).map_err(broken)?;
    claim.awaited = flags & (HAS_CHILDREN | IN_BATCH) != 0;
    claim.trace = row::trace(row, 14, 15)?;
    let input = payloads.then(|| JobInput {
        payload: row::json(row, 16).unwrap_or_else(|| Json::from_stored("null")),
        checkpoint: row::json(row, 17),
    });
    Ok(ClaimedJob { claim, input })
}

/// Waits for work until this time, if there is one; none if it took longer. What was going on then is
/// dropped with its connection; the node's next heartbeat lists the jobs that it claimed all the same.
async fn soon<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match end {
        None => Some(work.await),
        Some(end) if time::monotonic() >= end => None,
        Some(end) => tokio::time::timeout_at(end, work).await.ok(),
    }
}

/// Puts jobs into claim order: the statement returns them in any.
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

    #[test]
    fn a_claim_that_began_with_a_larger_reach_teaches_nothing() {
        let reach = Reach::new();
        reach.learn(1, 8);
        // One begins now, with 8, and meanwhile others find that 7 will do.
        for _ in 0..Reach::CALM {
            reach.learn(8, 8);
        }
        assert_eq!(reach.get(), 7);
        reach.learn(8, 8);
        assert_eq!(reach.get(), 7, "it had not to look further");
        // One that began with less, and needed less than is known to be needed.
        reach.learn(1, 4);
        assert_eq!(reach.get(), 7);
    }
}
