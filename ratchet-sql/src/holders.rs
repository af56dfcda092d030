//! Changes the jobs that have the unique keys of new jobs.
//!
//! An enqueue locks these jobs before it decides what becomes of them, so a claim and a settlement
//! wait, or have committed before. The change always writes the row of the job in `jobs`: a claim
//! that has seen the job before the change then skips it, and cannot run it with the old payload.

use ratchet_core::model::{HolderChange, KeyHolder, TakenKeys, payload_version_to_stored};
use ratchet_core::{JobId, JobState, StoreErrorKind};
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::store::SqlStore;

impl<D: Dialect> SqlStore<D> {
    /// Locks the jobs that have unique keys of new jobs, if an enqueue may change them. Adds them
    /// to `taken`, and returns the time of the database. Must run in a transaction.
    ///
    /// # Errors
    /// Returns `Contention` if one of the jobs no longer has its key. The caller must then repeat
    /// the whole transaction.
    pub(crate) async fn lock_holders(
        &self,
        on: &mut impl Run<D>,
        jobs: &[JobId],
        taken: &mut TakenKeys<'_>,
    ) -> Result<i64> {
        if jobs.is_empty() {
            return Ok(0);
        }
        let ids: Vec<Uuid> = jobs.iter().map(JobId::as_uuid).collect();
        let lock = self.sql().lock_holders.query().bind(&ids);
        let (mut now, mut found) = (0, 0);
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
                taken.holder(holder.expiry(row::seq(&row, 6)?, row.try_get(7)?));
            }
        }
        if found < jobs.len() {
            let text = "the job that held a unique key released it during the call";
            return Err(Failure::new(StoreErrorKind::Contention, text));
        }
        Ok(now)
    }

    /// Changes jobs that [`lock_holders`](Self::lock_holders) has locked.
    pub(crate) async fn change_holders(
        &self,
        on: &mut impl Run<D>,
        changes: &[HolderChange],
    ) -> Result<()> {
        let sql = self.sql();
        let mut replaced = (vec![], vec![], vec![], vec![]);
        let (mut giving_up, mut cancelled) = (Vec::new(), Vec::new());
        let (mut had_expiry, mut expiring) = (Vec::new(), Vec::new());
        for change in changes {
            let job = change.job().as_uuid();
            match change {
                HolderChange::Replace {
                    payload,
                    payload_version,
                    run_at,
                    expires_at,
                    had_expiry: had,
                    ..
                } => {
                    had_expiry.extend(had.then_some(job));
                    expiring.extend(expires_at.map(|at| (job, at)));
                    replaced.0.push(job);
                    replaced.1.push(payload.as_str());
                    replaced.2.push(payload_version_to_stored(*payload_version));
                    replaced.3.push(*run_at);
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
            ]))
            .await?;
            self.replace_expiries(on, &had_expiry, &expiring).await?;
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
