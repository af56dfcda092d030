use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::model::{JobFilter, QueueInfo, StateCounts};
use crate::name::Name;
use crate::store::{Changed, QueueStore};

pub(super) fn changed(changed: bool) -> Changed {
    if changed {
        Changed::Changed
    } else {
        Changed::Unchanged
    }
}

#[async_trait]
impl QueueStore for MemoryStore {
    async fn pause_queue(&self, queue: &Name) -> Result<Changed> {
        self.call("pause_queue", |tables, _| {
            Ok(changed(tables.paused_queues.insert(queue.clone())))
        })
        .await
    }

    async fn resume_queue(&self, queue: &Name) -> Result<Changed> {
        self.call("resume_queue", |tables, _| {
            Ok(changed(tables.paused_queues.remove(queue)))
        })
        .await
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.call("queues", |tables, _| {
            let mut queues: BTreeMap<Name, StateCounts> = tables
                .paused_queues
                .iter()
                .map(|queue| (queue.clone(), StateCounts::new()))
                .collect();
            for row in tables.jobs() {
                let counts = queues.entry(row.job.spec.route.queue.clone()).or_default();
                *counts.entry(row.job.state).or_default() += 1;
            }
            let info = |(name, counts)| QueueInfo {
                paused: tables.paused_queues.contains(&name),
                name,
                counts,
            };
            Ok(queues.into_iter().map(info).collect())
        })
        .await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        self.call("count_jobs", |tables, _| {
            let mut counts = StateCounts::new();
            for row in tables.jobs().filter(|row| filter.matches(&row.job)) {
                *counts.entry(row.job.state).or_default() += 1;
            }
            Ok(counts)
        })
        .await
    }
}
