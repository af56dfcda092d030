//! Settles claims, and stores the reports of running bodies.

use std::collections::{HashMap, HashSet};

use ratchet_core::model::{Fenced, JobFlags, LastReport, NextRun, Report, Reported, Settlement};
use ratchet_core::time::{duration_micros, duration_millis, to_millis};
use ratchet_core::{ClaimToken, JobState, Json};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result;
use crate::held::{PATIENCE, held_too_long, unless_held};
use crate::lanes::Places;
use crate::row;
use crate::store::SqlStore;

/// Maximum delay before a job's next run, in milliseconds. The database can add it to a time
/// without overflow.
const LONGEST_DELAY: i64 = i64::MAX / 2;

/// A settlement of a job for which other jobs wait, or which another transaction has locked.
struct Awaited<'a> {
    settlement: &'a Settlement,
    has_lane: bool,
}

/// Parameters of the statement `settle_jobs`: one list per column, one value per settlement.
#[derive(Default)]
struct Columns<'a> {
    jobs: Vec<Uuid>,
    seqs: Vec<i64>,
    states: Vec<i16>,
    delays: Vec<Option<i64>>,
    attempts: Vec<i32>,
    outcomes: Vec<i16>,
    errors: Vec<Option<&'a str>>,
    results: Vec<Option<&'a str>>,
    ran_for: Vec<Option<i64>>,
    nodes: Vec<Uuid>,
    claimed_at: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, settlement: &'a Settlement, seq: i64) {
        // Pass `false`, as if no cancellation was requested. Only the database knows about
        // requested cancellations, so the statement itself applies them.
        let effect = settlement.effect(false);
        self.jobs.push(settlement.token.job.as_uuid());
        self.seqs.push(seq);
        self.states.push(effect.state.code().into());
        self.delays.push(match effect.next_run {
            NextRun::Unchanged => None,
            NextRun::In(delay) => Some(duration_millis(delay).min(LONGEST_DELAY)),
        });
        self.attempts
            .push(i32::try_from(effect.attempts_added).unwrap_or(i32::MAX));
        self.outcomes.push(effect.record.code().into());
        self.errors.push(effect.error);
        self.results
            .push(effect.result.map(|result| result.as_str()));
        self.ran_for.push(settlement.ran_for.map(duration_micros));
        self.nodes.push(row::owner(&settlement.token));
        self.claimed_at.push(to_millis(settlement.token.claimed_at));
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Applies the settlements of one call. Returns for each whether it was applied or stale.
    ///
    /// One statement ends at most one claim of each job, because a job stores only the token of its
    /// last settlement. If a call contains several settlements of the same job, which is rare, they
    /// are applied one after the other.
    ///
    /// Jobs that other jobs wait for are settled last, in a separate transaction. Another job waits
    /// if it is in the same lane, or is linked to the job or to its batch.
    pub(crate) async fn settle_jobs(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        let mut lease = self.lease().await?;
        let mut answers = vec![Fenced::Stale; settlements.len()];
        for mut turn in Settlement::turns(settlements) {
            // Sort by id, so that all calls lock jobs in the same order.
            turn.sort_unstable_by_key(|place| settlements[*place].token.job);
            let one_each: Vec<&Settlement> =
                turn.iter().map(|place| &settlements[*place]).collect();
            let mut applied = HashSet::new();
            let awaited = self
                .settle_turn(&mut lease, &one_each, &mut applied)
                .await?;
            if !awaited.is_empty() {
                self.settle_awaited(&mut lease, &awaited, &mut applied)
                    .await?;
            }
            for place in turn {
                if applied.contains(&settlements[place].token) {
                    answers[place] = Fenced::Applied;
                }
            }
        }
        Ok(answers)
    }

    /// Applies these settlements, at most one per job. Skips a settlement if other jobs wait for
    /// its job, or if another transaction has locked its job. Returns the skipped settlements.
    async fn settle_turn<'a>(
        &self,
        lease: &mut D::Lease,
        settlements: &[&'a Settlement],
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<Vec<Awaited<'a>>> {
        let ended = self.end_claims(lease, settlements, false, applied).await;
        if unless_held(ended)?.is_none() {
            lease.begin().await?;
            let ended = self.end_free(lease, settlements, applied).await;
            lease.finish(ended).await?;
        }
        let awaited = self.find_settled(lease, settlements, applied).await?;
        let mut found = Vec::with_capacity(awaited.len());
        for settlement in settlements {
            if let Some(flags) = awaited.get(&settlement.token) {
                let has_lane = flags.has_any(JobFlags::LANE);
                found.push(Awaited {
                    settlement,
                    has_lane,
                });
            }
        }
        Ok(found)
    }

    /// Applies those settlements whose jobs no other transaction has locked.
    async fn end_free(
        &self,
        lease: &mut D::Lease,
        settlements: &[&Settlement],
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<()> {
        let free = self.lock_free(lease, jobs_of(settlements)).await?;
        let settlements = settlements.iter().copied();
        let free: Vec<&Settlement> = settlements
            .filter(|settlement| free.contains(&settlement.token.job.as_uuid()))
            .collect();
        self.end_claims(lease, &free, false, applied).await?;
        Ok(())
    }

    /// Applies settlements of jobs for which other jobs wait, or which another transaction has
    /// locked. First settles all jobs that are not locked. Only then waits for each locked job.
    async fn settle_awaited(
        &self,
        lease: &mut D::Lease,
        awaited: &[Awaited<'_>],
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<()> {
        lease.begin_within(PATIENCE).await?;
        let mut ended = HashSet::new();
        let later = self.end_together(lease, awaited, &mut ended).await;
        let later = match unless_held(lease.finish(later).await)? {
            Some(later) => {
                applied.extend(ended);
                later
            }
            None => awaited.iter().collect(),
        };
        let mut held = None;
        for one in later {
            lease.begin_within(self.deadline() / 4).await?;
            let mut ended = HashSet::new();
            let settled = self.end_alone(lease, one, &mut ended).await;
            match unless_held(lease.finish(settled).await)? {
                Some(()) => applied.extend(ended),
                None => held = Some(held_too_long()),
            }
        }
        if let Some(held) = held {
            return Err(held);
        }
        // A concurrent call with the same tokens may have settled some of these claims. Count those
        // as applied.
        let settlements: Vec<&Settlement> = awaited.iter().map(|one| one.settlement).collect();
        self.find_settled(lease, &settlements, applied).await?;
        Ok(())
    }

    /// Applies those settlements whose jobs and lanes no other transaction has locked. Returns the
    /// other settlements.
    async fn end_together<'a>(
        &self,
        lease: &mut D::Lease,
        awaited: &'a [Awaited<'a>],
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<Vec<&'a Awaited<'a>>> {
        let heads = awaited.iter().filter(|one| one.has_lane);
        let heads: Vec<Uuid> = heads
            .map(|one| one.settlement.token.job.as_uuid())
            .collect();
        let (locked, places) = if heads.is_empty() {
            Default::default()
        } else {
            self.lock_lanes(lease, &heads).await?
        };
        let settlements: Vec<&Settlement> = awaited.iter().map(|one| one.settlement).collect();
        let free = self.lock_free(lease, jobs_of(&settlements)).await?;
        let (now, later): (Vec<&Awaited<'_>>, Vec<&Awaited<'_>>) =
            awaited.iter().partition(|one| {
                let job = one.settlement.token.job;
                free.contains(&job.as_uuid()) && (!one.has_lane || locked.contains(&job))
            });
        let now: Vec<&Settlement> = now.iter().map(|one| one.settlement).collect();
        self.end_awaited(lease, &now, places, applied).await?;
        Ok(later)
    }

    /// Applies one settlement, and waits if another transaction has locked its job or lane.
    async fn end_alone(
        &self,
        lease: &mut D::Lease,
        one: &Awaited<'_>,
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<()> {
        let job = one.settlement.token.job.as_uuid();
        let lanes = self.lanes_of(lease, &[job]).await?;
        let places = self.enter_lanes(lease, lanes.into_values()).await?;
        self.end_awaited(lease, &[one.settlement], places, applied)
            .await
    }

    /// Applies settlements of jobs whose lanes this transaction has locked. Also applies the
    /// effects on the jobs that wait for the ended jobs.
    async fn end_awaited(
        &self,
        lease: &mut D::Lease,
        settlements: &[&Settlement],
        places: Places,
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<()> {
        let ended = self.end_claims(lease, settlements, true, applied).await?;
        let of_lanes = ended
            .iter()
            .filter(|(_, flags)| flags.has_any(JobFlags::LANE));
        let of_lanes: Vec<Uuid> = of_lanes.map(|(id, _)| *id).collect();
        self.leave_lanes(lease, places, &of_lanes).await?;
        self.follow_ends(lease, &ended).await
    }

    /// Runs the statement that ends claims, and adds the tokens of the ended claims to `applied`.
    /// Returns the jobs that ended, with their flags.
    ///
    /// If `followed` is `false`, skips jobs that would end while other jobs wait for their end. If
    /// it is `true`, the caller must apply the effects on the waiting jobs.
    async fn end_claims(
        &self,
        lease: &mut D::Lease,
        settlements: &[&Settlement],
        followed: bool,
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<Vec<(Uuid, JobFlags)>> {
        let mut columns = Columns::default();
        for settlement in settlements {
            // No stored claim has a number above `i64::MAX`, so such a settlement is stale.
            if let Ok(seq) = i64::try_from(settlement.token.seq) {
                columns.push(settlement, seq);
            }
        }
        let settle = self
            .sql()
            .settle_jobs
            .query()
            .table(&[
                ("job", &columns.jobs),
                ("seq", &columns.seqs),
                ("state", &columns.states),
                ("delay", &columns.delays),
                ("attempts", &columns.attempts),
                ("outcome", &columns.outcomes),
                ("error", &columns.errors),
                ("result", &columns.results),
                ("ran_for", &columns.ran_for),
                ("node", &columns.nodes),
                ("claimed_at", &columns.claimed_at),
            ])
            .bind(followed);
        let mut ended = Vec::new();
        for row in lease.rows(settle).await? {
            let token = row::token(&row, [0, 1, 4, 5])?;
            applied.insert(token);
            if JobState::from_code(row.try_get::<i16>(2)?.into())?.is_terminal() {
                ended.push((token.job.as_uuid(), row.try_get(3)?));
            }
        }
        Ok(ended)
    }

    /// Reads the current claims of the jobs whose settlements are not in `applied`. Adds to
    /// `applied` the tokens that an earlier call settled. Returns the tokens of the claims that are
    /// still running, with the flags of their jobs.
    async fn find_settled(
        &self,
        lease: &mut D::Lease,
        settlements: &[&Settlement],
        applied: &mut HashSet<ClaimToken>,
    ) -> Result<HashMap<ClaimToken, JobFlags>> {
        let missing: Vec<Uuid> = settlements
            .iter()
            .filter(|settlement| !applied.contains(&settlement.token))
            .map(|settlement| settlement.token.job.as_uuid())
            .collect();
        let mut awaited = HashMap::new();
        if missing.is_empty() {
            return Ok(awaited);
        }
        let find = self.sql().find_settled.query().bind(&missing);
        for row in lease.rows(find).await? {
            let settled = row::token(&row, [0, 1, 4, 5])?;
            let running = row::token(&row, [0, 2, 6, 7])?;
            // The number 0 means no claim.
            applied.extend((settled.seq > 0).then_some(settled));
            if running.seq > 0 {
                awaited.insert(running, row.try_get(3)?);
            }
        }
        Ok(awaited)
    }

    /// Stores the reports of running bodies. Returns an answer for each report.
    pub(crate) async fn keep_reports(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let told: Vec<(ClaimToken, LastReport<'_>)> =
            Report::last_of_each(reports).into_iter().collect();
        let mut alive = HashMap::with_capacity(told.len());
        let mut lease = self.lease().await?;
        let all = self.tell(&mut lease, &told, &mut alive).await;
        if unless_held(all)?.is_none() {
            lease.begin().await?;
            let free = self.tell_free(&mut lease, told, &mut alive).await;
            let held = lease.finish(free).await?;
            let held = self.tell(&mut lease, &held, &mut alive).await;
            unless_held(held)?.ok_or_else(held_too_long)?;
        }
        Ok(Report::answers(reports, |token| alive.get(&token).copied()))
    }

    /// Stores the reports of those claims whose jobs no other transaction has locked. Returns the
    /// other reports.
    async fn tell_free<'a>(
        &self,
        lease: &mut D::Lease,
        told: Vec<(ClaimToken, LastReport<'a>)>,
        alive: &mut HashMap<ClaimToken, bool>,
    ) -> Result<Vec<(ClaimToken, LastReport<'a>)>> {
        let jobs = told.iter().map(|(token, _)| token.job.as_uuid()).collect();
        let free = self.lock_free(lease, jobs).await?;
        let (free, held): (Vec<_>, Vec<_>) = told
            .into_iter()
            .partition(|(token, _)| free.contains(&token.job.as_uuid()));
        self.tell(lease, &free, alive).await?;
        Ok(held)
    }

    /// Stores the reports. For each claim that is still valid, inserts an entry into `alive`: its
    /// token, and whether the cancellation of its job was requested.
    async fn tell(
        &self,
        lease: &mut D::Lease,
        told: &[(ClaimToken, LastReport<'_>)],
        alive: &mut HashMap<ClaimToken, bool>,
    ) -> Result<()> {
        let mut columns = (vec![], vec![], vec![], vec![], vec![], vec![], vec![]);
        for (token, told) in told {
            if let Ok(seq) = i64::try_from(token.seq) {
                columns.0.push(token.job.as_uuid());
                columns.1.push(seq);
                columns
                    .2
                    .push(told.progress.map(|(percent, _)| i16::from(percent)));
                columns.3.push(told.progress.map(|(_, message)| message));
                columns.4.push(told.checkpoint.map(Json::as_str));
                columns.5.push(row::owner(token));
                columns.6.push(to_millis(token.claimed_at));
            }
        }
        let report = self.sql().report_life.query().table(&[
            ("job", &columns.0),
            ("seq", &columns.1),
            ("percent", &columns.2),
            ("message", &columns.3),
            ("checkpoint", &columns.4),
            ("node", &columns.5),
            ("claimed_at", &columns.6),
        ]);
        for row in lease.rows(report).await? {
            let token = row::token(&row, [0, 1, 2, 3])?;
            alive.insert(token, row.try_get(4)?);
        }
        Ok(())
    }
}

fn jobs_of(settlements: &[&Settlement]) -> Vec<Uuid> {
    let jobs = settlements.iter();
    jobs.map(|settlement| settlement.token.job.as_uuid())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratchet_core::JobId;
    use ratchet_core::model::{AttemptOutcome, Outcome};
    use ratchet_core::time::Timestamp;

    use super::*;

    /// The statement `settle_jobs` applies a requested cancellation in SQL. Its result must be the
    /// same as that of the core's `Settlement::effect`.
    #[test]
    fn the_statement_knows_what_a_requested_cancellation_does() {
        let (delay, error) = (Duration::from_secs(1), "e".to_owned());
        let outcomes = [
            Outcome::Succeeded {
                result: Some(Json::from_stored("1")),
            },
            Outcome::Retry {
                delay,
                error: error.clone(),
            },
            Outcome::Failed { error },
            Outcome::Snoozed { delay },
            Outcome::Released,
            Outcome::Cancelled,
        ];
        for outcome in outcomes {
            let settlement = Settlement::new(
                ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH),
                outcome,
            );
            let effect = settlement.effect(true);
            assert_eq!(effect.state, JobState::Cancelled);
            assert_eq!(effect.state.code(), 6);
            assert_eq!(effect.record, AttemptOutcome::Cancelled);
            assert_eq!(effect.record.code(), 5);
            assert_eq!(effect.next_run, NextRun::Unchanged);
            assert_eq!(effect.error, None);
            assert_eq!(effect.result, None);
            let plain = settlement.effect(false);
            assert_eq!(effect.attempts_added, plain.attempts_added);
            assert_eq!(plain.state.is_terminal(), plain.state.code() >= 4);
        }
    }
}
