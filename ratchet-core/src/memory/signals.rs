use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::id::JobId;
use crate::json::Json;
use crate::model::{Delivered, Signal, SignalTarget, StoredJob};
use crate::name::Name;
use crate::store::SignalStore;

#[async_trait]
impl SignalStore for MemoryStore {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        self.write(Command::Deliver(signal.into())).await
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        self.write(Command::Expire { limit }).await
    }
}

impl Tables {
    pub(super) fn deliver(&mut self, signal: &Signal, now: i64) -> Delivered {
        match &signal.target {
            SignalTarget::Key(key) => self.signal_all(key, &signal.payload, now),
            SignalTarget::Job(job) => self.signal_one(*job, &signal.payload, now),
        }
    }

    /// Returns the jobs that have waited too long for their signal, in order of their ids.
    pub(super) fn overdue(&self, limit: usize, now: i64) -> Vec<JobId> {
        let overdue = self.jobs().filter(|job| job.is_signal_overdue(now));
        let overdue = overdue.filter_map(|job| Some((job.signal_deadline()?, job.record.id)));
        let mut overdue: Vec<(i64, JobId)> = overdue.collect();
        overdue.sort_unstable();
        overdue.truncate(limit);
        let mut overdue: Vec<JobId> = overdue.into_iter().map(|(_, id)| id).collect();
        overdue.sort_unstable();
        overdue
    }

    pub(super) fn expire(&mut self, limit: usize, now: i64) -> Vec<JobId> {
        let failed = self.overdue(limit, now);
        for id in &failed {
            self.change(*id, |job| job.miss_signal(now));
        }
        failed
    }

    fn signal_one(&mut self, job: JobId, payload: &Json, now: i64) -> Delivered {
        let Some(row) = self.job(job) else {
            return Delivered::NotFound;
        };
        if row.takes_signal(now) {
            self.change(job, |job| job.deliver(payload, now));
            return Delivered::To(vec![job]);
        }
        if row.has_signal() {
            return Delivered::Already;
        }
        Delivered::NotWaiting(row.record.state)
    }

    fn signal_all(&mut self, key: &Name, payload: &Json, now: i64) -> Delivered {
        let has_key = |row: &&StoredJob| {
            row.record
                .spec
                .signal
                .as_ref()
                .is_some_and(|one| one.key == *key)
        };
        let rows = || self.jobs().filter(has_key);
        let waiting = rows().filter(|row| row.takes_signal(now));
        let waiting: Vec<JobId> = waiting.map(|row| row.record.id).collect();
        if waiting.is_empty() {
            return if rows().any(StoredJob::has_signal) {
                Delivered::Already
            } else {
                Delivered::NotFound
            };
        }
        for job in &waiting {
            self.change(*job, |job| job.deliver(payload, now));
        }
        Delivered::To(waiting)
    }
}
