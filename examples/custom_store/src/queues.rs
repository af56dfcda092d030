//! Queues: pausing, and which jobs are due.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{DueRoute, QueueInfo};
use ratchet_core::store::{Changed, QueueStore};
use ratchet_core::time;
use ratchet_core::{Name, Result, Route};

use crate::store::MapStore;

#[async_trait]
impl QueueStore for MapStore {
    async fn pause_queue(&self, queue: &Name) -> Result<Changed> {
        Ok(self.transaction(|tables, _| Changed::when(tables.paused_queues.insert(queue.clone()))))
    }

    async fn resume_queue(&self, queue: &Name) -> Result<Changed> {
        Ok(self.transaction(|tables, _| Changed::when(tables.paused_queues.remove(queue))))
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        Ok(self.transaction(|tables, _| {
            let jobs = tables.jobs.values().map(|row| &row.job);
            let counts = jobs.map(|job| (job.spec.route.queue.clone(), job.state, 1));
            QueueInfo::collect(&tables.paused_queues, counts)
        }))
    }

    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>> {
        Ok(self.transaction(|tables, now| {
            let until = now.saturating_add(time::duration_millis(within));
            let mut oldest: BTreeMap<&Route, i64> = BTreeMap::new();
            for job in tables.due(until) {
                let run_at = time::to_millis(job.run_at);
                let oldest = oldest.entry(&job.spec.route).or_insert(run_at);
                *oldest = run_at.min(*oldest);
            }
            let due = |(route, run_at): (&Route, i64)| {
                let paused = tables.paused_queues.contains(&route.queue);
                DueRoute::at(route.clone(), paused, run_at, now)
            };
            let mut routes: Vec<DueRoute> = oldest.into_iter().map(due).collect();
            DueRoute::sort(&mut routes);
            routes
        }))
    }

    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64> {
        Ok(self.transaction(|tables, now| {
            let due = tables.due(now).filter(|job| job.spec.route.queue == *queue);
            due.zip(0..limit).count() as u64
        }))
    }
}
