use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::model::{DueRoute, PauseInfo, PauseRequest, PauseScope, QueueInfo, StoredJob};
use crate::name::Name;
use crate::route::Route;
use crate::store::{Changed, QueueStore};
use crate::time;

#[async_trait]
impl QueueStore for MemoryStore {
    async fn pause(&self, request: &PauseRequest) -> Result<Changed> {
        self.write(Command::Pause(request.into())).await
    }

    async fn resume(&self, scope: &PauseScope) -> Result<Changed> {
        self.write(Command::Resume(scope.clone())).await
    }

    async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        self.read("pauses", |tables, _| tables.pauses.clone().into_list())
            .await
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.read("queues", |tables, _| {
            let one = |row: &StoredJob| (row.record.spec.route.queue.clone(), row.record.state, 1);
            let counts = tables.jobs().map(one);
            QueueInfo::collect(&tables.pauses, counts)
        })
        .await
    }

    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>> {
        self.read("due_routes", |tables, now| {
            let until = now.saturating_add(time::duration_millis(within));
            let mut longest: BTreeMap<&Route, i64> = BTreeMap::new();
            for (route, _, jobs) in tables.indexes.pending_levels(|_| true) {
                let first = jobs.first_due();
                if let Some(run_at) = first.filter(|run_at| *run_at <= until) {
                    let longest = longest.entry(route).or_insert(run_at);
                    *longest = run_at.min(*longest);
                }
            }
            let due = |(route, run_at): (&Route, i64)| tables.pauses.due(route, run_at, now);
            let mut routes: Vec<DueRoute> = longest.into_iter().map(due).collect();
            DueRoute::sort(&mut routes);
            routes
        })
        .await
    }

    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64> {
        self.read("count_due", |tables, now| {
            let of_queue = tables.indexes.pending_levels(|route| route.queue == *queue);
            let due = of_queue.into_iter().flat_map(|(_, _, jobs)| jobs.due(now));
            due.zip(0..limit).count() as u64
        })
        .await
    }

    async fn separate_queues(&self, _limit: usize) -> Result<u64> {
        // Each queue has routes of its own, but the call fails as others do.
        self.read("separate_queues", |_, _| 0).await
    }
}

impl Tables {
    pub(super) fn pause(&mut self, request: &PauseRequest, now: i64) -> Changed {
        Changed::when(self.pauses.add(request.at(time::from_millis(now))))
    }

    pub(super) fn resume(&mut self, scope: &PauseScope) -> Changed {
        Changed::when(self.pauses.remove(scope))
    }
}
