use std::time::Duration;

use async_trait::async_trait;

use super::{Checked, check};
use crate::error::Result;
use crate::limits::check_limit;
use crate::model::{DueRoute, PauseInfo, PauseRequest, PauseScope, QueueInfo};
use crate::name::Name;
use crate::store::{Changed, QueueStore, Store};

/// The maximum `within` that the door passes to the store's
/// [`due_routes`](QueueStore::due_routes): 100 years. The door shortens a longer duration.
const LONGEST_AHEAD: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

#[async_trait]
impl<S: Store + ?Sized> QueueStore for Checked<S> {
    async fn pause(&self, request: &PauseRequest) -> Result<Changed> {
        check("pause", request.validate())?;
        self.call("pause", || self.store.queues().pause(request))
            .await
    }

    async fn resume(&self, scope: &PauseScope) -> Result<Changed> {
        self.call("resume", || self.store.queues().resume(scope))
            .await
    }

    async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        self.call("pauses", || self.store.queues().pauses()).await
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.call("queues", || self.store.queues().queues()).await
    }

    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>> {
        let within = within.min(LONGEST_AHEAD);
        self.call("due_routes", || self.store.queues().due_routes(within))
            .await
    }

    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64> {
        if limit == 0 {
            return Ok(0);
        }
        self.call("count_due", || self.store.queues().count_due(queue, limit))
            .await
    }

    async fn separate_queues(&self, limit: usize) -> Result<u64> {
        check("separate_queues", check_limit("limit", limit))?;
        self.call("separate_queues", || {
            self.store.queues().separate_queues(limit)
        })
        .await
    }
}
