//! Expiries of jobs: until when jobs must begin. Only a job with an expiry has a row in `expiries`,
//! and only such a job has the flag `EXPIRES`. Each transaction locks the rows of jobs before it
//! changes their expiries.

use std::collections::{BTreeMap, HashMap};

use ratchet_core::model::{ClaimedJob, JobFlags, NewJob, is_expired};
use ratchet_core::time::from_millis;
use ratchet_core::{JobId, JobState};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result;
use crate::row;
use crate::store::SqlStore;

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

    /// Gives jobs other expiries, or none. The caller has locked the jobs. `had` are the jobs that
    /// have had an expiry until now, and `has` are those that have one from now on, with the time.
    pub(crate) async fn replace_expiries(
        &self,
        on: &mut impl Run<D>,
        had: &[Uuid],
        has: &[(Uuid, i64)],
    ) -> Result<()> {
        self.drop_expiries(on, had).await?;
        if has.is_empty() {
            return Ok(());
        }
        let jobs: Vec<Uuid> = has.iter().map(|(job, _)| *job).collect();
        on.execute(self.sql().flag_expiries.query().bind(&jobs))
            .await?;
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

    /// Deletes the expiries of jobs that were claimed before them at `now`, because these jobs have
    /// begun. Adds the expiries that have passed to the claims. `expiring` are the claimed jobs
    /// that may have an expiry. `[expiry.begun]` `[expiry.claim]`
    ///
    /// If the process ends after the claim and before this, no node has got the claim, so the job
    /// has not begun.
    pub(crate) async fn begin_expiring(
        &self,
        on: &mut impl Run<D>,
        claimed: &mut [ClaimedJob],
        expiring: &[Uuid],
        now: i64,
    ) -> Result<()> {
        let claimed = claimed.iter_mut().map(|job| &mut job.claim);
        let mut claims: HashMap<JobId, _> = claimed.map(|claim| (claim.token.job, claim)).collect();
        let jobs = expiring.iter().copied();
        let jobs: Vec<Uuid> = jobs
            .filter(|job| claims.contains_key(&JobId::from(*job)))
            .collect();
        let mut begun = Vec::new();
        for (job, expires_at) in self.expiries_of(on, &jobs).await? {
            match claims.get_mut(&job) {
                Some(claim) if is_expired(expires_at, now) => {
                    claim.expires_at = Some(from_millis(expires_at));
                }
                _ => begun.push(job.as_uuid()),
            }
        }
        self.drop_expiries(on, &begun).await
    }

    /// Cancels up to `limit` waiting jobs that have expired, and returns them in order of id.
    pub(crate) async fn cancel_expired(&self, limit: usize) -> Result<Vec<JobId>> {
        let mut expired = Vec::new();
        let mut lease = self.lease().await?;
        // The statement also returns jobs that have ended otherwise. They do not count towards the
        // limit, and no later pass finds them again.
        while expired.len() < limit {
            let wanted = limit - expired.len();
            let overdue = self.sql().overdue_expiries.query();
            let overdue = overdue.bind(i64::try_from(wanted).unwrap_or(i64::MAX));
            let mut jobs: Vec<Uuid> = Vec::new();
            for row in lease.rows(overdue).await? {
                jobs.push(row.try_get(0)?);
            }
            if jobs.is_empty() {
                break;
            }
            lease.begin().await?;
            let ended = self.end_expired(&mut lease, &jobs).await;
            expired.extend(lease.finish(ended).await?);
            if jobs.len() < wanted {
                break;
            }
        }
        expired.sort_unstable();
        Ok(expired)
    }

    /// Cancels those of these jobs that wait and have expired, and returns them. Marks the expiries
    /// of jobs that have ended otherwise.
    async fn end_expired(&self, lease: &mut D::Lease, jobs: &[Uuid]) -> Result<Vec<JobId>> {
        let sql = self.sql();
        // All calls lock lanes before jobs.
        let lanes = self.lanes_of(lease, jobs).await?;
        let places = self.enter_lanes(lease, lanes.into_values()).await?;
        let mut found: BTreeMap<Uuid, (JobState, JobFlags)> = BTreeMap::new();
        for row in lease.rows(sql.read_state.query().bind(jobs)).await? {
            let state = JobState::from_code(row.try_get::<i16>(1)?.into())?;
            // A claim that ends without its job leaves the job to a later pass.
            if state != JobState::Running {
                found.insert(row.try_get(0)?, (state, row.try_get(2)?));
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
