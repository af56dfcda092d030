//! Claims due jobs in exact claim order, from an index.
//!
//! A round consists of four commands, however many jobs it claims: a read of the preconditions
//! (`gate`), a read of the candidates, a write that claims the candidates that are still free, and
//! a read of the claimed jobs. The last read also detects whether a queue or kind was paused or the
//! node has ended since the first read. If other claims took the first candidates, only the write
//! is repeated, for the next candidates.
//!
//! If there are routes of jobs with a fair key, the read of the candidates also looks for due jobs
//! without a turn. If there are any, the claim gives them turns (module `fair`) and reads the
//! candidates again.
//!
//! If there are routes whose jobs need permits, the claim reads the free permits before the
//! candidates, and claims the jobs that need permits in a separate transaction (module `permits`).
//!
//! If fair keys have limits, `gate` also looks for freed entries. The claim then first gives turns
//! to parked jobs (module `freed`). It takes jobs with a fair key in the same transaction as those
//! that need permits, which parks the jobs of keys that are at their limits. Then it searches
//! again, for the jobs behind them.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocument, RawDocumentBuf};
use mongodb::options::ReadConcern;
use ratchet_core::claiming::{Persistence, RoundFound, Rounds, SEARCH_TIME, until};
use ratchet_core::fair::PARKED_BY_A_CLAIM;
use ratchet_core::model::{
    Claim, ClaimRequest, ClaimedJob, JobInput, Outcome, PauseInfo, Pauses, Settlement,
};
use ratchet_core::time::{self, from_millis};
use ratchet_core::{ClaimToken, InvalidInput, JobId, Json, Name, Priority, RetryPolicy, Route};
use tokio::time::Instant;

use crate::candidates::{Candidate, Search};
use crate::ends::is_tied;
use crate::error::{Failure, Result};
use crate::fair_limits;
use crate::permits::Admitted;
use crate::pipelines::{self, Seen};
use crate::read::MOST_EMBEDDED;
use crate::routes::Last;
use crate::row;
use crate::store::{MongoStore, pause};

/// Limits of a claim's search for jobs. At a limit, the claim returns fewer jobs than requested.
const PERSISTENCE: Persistence = Persistence {
    rounds: 24,
    free_repeats: false,
    widens_bounded: false,
    after_some: usize::MAX,
    after_none: 3,
};

/// Number of consecutive writes without a claimed job after which a round ends. The round ends this
/// way only if it has already claimed at least half of the wanted jobs.
const IN_VAIN: usize = 3;

/// Maximum number of times that a claim tries to read the jobs that it has claimed.
const LOOKS: u32 = 6;

/// Result of the writes that claim jobs in one round.
struct Took {
    /// Candidates that the writes tried to claim.
    tried: Vec<JobId>,
    /// Number of jobs that the writes have certainly claimed.
    had: usize,
    /// Number of jobs that the writes have parked.
    parked: usize,
    /// Failure of a write that may or may not have claimed jobs.
    doubt: Option<Failure>,
}

/// Result of one round of a claim: a search for candidates, and the writes that claim them.
struct Round {
    /// Number of candidates that the search found.
    candidates: usize,
    /// Number of jobs that the round claimed, including jobs that it released again or could not
    /// read.
    had: usize,
    /// The database's time during the search, in milliseconds since 1970.
    now: i64,
    claimed: Vec<ClaimedJob>,
    /// Settlements that fail the claimed jobs that cannot be read.
    unreadable: Vec<Settlement>,
    /// Claimed jobs whose history is too long for the job's document.
    wordy: Vec<JobId>,
    /// Whether a lack of permits may have reduced the number of candidates.
    bounded: bool,
    /// Number of candidates that the round parked, because their keys are at their limits.
    parked: usize,
    /// Version of the limits of fair keys. `None` if the claim takes no jobs with a fair key.
    limits: Option<i64>,
    /// Whether the round gave back jobs, because limits have changed.
    limits_changed: bool,
}

/// Result of checking whether a claim may take jobs.
enum Gate {
    /// The claim takes no jobs, because the node is not active.
    Shut,
    /// The claim must first read the routes again, because the store does not know all of them, or
    /// look for limits, because it did not know that there are any.
    Outdated,
    /// The claim may take jobs.
    Open(Passed),
}

/// What a claim has read before it takes jobs.
struct Passed {
    /// The claim may take jobs that are due at this time.
    now: i64,
    /// The claim may take no jobs that these cover.
    pauses: Pauses,
    /// Version of the limits of fair keys.
    version: i64,
    /// Whether there are limits for the queues of the request.
    limits: bool,
    /// Routes with a fair key of the queues of the request, if they may have freed entries.
    freed: Vec<(i32, Name)>,
}

impl MongoStore {
    /// Claims up to `request.limit` due jobs, and returns them in claim order.
    pub(crate) async fn claim_jobs(
        &self,
        request: &ClaimRequest,
        deadline: Instant,
    ) -> Result<Vec<ClaimedJob>> {
        if let Err(error) = self.routes().mark(self.live(), request).await {
            // The claim works without this, but skips the jobs of the excluded queues.
            tracing::debug!(%error, "could not mark the queues that a claim excludes");
        }
        let mut claimed: Vec<ClaimedJob> = Vec::new();
        let mut first = None;
        let mut rounds = Rounds::begin(self.lookahead(), PERSISTENCE);
        // Time at which the search for more jobs stops. Set once some jobs are claimed.
        let mut end = None;
        let mut parked = 0;
        while rounds.begin_round() {
            let wanted = request.limit - claimed.len();
            // Only the first search gives turns, so a claim wakes a limited number of jobs.
            let search = Search {
                // If many jobs had to be parked, there are probably more of them.
                look_at: rounds.candidates_for(wanted).saturating_add(parked),
                wakes: first.is_none(),
                leaves_out_fair: parked >= PARKED_BY_A_CLAIM,
            };
            let round = match self.round(request, wanted, search, end).await {
                Ok(Some(round)) => round,
                Err(failure) if claimed.is_empty() => return Err(failure),
                // Stop if the node may not claim or no time is left. Also stop if the round failed
                // but earlier rounds claimed jobs, because the caller must get these jobs.
                _ => break,
            };
            first.get_or_insert(round.now);
            parked += round.parked;
            // Parked jobs were in the way of others.
            let had_others =
                round.parked > 0 && (round.bounded || round.candidates >= search.look_at);
            let found = RoundFound {
                wanted,
                candidates: round.candidates - round.parked,
                taken: round.had,
                bounded: round.bounded,
                // Failing the unreadable jobs releases their permits.
                conditions_changed: round.bounded && !round.unreadable.is_empty()
                    || had_others
                    || round.limits_changed,
            };
            claimed.extend(round.claimed);
            if end.is_none() && !claimed.is_empty() {
                end = Some(deadline.min(time::monotonic() + SEARCH_TIME));
            }
            if !round.wordy.is_empty() {
                let moved = until(end, self.move_attempts(&round.wordy)).await;
                if let Some(Err(error)) = moved {
                    tracing::warn!(%error, "could not move a long history; the next claim retries");
                }
            }
            if !round.unreadable.is_empty()
                && let Err(error) = self.settle_jobs(&round.unreadable).await
            {
                // The node's next heartbeat lists these claims, and the node releases them.
                tracing::warn!(%error, "could not settle unreadable jobs as failed");
                break;
            }
            if claimed.len() == request.limit || !rounds.looks_again(found) {
                break;
            }
        }
        rounds.end();
        if let Some(now) = first {
            ClaimedJob::sort(&mut claimed, request.aging, now);
        }
        Ok(claimed)
    }

    /// Runs one round of the claim. Returns `None` if the node may not claim, or if `end` is
    /// reached during the search for candidates.
    ///
    /// After the search, `end` no longer interrupts the round. An interruption could leave claims
    /// that no caller knows.
    async fn round(
        &self,
        request: &ClaimRequest,
        wanted: usize,
        search: Search,
        end: Option<Instant>,
    ) -> Result<Option<Round>> {
        let found = until(end, self.look(request, search)).await;
        let Some((candidates, mut round)) = found.transpose()?.flatten() else {
            return Ok(None);
        };
        let (call, now) = (ObjectId::new(), round.now);
        let took = self.take(request, candidates, wanted, call, now).await;
        round.parked = took.parked;
        if took.had == 0 && took.doubt.is_none() {
            return Ok(Some(round));
        }
        let rows = self.rows_taken(request, &took, call, round.limits).await?;
        self.look_at_taken(request, &mut round, &rows, call).await?;
        match took.doubt {
            Some(failure) if round.had == 0 => Err(failure),
            _ => Ok(Some(round)),
        }
    }

    /// Searches for candidates, and returns them with a round that has no claimed jobs yet. Returns
    /// `None` if the node may not claim.
    async fn look(
        &self,
        request: &ClaimRequest,
        search: Search,
    ) -> Result<Option<(Vec<Candidate>, Round)>> {
        let (now, bounded, limits, candidates) = loop {
            match self.gate(request).await? {
                Gate::Shut => return Ok(None),
                Gate::Outdated => {}
                Gate::Open(passed) => {
                    let Passed {
                        now,
                        pauses,
                        version,
                        limits,
                        mut freed,
                    } = passed;
                    freed.retain(|(_, queue)| pauses.of_queue(queue).is_none());
                    if search.wakes && !freed.is_empty() {
                        self.wake_parked(&freed, now).await?;
                    }
                    let mut chosen = self.choose_routes(request, &pauses, limits).await?;
                    let bounded = chosen.needs_permits();
                    let version = chosen.has_fair().then_some(version);
                    let found = self.candidates(request, &mut chosen, now, search);
                    if let Some(candidates) = found.await? {
                        break (now, bounded, version, candidates);
                    }
                }
            }
            self.routes().refresh(self.main()).await?;
        };
        let round = Round {
            candidates: candidates.len(),
            had: 0,
            now,
            claimed: Vec::new(),
            unreadable: Vec::new(),
            wordy: Vec::new(),
            bounded,
            parked: 0,
            limits,
            limits_changed: false,
        };
        Ok(Some((candidates, round)))
    }

    async fn gate(&self, request: &ClaimRequest) -> Result<Gate> {
        let side = self.main();
        let names = [side.nodes.name(), side.pauses.name(), side.routes.name()];
        let mut stages = pipelines::gate(request.node, names, self.now(side).await?);
        let mut fair = Vec::new();
        let looks_for_limits = self.has_seen_limits();
        if looks_for_limits {
            fair = self
                .routes()
                .fair_of(|queue| request.queues.contains(queue));
        }
        if !fair.is_empty() {
            stages.extend(fair_limits::noticed(side, &fair));
        }
        let rows = side
            .plain()
            .aggregate(&side.meta, stages, ReadConcern::majority())
            .await?;
        let (mut time, mut pauses) = (None, Pauses::default());
        let (mut version, mut limits, mut freed) = (0, false, false);
        for row in rows {
            if row.get("idle").is_ok_and(|status| status.is_some()) {
                return Ok(Gate::Shut);
            }
            if Last::find(&row)?.is_some_and(|last| last != self.routes().last()) {
                return Ok(Gate::Outdated);
            }
            time = row::optional_int(&row, "now")?.or(time);
            version = row::optional_int(&row, fair_limits::VERSION)?.unwrap_or(version);
            limits |= row::flag(&row, fair_limits::LIMITED);
            freed |= row::flag(&row, fair_limits::FREED);
            if let Some(pause) = paused(&row) {
                pauses.add(pause);
            }
        }
        let now = time.ok_or_else(|| InvalidInput::new("meta", "is missing"))?;
        if version > 0 && !looks_for_limits {
            self.note_limits();
            return Ok(Gate::Outdated);
        }
        if !freed {
            fair.clear();
        }
        Ok(Gate::Open(Passed {
            now,
            pauses,
            version,
            limits,
            freed: fair,
        }))
    }

    /// Claims up to `wanted` of the candidates, in order. If other claims have taken some of the
    /// first candidates, tries the next ones. Never skips a candidate that is still free, so each
    /// claim gets its jobs in claim order.
    ///
    /// Stops early if at least half of the wanted jobs are claimed, and the last few writes have
    /// claimed none. The next round then searches for the missing jobs.
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
            parked: 0,
            doubt: None,
        };
        let mut in_vain = 0;
        while took.had < wanted && !candidates.is_empty() && took.doubt.is_none() {
            if in_vain == IN_VAIN && took.had >= wanted / 2 {
                break;
            }
            let missing = (wanted - took.had).min(candidates.len());
            // A transaction may park many of the jobs that it checks. So if there are no others, it
            // also gets those that follow, and takes as many as are missing.
            let all = candidates.iter().take(missing + PARKED_BY_A_CLAIM);
            let in_front = all.take_while(|one| one.checked.is_some()).count();
            let (mut plain, mut checked) = (Vec::new(), Vec::new());
            for candidate in candidates.drain(..missing.max(in_front)) {
                took.tried.push(candidate.id);
                match candidate.checked {
                    None => plain.push((candidate.id, candidate.seen)),
                    Some(route) => checked.push((candidate.id, candidate.seen, route)),
                }
            }
            let rest = missing - plain.len();
            let mut had = 0;
            for taken in [
                self.take_plain(request, &plain, call, now).await,
                self.take_checked(request, &checked, rest, (call, now))
                    .await,
            ] {
                match taken {
                    Ok(Admitted { taken, parked }) => {
                        had += taken;
                        took.parked += parked;
                    }
                    Err(failure) => took.doubt = Some(failure),
                }
            }
            took.had += had;
            in_vain = if had == 0 { in_vain + 1 } else { 0 };
        }
        took
    }

    /// Claims the jobs in `chosen` that are still free. The jobs in `chosen` must not need permits
    /// or places.
    async fn take_plain(
        &self,
        request: &ClaimRequest,
        chosen: &[(JobId, Seen)],
        call: ObjectId,
        now: i64,
    ) -> Result<Admitted> {
        if chosen.is_empty() {
            return Ok(Admitted::default());
        }
        let side = self.main();
        let take = pipelines::take(request.node, call, now, false);
        let takeable = pipelines::takeable(chosen, now);
        let mut on = side.plain();
        // If another session has locked one of these jobs, the update stops after `SEARCH_TIME`,
        // and the claim returns fewer jobs.
        let taken = on.update_these_within(SEARCH_TIME, &side.jobs, takeable, take);
        Ok(Admitted {
            taken: usize::try_from(taken.await?).unwrap_or(chosen.len()),
            parked: 0,
        })
    }

    /// Reads the jobs that this call has marked as claimed. These include jobs of an update that
    /// stopped halfway or whose reply was lost. Retries a failed read, because no other call knows
    /// these claims.
    async fn rows_taken(
        &self,
        request: &ClaimRequest,
        took: &Took,
        call: ObjectId,
        limits: Option<i64>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let side = self.main();
        let names = [side.nodes.name(), side.pauses.name()];
        let mut tries = 0;
        loop {
            let look = async {
                let mut on = side.plain();
                if took.doubt.is_some() {
                    // A majority of the members may not have all of the writes yet. This update
                    // changes nothing, but it returns only when a majority has all of them.
                    let (mine, same) = pipelines::still_taken(&took.tried, call);
                    on.update_these(&side.jobs, mine, same).await?;
                }
                let limits = limits.map(|_| fair_limits::current_version(side.meta.name()));
                let stages = pipelines::look_at_taken(request, &took.tried, call, names, limits);
                on.aggregate(&side.jobs, stages, ReadConcern::majority())
                    .await
            };
            tries += 1;
            match look.await {
                Ok(rows) => return Ok(rows),
                Err(failure) if tries >= LOOKS || !failure.kind.is_transient() => {
                    return Err(failure);
                }
                Err(_) => tokio::time::sleep(pause(tries + 3)).await,
            }
        }
    }

    /// Decodes the claimed jobs, and adds them to `round`. Releases jobs whose queue or kind was
    /// paused after the search, and those whose keys may have got a limit. Releases all jobs if the
    /// node may no longer claim. [fair.limit.max]
    async fn look_at_taken(
        &self,
        request: &ClaimRequest,
        round: &mut Round,
        rows: &[RawDocumentBuf],
        call: ObjectId,
    ) -> Result<()> {
        let mut pauses = Pauses::default();
        let mut idle = false;
        let mut jobs: Vec<&RawDocumentBuf> = Vec::with_capacity(rows.len());
        for row in rows {
            if let Some(pause) = paused(row) {
                pauses.add(pause);
            } else if row.get("idle").is_ok_and(|status| status.is_some()) {
                idle = true;
            } else if let Some(version) = row::optional_int(row, fair_limits::VERSION)? {
                round.limits_changed = round.limits != Some(version);
            } else {
                jobs.push(row);
            }
        }
        round.had = jobs.len();
        let mut undone = Vec::new();
        for row in jobs {
            let token = match row::token(row) {
                Ok(token) => token,
                Err(error) => {
                    tracing::warn!(%error, "a claim that cannot be read is left to the reclaimer");
                    continue;
                }
            };
            let route = row::int(row, "route").unwrap_or_default();
            if route > i64::from(self.routes().seen()) {
                // The job moved to a new route after the search.
                self.routes().refresh(self.main()).await?;
            }
            let route = self.routes().get(route, row::queue(row));
            let is_uncounted = || {
                let has_key = row.get("fair_key").is_ok_and(|key| key.is_some());
                round.limits_changed && has_key && !row::flag(row, fair_limits::LIMITED)
            };
            let is_paused = |route: &Route| pauses.cover(route);
            if idle || route.as_ref().is_some_and(is_paused) || is_uncounted() {
                undone.push(token);
                continue;
            }
            if row::int(row, "kept").unwrap_or_default() > MOST_EMBEDDED {
                round.wordy.push(token.job);
            }
            match decode(row, token, route, request.payloads) {
                Ok(job) => round.claimed.push(job),
                Err(error) => {
                    tracing::warn!(job = %token.job, %error, "failed a job that cannot be read");
                    let failed = Settlement::unreadable(token, &error);
                    round.unreadable.push(failed);
                }
            }
        }
        if !undone.is_empty() {
            self.untake(&undone, call).await?;
        }
        Ok(())
    }

    /// Undoes these claims, which no caller has received.
    async fn untake(&self, claims: &[ClaimToken], call: ObjectId) -> Result<()> {
        let side = self.main();
        let jobs: Vec<JobId> = claims.iter().map(|token| token.job).collect();
        let (filter, update) = pipelines::untake(&jobs, call);
        let undone = side.plain().update_many(&side.jobs, filter, update).await?;
        if usize::try_from(undone) == Ok(claims.len()) {
            return Ok(());
        }
        // The update skipped the claims whose cancellation was requested. Releasing such a claim
        // cancels its job.
        let released = |token: &ClaimToken| Settlement::new(*token, Outcome::Released);
        let released: Vec<Settlement> = claims.iter().map(released).collect();
        self.settle_jobs(&released).await?;
        Ok(())
    }
}

/// Reads a pause from a row of the stage `paused`, without its time and its texts. Returns `None`
/// for every other row.
fn paused(row: &RawDocument) -> Option<PauseInfo> {
    let name = row::text(row, "paused").ok()??;
    PauseInfo::from_stored(row::int(row, "scope").ok()?, name, 0, "", "").ok()
}

/// Reads the claimed job from a document of the collection `jobs`. The error names the first field
/// that cannot be read.
fn decode(
    row: &RawDocument,
    token: ClaimToken,
    route: Option<Route>,
    payloads: bool,
) -> std::result::Result<ClaimedJob, InvalidInput> {
    let mut claim = Claim::new(
        token,
        route.ok_or_else(|| InvalidInput::new("route", "is missing"))?,
        Priority::from_level(row::int(row, "priority")?)?,
        from_millis(row::int(row, "run_at")?),
    );
    claim.attempts = row::count(row, "attempts")?;
    claim.crash_count = row::count(row, "crash_count")?;
    claim.payload_version = row::payload_version(row)?;
    claim.retry = RetryPolicy::from_stored(row::text(row, "retry")?)?;
    claim.timeout = row::duration(row, "timeout")?;
    claim.stall_timeout = row::duration(row, "stall_timeout")?;
    claim.lane = row::name(row, "lane")?;
    claim.awaited = is_tied(row);
    claim.limited = row::flag(row, fair_limits::LIMITED);
    claim.trace = row::trace(row)?;
    claim.expires_at = row::optional_int(row, "expires_at")?.map(from_millis);
    let input = payloads.then(|| JobInput {
        payload: row::json(row, "payload").unwrap_or_else(|| Json::from_stored("null")),
        checkpoint: row::json(row, "checkpoint"),
    });
    Ok(ClaimedJob { claim, input })
}
