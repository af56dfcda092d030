//! [`SignalStore`] on SQL. Each transaction locks the rows of jobs before it changes their signals.

use async_trait::async_trait;
use ratchet_core::model::{Delivered, Signal, SignalTarget};
use ratchet_core::store::SignalStore;
use ratchet_core::{JobId, JobState, Json, Name, Result};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result as Inner;
use crate::links_read::{self, StoredSignal};
use crate::row;
use crate::store::SqlStore;

#[async_trait]
impl<D: Dialect> SignalStore for SqlStore<D> {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        // A repeated delivery could reach other jobs. It could also report that the signal was
        // already delivered.
        self.call_once("deliver", || self.deliver_signal(signal))
            .await
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        self.call_once("expire", || self.expire_signals(limit))
            .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn deliver_signal(&self, signal: &Signal) -> Inner<Delivered> {
        let mut lease = self.lease().await?;
        lease.begin().await?;
        let delivered = match &signal.target {
            SignalTarget::Key(key) => self.signal_all(&mut lease, key, &signal.payload).await,
            SignalTarget::Job(job) => self.signal_one(&mut lease, *job, &signal.payload).await,
            // This version does not know this kind of target.
            _ => Ok(Delivered::NotFound),
        };
        lease.end(delivered).await
    }

    async fn signal_all(
        &self,
        lease: &mut D::Lease,
        key: &Name,
        payload: &Json,
    ) -> Inner<Delivered> {
        let sql = self.sql();
        let find = sql.waiting_signals.query().bind(key.as_str());
        let mut waiting: Vec<Uuid> = Vec::new();
        for row in lease.rows(find).await? {
            waiting.push(row.try_get(0)?);
        }
        if !waiting.is_empty() {
            lease.rows(sql.read_state.query().bind(&waiting)).await?;
            let taken = self.take_signals(lease, &waiting, payload).await?;
            if !taken.is_empty() {
                return Ok(Delivered::To(taken));
            }
        }
        let find = sql.signal_was_had.query().bind(key.as_str());
        let mut had = false;
        for row in lease.rows(find).await? {
            had = row.try_get(0)?;
        }
        Ok(if had {
            Delivered::Already
        } else {
            Delivered::NotFound
        })
    }

    async fn signal_one(
        &self,
        lease: &mut D::Lease,
        job: JobId,
        payload: &Json,
    ) -> Inner<Delivered> {
        let (sql, one) = (self.sql(), [job.as_uuid()]);
        let found = lease.rows(sql.read_state.query().bind(&one[..])).await?;
        let Some(found) = found.first() else {
            return Ok(Delivered::NotFound);
        };
        let state = JobState::from_code(found.try_get::<i16>(1)?.into())?;
        let signals = lease.rows(sql.signals_of.query().bind(&one[..])).await?;
        if let Some(signal) = signals.first().map(StoredSignal::read).transpose()? {
            if signal.record.delivered.is_some() {
                return Ok(Delivered::Already);
            }
            if signal.is_open() && !signal.too_late {
                let taken = self.take_signals(lease, &one, payload).await?;
                if !taken.is_empty() {
                    return Ok(Delivered::To(taken));
                }
            }
        }
        Ok(Delivered::NotWaiting(state))
    }

    /// Delivers the payload to each of these jobs that waits for a signal. The caller must have
    /// locked the jobs. Returns the jobs that received the payload, in order of id.
    async fn take_signals(
        &self,
        lease: &mut D::Lease,
        waiting: &[Uuid],
        payload: &Json,
    ) -> Inner<Vec<JobId>> {
        let sql = self.sql();
        let take = sql.take_signals.query();
        let take = take.bind(waiting).bind(payload.as_str());
        let rows = lease.rows(take).await?;
        let taken: Inner<Vec<JobId>> = rows.iter().map(|row| row::job_id(row, 0)).collect();
        let mut taken = taken?;
        taken.sort_unstable();
        let ids: Vec<Uuid> = taken.iter().map(JobId::as_uuid).collect();
        if ids.is_empty() {
            return Ok(taken);
        }
        let mut free = ids.clone();
        for row in lease.rows(sql.open_links.query().bind(&ids)).await? {
            let linked: Uuid = row.try_get(0)?;
            free.retain(|id| *id != linked);
        }
        if !free.is_empty() {
            lease.execute(sql.release_jobs.query().bind(&free)).await?;
        }
        Ok(taken)
    }

    async fn expire_signals(&self, limit: usize) -> Inner<Vec<JobId>> {
        let mut lease = self.lease().await?;
        let overdue = self.sql().overdue_signals.query();
        let overdue = overdue.bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut jobs: Vec<Uuid> = Vec::new();
        for row in lease.rows(overdue).await? {
            jobs.push(row.try_get(0)?);
        }
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        lease.begin().await?;
        let failed = self.fail_waiting(&mut lease, &jobs).await;
        lease.end(failed).await
    }

    /// Fails each of these jobs that still waits for an overdue signal. Returns the failed jobs, in
    /// order of id.
    async fn fail_waiting(&self, lease: &mut D::Lease, jobs: &[Uuid]) -> Inner<Vec<JobId>> {
        let sql = self.sql();
        let mut flags = Vec::with_capacity(jobs.len());
        for row in lease.rows(sql.read_state.query().bind(jobs)).await? {
            flags.push((row.try_get(0)?, row.try_get(2)?));
        }
        let mut failed = Vec::new();
        let mut errors = Vec::new();
        for row in lease.rows(sql.miss_signals.query().bind(jobs)).await? {
            failed.push(row::job_id(&row, 0)?);
            errors.push(match links_read::wait(&row) {
                Ok(wait) => wait.missed(),
                Err(problem) => problem.of_stored_job(),
            });
        }
        if failed.is_empty() {
            return Ok(failed);
        }
        let ids: Vec<Uuid> = failed.iter().map(JobId::as_uuid).collect();
        let states = vec![i16::from(JobState::Failed.code()); ids.len()];
        lease
            .execute(
                sql.change_state
                    .query()
                    .table(&[("job", &ids), ("state", &states)]),
            )
            .await?;
        lease
            .execute(
                sql.keep_errors
                    .query()
                    .table(&[("job", &ids), ("error", &errors)]),
            )
            .await?;
        flags.retain(|(id, _)| ids.contains(id));
        self.follow_ends(lease, &flags).await?;
        failed.sort_unstable();
        Ok(failed)
    }
}
