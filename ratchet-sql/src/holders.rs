//! Changes the jobs that have the unique keys of new jobs.
//!
//! An enqueue locks these jobs before it decides what becomes of them, so a claim and a settlement
//! wait, or have committed before. The change always writes the row of the job in `jobs`: a claim
//! that has seen the job before the change then skips it, and cannot run it with the old payload.

use std::collections::HashSet;

use ratchet_core::model::{
    HolderChange, JobFlags, KeyHolder, TakenKeys, payload_version_to_stored,
};
use ratchet_core::{JobId, JobState, StoreErrorKind};
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::store::SqlStore;

impl<D: Dialect> SqlStore<D> {
    /// Locks the jobs that have unique keys of new jobs, if an enqueue may change them. Adds them
    /// to `taken`. Returns the time of the database, and those of the jobs that have an expiry.
    /// Must run in a transaction.
    ///
    /// # Errors
    /// Returns `Contention` if one of the jobs no longer has its key. The caller must then repeat
    /// the whole transaction.
    pub(crate) async fn lock_holders(
        &self,
        on: &mut impl Run<D>,
        jobs: &[JobId],
        taken: &mut TakenKeys<'_>,
    ) -> Result<(i64, HashSet<JobId>)> {
        let (mut now, mut expiring) = (0, HashSet::new());
        if jobs.is_empty() {
            return Ok((now, expiring));
        }
        let ids: Vec<Uuid> = jobs.iter().map(JobId::as_uuid).collect();
        let lock = self.sql().lock_holders.query().bind(&ids);
        let mut found = 0;
        for row in on.rows(lock).await? {
            let job = row::job_id(&row, 0)?;
            let state = JobState::from_code(row.try_get::<i16>(1)?.into())?;
            if state.is_terminal() {
                continue;
            }
            found += 1;
            now = row.try_get(5)?;
            // A job whose kind cannot be read stays as it is.
            if let Ok(Some(kind)) = row::name(&row, 2, "kind") {
                let (run_at, created_at) = (row.try_get(3)?, row.try_get(4)?);
                let holder = KeyHolder::new(job, state, kind, run_at, created_at);
                let flags: JobFlags = row.try_get(6)?;
                expiring.extend(flags.has_any(JobFlags::EXPIRES).then_some(job));
                taken.holder(holder);
            }
        }
        if found < jobs.len() {
            let text = "the job that held a unique key released it during the call";
            return Err(Failure::new(StoreErrorKind::Contention, text));
        }
        Ok((now, expiring))
    }

    /// Changes jobs that [`lock_holders`](Self::lock_holders) has locked. `expiring` are those that
    /// have an expiry.
    pub(crate) async fn change_holders(
        &self,
        on: &mut impl Run<D>,
        changes: &[HolderChange],
        expiring: &HashSet<JobId>,
    ) -> Result<()> {
        let sql = self.sql();
        let mut replaced = (vec![], vec![], vec![], vec![], vec![]);
        let (mut giving_up, mut cancelled) = (Vec::new(), Vec::new());
        let (mut had, mut has) = (Vec::new(), Vec::new());
        for change in changes {
            let job = change.job().as_uuid();
            match change {
                HolderChange::Replace {
                    payload,
                    payload_version,
                    run_at,
                    expires_at,
                    ..
                } => {
                    had.extend(expiring.contains(&change.job()).then_some(job));
                    has.extend(expires_at.map(|at| (job, at)));
                    replaced.0.push(job);
                    replaced.1.push(payload.as_str());
                    replaced.2.push(payload_version_to_stored(*payload_version));
                    replaced.3.push(*run_at);
                    replaced.4.push(expires_at.is_some());
                }
                HolderChange::GiveUp { cancel, .. } => {
                    giving_up.push(job);
                    cancelled.extend(cancel.then_some(job));
                }
            }
        }
        if !replaced.0.is_empty() {
            on.execute(sql.replace_payloads.query().table(&[
                ("job", &replaced.0),
                ("payload", &replaced.1),
                ("payload_version", &replaced.2),
                ("run_at", &replaced.3),
                ("expires", &replaced.4),
            ]))
            .await?;
            self.replace_expiries(on, &had, &has).await?;
        }
        if !giving_up.is_empty() {
            on.execute(sql.release_keys.query().bind(&giving_up))
                .await?;
        }
        if !cancelled.is_empty() {
            on.execute(sql.request_cancel.query().bind(&cancelled))
                .await?;
        }
        Ok(())
    }
}
