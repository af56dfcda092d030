//! Reclaims jobs whose node or body is gone.

use std::collections::{HashMap, HashSet};

use ratchet_core::JobId;
use ratchet_core::model::{HeldClaim, JobFlags, Owner, ReclaimPass, ReclaimRequest, Reclaimed};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result;
use crate::held::{PATIENCE, unless_held};
use crate::row;
use crate::store::SqlStore;

/// A lost claim that this pass reclaims, with the values that were read from its row.
struct Lost {
    id: JobId,
    seq: i64,
    crash_count: i32,
    cancel_requested: bool,
    last_report: Option<i64>,
    node: Option<Uuid>,
    crashes: i32,
    state: i16,
    /// True if the reclaim ends the job and other jobs may wait for this end.
    awaited: bool,
    reclaimed: Reclaimed,
}

impl<D: Dialect> SqlStore<D> {
    /// Reclaims the lost claims of one pass, and returns them in order of job id.
    ///
    /// The core's rules decide which claims are lost. The write reclaims only claims that have not
    /// changed since they were read.
    pub(crate) async fn reclaim_jobs(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        let mut lease = self.lease().await?;
        let mut pass = ReclaimPass::of(request);
        for row in lease.rows(self.sql().running_jobs.query()).await? {
            if pass.is_full() {
                break;
            }
            if let Some(lost) = judge(&row, request)? {
                pass.add(lost.id, lost.node.is_some(), lost);
            }
        }
        let lost = pass.chosen();
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let (awaited, others): (Vec<&Lost>, Vec<&Lost>) = lost.iter().partition(|one| one.awaited);
        let taken = self.take_back(&mut lease, &others, false).await;
        let taken = match unless_held(taken)? {
            Some(taken) => taken,
            None => {
                lease.begin().await?;
                let taken = self.take_free_back(&mut lease, &others).await;
                lease.finish(taken).await?
            }
        };
        let mut taken: HashSet<JobId> = taken.into_keys().collect();
        for one in awaited {
            lease.begin_within(PATIENCE).await?;
            let done = self.take_awaited_back(&mut lease, one).await;
            // If another transaction has locked the job, a later pass reclaims the claim.
            if let Some(done) = unless_held(lease.finish(done).await)? {
                taken.extend(done.into_keys());
            }
        }
        Ok(lost
            .into_iter()
            .filter(|lost| taken.contains(&lost.id))
            .map(|lost| lost.reclaimed)
            .collect())
    }

    /// Reclaims those claims whose jobs no other transaction has locked. Returns the reclaimed jobs
    /// with their flags.
    async fn take_free_back(
        &self,
        lease: &mut D::Lease,
        lost: &[&Lost],
    ) -> Result<HashMap<JobId, JobFlags>> {
        let jobs = column(lost, |lost| lost.id.as_uuid());
        let free = self.lock_free(lease, jobs).await?;
        let lost = lost.iter().copied();
        let lost: Vec<&Lost> = lost
            .filter(|lost| free.contains(&lost.id.as_uuid()))
            .collect();
        self.take_back(lease, &lost, false).await
    }

    /// Reclaims one claim, which ends its job. Then applies the effects on the jobs that wait for
    /// the end of this job.
    async fn take_awaited_back(
        &self,
        lease: &mut D::Lease,
        one: &Lost,
    ) -> Result<HashMap<JobId, JobFlags>> {
        let lanes = self.lanes_of(lease, &[one.id.as_uuid()]).await?;
        let places = self.enter_lanes(lease, lanes.into_values()).await?;
        let done = self.take_back(lease, &[one], true).await?;
        let ended: Vec<(Uuid, JobFlags)> = done
            .iter()
            .map(|(id, flags)| (id.as_uuid(), *flags))
            .collect();
        let of_lanes = ended
            .iter()
            .filter(|(_, flags)| flags.has_any(JobFlags::LANE));
        let of_lanes: Vec<Uuid> = of_lanes.map(|(id, _)| *id).collect();
        self.leave_lanes(lease, places, &of_lanes).await?;
        self.follow_ends(lease, &ended).await?;
        Ok(done)
    }

    /// Runs the statement that reclaims these claims, and returns the reclaimed jobs with their
    /// flags.
    ///
    /// If `followed` is `false`, skips jobs that would end while other jobs wait for their end. If
    /// it is `true`, the caller must apply the effects on the waiting jobs.
    async fn take_back(
        &self,
        lease: &mut D::Lease,
        lost: &[&Lost],
        followed: bool,
    ) -> Result<HashMap<JobId, JobFlags>> {
        let jobs = column(lost, |lost| lost.id.as_uuid());
        let seqs = column(lost, |lost| lost.seq);
        let crash_counts = column(lost, |lost| lost.crash_count);
        let cancel_requested = column(lost, |lost| lost.cancel_requested);
        let last_reports = column(lost, |lost| lost.last_report);
        let nodes = column(lost, |lost| lost.node);
        let crashes = column(lost, |lost| lost.crashes);
        let states = column(lost, |lost| lost.state);
        let write = self
            .sql()
            .reclaim_jobs
            .query()
            .table(&[
                ("job", &jobs),
                ("seq", &seqs),
                ("crash_count", &crash_counts),
                ("cancel_requested", &cancel_requested),
                ("last_report", &last_reports),
                ("node", &nodes),
                ("crashes", &crashes),
                ("state", &states),
            ])
            .bind(followed);
        let rows = lease.rows(write).await?;
        rows.iter()
            .map(|row| Ok((row::job_id(row, 0)?, row.try_get(1)?)))
            .collect()
    }
}

fn column<T>(lost: &[&Lost], value: impl Fn(&Lost) -> T) -> Vec<T> {
    lost.iter().map(|lost| value(lost)).collect()
}

/// Decides whether the claim in a row of the statement `running_jobs` is lost. Returns `None` if
/// the claim is not lost.
fn judge(row: &impl Row, request: &ReclaimRequest) -> Result<Option<Lost>> {
    // A node that cannot be read counts as unknown.
    let known = row::node_record(row).ok().flatten();
    let now: i64 = row.try_get(13)?;
    let node: Option<Uuid> = row.try_get(20)?;
    let crash_count: i32 = row.try_get(16)?;
    let cancel_requested = row.try_get(17)?;
    let claim = HeldClaim {
        owner: match (node, &known) {
            (None, _) => Owner::Nobody,
            (Some(_), None) => Owner::Unknown {
                registry_since: row.try_get(24)?,
            },
            (Some(_), Some(node)) => Owner::Known(node),
        },
        claimed_at: row.try_get(18)?,
        last_report: row.try_get(19)?,
        timeout: row::duration(row, 21, "timeout").ok().flatten(),
        stall_timeout: row::duration(row, 22, "stall_timeout").ok().flatten(),
        crash_count: u32::try_from(crash_count).ok(),
        cancel_requested,
    };
    let Some(effect) = request.judge(&claim, now) else {
        return Ok(None);
    };
    let (id, seq) = (row::job_id(row, 14)?, row.try_get::<i64>(15)?);
    let token = row::token(row, [14, 15, 20, 18])?;
    Ok(Some(Lost {
        id,
        seq,
        crash_count,
        cancel_requested,
        last_report: claim.last_report,
        node,
        crashes: i32::try_from(effect.crash_count).unwrap_or(i32::MAX),
        state: effect.state.code().into(),
        awaited: effect.state.is_terminal()
            && row.try_get::<JobFlags>(23)?.has_any(JobFlags::AWAITED),
        reclaimed: effect.reclaimed(token),
    }))
}
