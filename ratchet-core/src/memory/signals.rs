use async_trait::async_trait;

use super::MemoryStore;
use super::tables::{Row, Tables};
use crate::error::Result;
use crate::id::JobId;
use crate::json::Json;
use crate::links::is_too_late;
use crate::model::{Delivered, Signal, SignalTarget};
use crate::name::Name;
use crate::state::JobState;
use crate::store::SignalStore;
use crate::time::{self, from_millis};

#[async_trait]
impl SignalStore for MemoryStore {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        self.call("deliver", |tables, now| {
            Ok(match &signal.target {
                SignalTarget::Key(key) => tables.signal_all(key, &signal.payload, now),
                SignalTarget::Job(job) => tables.signal_one(*job, &signal.payload, now),
            })
        })
        .await
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        self.call("expire", |tables, now| {
            let overdue = tables.jobs().filter(|row| row.awaits_signal());
            let overdue = overdue.filter_map(|row| {
                let deadline = row.deadline().filter(|at| is_too_late(*at, now))?;
                Some((deadline, row.job.id))
            });
            let mut overdue: Vec<(i64, JobId)> = overdue.collect();
            overdue.sort_unstable();
            overdue.truncate(limit);
            let mut failed: Vec<JobId> = overdue.into_iter().map(|(_, id)| id).collect();
            failed.sort_unstable();
            for id in &failed {
                tables.change(*id, |row| {
                    let wait = row.job.spec.signal.as_ref();
                    row.job.last_error = wait.map(|wait| wait.missed());
                    row.enter(JobState::Failed, from_millis(now));
                });
            }
            Ok(failed)
        })
        .await
    }
}

impl Row {
    fn deadline(&self) -> Option<i64> {
        let signal = self.job.signal.as_ref()?;
        Some(time::to_millis(signal.deadline))
    }

    /// Returns whether the job would accept a signal that arrives at `now`.
    fn takes_signal(&self, now: i64) -> bool {
        self.awaits_signal() && self.deadline().is_some_and(|at| !is_too_late(at, now))
    }
}

impl Tables {
    fn signal_one(&mut self, job: JobId, payload: &Json, now: i64) -> Delivered {
        let Some(row) = self.job(job) else {
            return Delivered::NotFound;
        };
        if row.takes_signal(now) {
            self.take_signal(job, payload, now);
            return Delivered::To(vec![job]);
        }
        let signal = row.job.signal.as_ref();
        if signal.is_some_and(|signal| signal.delivered.is_some()) {
            return Delivered::Already;
        }
        Delivered::NotWaiting(row.job.state)
    }

    fn signal_all(&mut self, key: &Name, payload: &Json, now: i64) -> Delivered {
        let has_key = |row: &&Row| {
            row.job
                .spec
                .signal
                .as_ref()
                .is_some_and(|one| one.key == *key)
        };
        let rows = || self.jobs().filter(has_key);
        let waiting = rows().filter(|row| row.takes_signal(now));
        let waiting: Vec<JobId> = waiting.map(|row| row.job.id).collect();
        if waiting.is_empty() {
            let mut signals = rows().filter_map(|row| row.job.signal.as_ref());
            return if signals.any(|signal| signal.delivered.is_some()) {
                Delivered::Already
            } else {
                Delivered::NotFound
            };
        }
        for job in &waiting {
            self.take_signal(*job, payload, now);
        }
        Delivered::To(waiting)
    }

    fn take_signal(&mut self, job: JobId, payload: &Json, now: i64) {
        self.change(job, |row| {
            if let Some(signal) = row.job.signal.take() {
                row.job.signal = Some(signal.delivered(from_millis(now), payload.clone()));
            }
        });
        if !self.links.has_open(job) {
            self.release(job, now);
        }
    }
}
