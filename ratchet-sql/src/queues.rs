//! [`QueueStore`] on SQL.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{DueRoute, QueueInfo};
use ratchet_core::store::{Changed, QueueStore};
use ratchet_core::time::duration_millis;
use ratchet_core::{JobState, Name, Result};

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result as Inner;
use crate::row;
use crate::statement::OwnStatements as _;
use crate::store::SqlStore;

/// If the reply to a call is lost, the store repeats the call. A repeated pause or resumption
/// returns `Unchanged`, even if the first call made the change.
#[async_trait]
impl<D: Dialect> QueueStore for SqlStore<D> {
    async fn pause_queue(&self, queue: &Name) -> Result<Changed> {
        self.call("pause_queue", || self.pause(queue)).await
    }

    async fn resume_queue(&self, queue: &Name) -> Result<Changed> {
        self.call("resume_queue", || async {
            let resume = self.sql().resume_queue.query().bind(queue.as_str());
            let rows = self.lease().await?.execute(resume).await?;
            Ok(Changed::when(rows > 0))
        })
        .await
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.call("queues", || self.list_queues()).await
    }

    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>> {
        self.call("due_routes", || self.list_due(within)).await
    }

    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.call("count_due", || async {
            let count = self.sql().count_due.query();
            let count = count.bind(queue.as_str()).bind(limit);
            let rows = self.lease().await?.rows(count).await?;
            let due: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
            Ok(row::count(due, "count")?)
        })
        .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn list_due(&self, within: Duration) -> Inner<Vec<DueRoute>> {
        let routes = self.sql().due_routes.query();
        let routes = routes.bind(duration_millis(within));
        let rows = self.lease().await?.rows(routes).await?;
        let mut due = Vec::with_capacity(rows.len());
        for row in &rows {
            match row::route(row, 0) {
                Ok(route) => {
                    due.push(DueRoute::at(route, row.try_get(4)?, 0, row.try_get(5)?));
                }
                Err(error) => tracing::warn!(%error, "skipped a stored route that cannot be read"),
            }
        }
        DueRoute::sort(&mut due);
        Ok(due)
    }

    async fn pause(&self, queue: &Name) -> Inner<Changed> {
        let pause = self.sql().pause_queue.query().bind(queue.as_str());
        let mut lease = self.lease().await?;
        let Some(claims) = self.sql().own.await_claims() else {
            return Ok(Changed::when(lease.changed(pause).await? > 0));
        };
        lease.begin().await?;
        let paused = async {
            lease.script(claims).await?;
            lease.changed(pause).await
        }
        .await;
        Ok(Changed::when(lease.end(paused).await? > 0))
    }

    async fn list_queues(&self) -> Inner<Vec<QueueInfo>> {
        let mut lease = self.lease().await?;
        let mut paused = BTreeSet::new();
        for row in lease.rows(self.sql().paused_queues.query()).await? {
            paused.extend(row::name(&row, 0, "queue").ok().flatten());
        }
        let mut counts = Vec::new();
        for row in lease.rows(self.sql().count_jobs.query()).await? {
            if let Ok(Some(queue)) = row::name(&row, 0, "queue") {
                let state = JobState::from_code(row.try_get::<i16>(1)?.into())?;
                counts.push((queue, state, row::count(row.try_get::<i64>(2)?, "count")?));
            }
        }
        Ok(QueueInfo::collect(&paused, counts))
    }
}
