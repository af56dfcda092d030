//! Expiries of jobs: until when jobs must begin. Only a job with an expiry has a row in `expiries`.
//! Such a job has the flag `EXPIRES`. Each transaction locks the rows of jobs before it changes
//! their expiries.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ratchet_core::model::{JobFlags, NewJob};
use ratchet_core::time;
use ratchet_core::{JobId, JobState, StoreErrorKind};
use tokio::time::Instant;
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::held::{PATIENCE, unless_held};
use crate::row;
use crate::store::SqlStore;

/// Flags of jobs whose end changes other rows than their own. A pass may have to wait for such a
/// row, because another transaction has locked it.
const TIED: JobFlags = JobFlags::AWAITED.or(JobFlags::UNIQUE_KEY);

/// Maximum time that the end of one expired job waits for a row that another transaction has
/// locked, after the jobs of a pass could not end together.
const PATIENCE_FOR_ONE: Duration = Duration::from_millis(20);

/// The expired jobs whose end had to wait in the last passes, because another transaction had
/// locked a row that it changes, and in how many passes. A pass tries them last, those first that
/// were held least often. So they do not use up the time of all passes, even if each of them waits
/// for a second, which is the least on MySQL.
pub(crate) type HeldExpiries = HashMap<Uuid, u32>;

/// A pass over expired jobs.
struct Pass {
    /// When the pass no longer begins to end jobs that it may have to wait for.
    until: Instant,
    held_before: HeldExpiries,
    /// The jobs that are held now, for the next pass.
    held: HeldExpiries,
}

impl<D: Dialect> SqlStore<D> {
    /// Stores the expiries of those of these new jobs that have one. Must run in the transaction
    /// that has stored the jobs.
    pub(crate) async fn add_expiries(
        &self,
        on: &mut impl Run<D>,
        jobs: impl Iterator<Item = &NewJob>,
    ) -> Result<()> {
        let expiring = jobs.filter_map(|job| {
            let (expires_at, delay) = row::due(job.expiry()?);
            Some((job.id().as_uuid(), expires_at, delay))
        });
        self.put_expiries(on, expiring).await
    }

    /// Gives jobs other expiries, or none. The caller has locked the jobs, and sets their flags.
    /// `had` are the jobs that have an expiry until now, and `has` are those that have one from now
    /// on, with the time.
    pub(crate) async fn replace_expiries(
        &self,
        on: &mut impl Run<D>,
        had: &[Uuid],
        has: &[(Uuid, i64)],
    ) -> Result<()> {
        self.drop_expiries(on, had).await?;
        let expiring = has.iter().map(|(job, at)| (*job, Some(*at), 0));
        self.put_expiries(on, expiring).await
    }

    async fn put_expiries(
        &self,
        on: &mut impl Run<D>,
        expiring: impl Iterator<Item = (Uuid, Option<i64>, i64)>,
    ) -> Result<()> {
        let (mut jobs, mut times, mut delays) = (Vec::new(), Vec::new(), Vec::new());
        for (job, expires_at, delay) in expiring {
            jobs.push(job);
            times.push(expires_at);
            delays.push(delay);
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let add = self.sql().add_expiries.query().table(&[
            ("job", &jobs),
            ("expires_at", &times),
            ("delay", &delays),
        ]);
        on.execute(add).await.map(drop)
    }

    /// Deletes the expiries of these jobs.
    pub(crate) async fn drop_expiries(&self, on: &mut impl Run<D>, jobs: &[Uuid]) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let remove = self.sql().drop_expiries.query().bind(jobs);
        on.execute(remove).await.map(drop)
    }

    /// Returns the expiries of those of these jobs that have one, in milliseconds since 1970.
    pub(crate) async fn expiries_of(
        &self,
        on: &mut impl Run<D>,
        jobs: &[Uuid],
    ) -> Result<HashMap<JobId, i64>> {
        let mut expiries = HashMap::new();
        if jobs.is_empty() {
            return Ok(expiries);
        }
        let find = self.sql().expiries_of.query().bind(jobs);
        for row in on.rows(find).await? {
            expiries.insert(row::job_id(&row, 0)?, row.try_get(1)?);
        }
        Ok(expiries)
    }

    /// Cancels up to `limit` waiting jobs that have expired, and returns them in order of id.
    /// Leaves out jobs that other transactions have locked. `[expiry.pass]` `[expiry.limit]`
    pub(crate) async fn cancel_expired(&self, limit: usize) -> Result<Vec<JobId>> {
        let mut expired = Vec::new();
        let mut lease = self.lease().await?;
        let held = std::mem::take(&mut *self.held_expiries());
        let mut pass = Pass {
            until: time::monotonic() + self.deadline() / 4,
            held_before: held,
            held: HeldExpiries::new(),
        };
        let done = self
            .expire_pages(&mut lease, limit, &mut pass, &mut expired)
            .await;
        *self.held_expiries() = pass.held;
        expired.sort_unstable();
        match done {
            Err(failure) if expired.is_empty() => Err(failure),
            Err(failure) => {
                // These jobs have ended, and no other call returns them.
                let error = failure.to_string();
                tracing::debug!(error, "a pass over expired jobs ended early");
                Ok(expired)
            }
            Ok(()) => Ok(expired),
        }
    }

    async fn expire_pages(
        &self,
        lease: &mut D::Lease,
        limit: usize,
        pass: &mut Pass,
        expired: &mut Vec<JobId>,
    ) -> Result<()> {
        // Expiry and id of the last job that was read. The statement also returns jobs that have
        // ended otherwise. They do not count towards the limit, and no later pass finds them again.
        let mut behind = (i64::MIN, Uuid::nil());
        let mut last_tried = Vec::new();
        while expired.len() < limit {
            let wanted = limit - expired.len();
            let overdue = self.sql().overdue_expiries.query();
            let overdue = overdue
                .bind(i64::try_from(wanted).unwrap_or(i64::MAX))
                .bind(behind.0)
                .bind(behind.1);
            let (mut alone, mut tied) = (Vec::new(), Vec::new());
            let rows = lease.rows(overdue).await?;
            for row in &rows {
                let (expiry, job): (i64, Uuid) = (row.try_get(1)?, row.try_get(0)?);
                if (expiry, job) <= behind {
                    let text = "the database returned expired jobs in a wrong order";
                    return Err(Failure::new(StoreErrorKind::Other, text));
                }
                behind = (expiry, job);
                match row.try_get::<JobFlags>(2)?.has_any(TIED) {
                    true => match pass.held_before.get(&job) {
                        Some(times) => last_tried.push((*times, job)),
                        None => tied.push(job),
                    },
                    false => alone.push(job),
                }
            }
            let ended = self.expire_together(lease, &alone, PATIENCE).await?;
            expired.extend(ended.into_iter().flatten());
            self.expire_tied(lease, &tied, pass, expired).await?;
            if rows.len() < wanted {
                break;
            }
        }
        // The sort is stable: of jobs that were held equally often, the longest overdue is first.
        last_tried.sort_by_key(|(times, _)| *times);
        for (times, job) in last_tried {
            if expired.len() < limit {
                self.expire_one(lease, (times, job), pass, expired).await?;
            }
        }
        Ok(())
    }

    /// Cancels those of these jobs that have expired, and adds them to `expired`. If the end of one
    /// of them would change a row that another transaction has locked, such as that of its batch,
    /// ends each job in its own transaction. Leaves out the jobs that remain when the pass must
    /// end.
    async fn expire_tied(
        &self,
        lease: &mut D::Lease,
        jobs: &[Uuid],
        pass: &mut Pass,
        expired: &mut Vec<JobId>,
    ) -> Result<()> {
        if jobs.len() > 1 && time::monotonic() < pass.until {
            let ended = self.expire_together(lease, jobs, PATIENCE).await?;
            if let Some(ended) = ended {
                expired.extend(ended);
                return Ok(());
            }
        }
        for job in jobs {
            self.expire_one(lease, (0, *job), pass, expired).await?;
        }
        Ok(())
    }

    /// Cancels this job if it has expired, and adds it to `expired`. `times` is in how many passes
    /// before another transaction had locked a row that the end of the job changes. Does nothing if
    /// the pass must end.
    async fn expire_one(
        &self,
        lease: &mut D::Lease,
        (times, job): (u32, Uuid),
        pass: &mut Pass,
        expired: &mut Vec<JobId>,
    ) -> Result<()> {
        if time::monotonic() < pass.until {
            let alone = self
                .expire_together(lease, &[job], PATIENCE_FOR_ONE)
                .await?;
            match alone {
                Some(ended) => expired.extend(ended),
                None => drop(pass.held.insert(job, times.saturating_add(1))),
            }
        } else if times > 0 {
            pass.held.insert(job, times);
        }
        Ok(())
    }

    /// Cancels those of these jobs that have expired and that no other transaction has locked, in
    /// one transaction, and returns them. Returns `None` if their end would change another row that
    /// remained locked for this time.
    async fn expire_together(
        &self,
        lease: &mut D::Lease,
        jobs: &[Uuid],
        patience: Duration,
    ) -> Result<Option<Vec<JobId>>> {
        if jobs.is_empty() {
            return Ok(None);
        }
        lease.begin_within(patience).await?;
        let ended = self.end_expired(lease, jobs).await;
        unless_held(lease.finish(ended).await)
    }

    /// Cancels those of these jobs that wait and have expired, and returns them. Marks the expiries
    /// of jobs that have ended otherwise. Leaves out jobs that another transaction has locked, or
    /// whose lanes it has locked.
    async fn end_expired(&self, lease: &mut D::Lease, jobs: &[Uuid]) -> Result<Vec<JobId>> {
        let sql = self.sql();
        // All calls lock lanes before jobs.
        let (of_locked_lanes, places) = self.lock_lanes(lease, jobs).await?;
        let free = self.lock_free(lease, jobs.to_vec()).await?;
        let free: Vec<Uuid> = free.into_iter().collect();
        let mut found: BTreeMap<Uuid, (JobState, JobFlags)> = BTreeMap::new();
        if !free.is_empty() {
            for row in lease.rows(sql.read_state.query().bind(&free)).await? {
                let (id, flags): (Uuid, JobFlags) = (row.try_get(0)?, row.try_get(2)?);
                let state = JobState::from_code(row.try_get::<i16>(1)?.into())?;
                let can_end =
                    !flags.has_any(JobFlags::LANE) || of_locked_lanes.contains(&id.into());
                // If the claim of a running job ends without a body, a later pass ends the job.
                if state.is_terminal() || (state.is_waiting() && can_end) {
                    found.insert(id, (state, flags));
                }
            }
        }
        let mut ended: Vec<(Uuid, JobFlags)> = Vec::new();
        if !found.is_empty() {
            let close: Vec<Uuid> = found.keys().copied().collect();
            for row in lease.rows(sql.close_expiries.query().bind(&close)).await? {
                let id: Uuid = row.try_get(0)?;
                let job = found.get(&id).filter(|(state, _)| state.is_waiting());
                ended.extend(job.map(|(_, flags)| (id, *flags)));
            }
        }
        let ids: Vec<Uuid> = ended.iter().map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            let states = vec![i16::from(JobState::Cancelled.code()); ids.len()];
            let change = sql.change_state.query();
            let change = change.table(&[("job", &ids), ("state", &states)]);
            lease.execute(change).await?;
        }
        let of_lanes = ended.iter();
        let of_lanes = of_lanes.filter(|(_, flags)| flags.has_any(JobFlags::LANE));
        let of_lanes: Vec<Uuid> = of_lanes.map(|(id, _)| *id).collect();
        self.leave_lanes(lease, places, &of_lanes).await?;
        self.follow_ends(lease, &ended).await?;
        Ok(ids.into_iter().map(JobId::from).collect())
    }
}
