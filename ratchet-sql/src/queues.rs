//! [`QueueStore`] on SQL.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{DueRoute, PauseInfo, PauseRequest, PauseScope, Pauses, QueueInfo};
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
    async fn pause(&self, request: &PauseRequest) -> Result<Changed> {
        self.call("pause", || self.add_pause(request)).await
    }

    async fn resume(&self, scope: &PauseScope) -> Result<Changed> {
        self.call("resume", || async {
            let resume = self.sql().resume.query();
            let resume = resume
                .bind(i16::from(scope.code()))
                .bind(scope.name().as_str());
            let rows = self.lease().await?.execute(resume).await?;
            Ok(Changed::when(rows > 0))
        })
        .await
    }

    async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        self.call("pauses", || async {
            let pauses = self.read_pauses(&mut self.lease().await?).await?;
            Ok(pauses.into_list())
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

    async fn separate_queues(&self, limit: usize) -> Result<u64> {
        self.call("separate_queues", || self.move_misplaced(limit))
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
                    let route = DueRoute::at(route, row.try_get(4)?, 0, row.try_get(6)?);
                    due.push(route.kind_paused(row.try_get(5)?));
                }
                Err(error) => tracing::warn!(%error, "skipped a stored route that cannot be read"),
            }
        }
        DueRoute::sort(&mut due);
        Ok(due)
    }

    /// Moves pending jobs of paused and marked queues from shared routes to routes of their own.
    async fn move_misplaced(&self, limit: usize) -> Inner<u64> {
        let Some(sql) = self.sql().own.queues() else {
            return Ok(0);
        };
        // A node that claims jobs soon knows the routes that others have added.
        if !self.routes().has_shared() {
            return Ok(0);
        }
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let misplaced = self.lease().await?.rows(sql.misplaced_jobs.query()).await?;
        let mut moved = 0;
        for row in &misplaced {
            if moved >= limit {
                break;
            }
            // Columns: the shared route, and then the texts of the own route.
            let shared: i32 = row.try_get(0)?;
            let Ok(own) = row::route(row, 1) else {
                continue;
            };
            let queue = own.queue.clone();
            let own = self.routes().own(self.pools(), self.sql(), own).await?;
            let Some(own) = own else {
                continue;
            };
            let left = i64::try_from(limit - moved).unwrap_or(i64::MAX);
            let step = sql.move_jobs.query().bind(queue.as_str()).bind(shared);
            let step = step.bind(own.id).bind(own.stamp).bind(left);
            moved += self.lease().await?.execute(step).await?;
        }
        Ok(moved)
    }

    async fn add_pause(&self, request: &PauseRequest) -> Inner<Changed> {
        let pause = self.sql().pause.query();
        let pause = pause
            .bind(i16::from(request.scope.code()))
            .bind(request.scope.name().as_str())
            .bind(request.by_text())
            .bind(request.reason_text());
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
        let pauses = self.read_pauses(&mut lease).await?;
        let mut counts = Vec::new();
        for row in lease.rows(self.sql().count_jobs.query()).await? {
            if let Ok(Some(queue)) = row::name(&row, 0, "queue") {
                let state = JobState::from_code(row.try_get::<i16>(1)?.into())?;
                counts.push((queue, state, row::count(row.try_get::<i64>(2)?, "count")?));
            }
        }
        Ok(QueueInfo::collect(&pauses, counts))
    }

    async fn read_pauses(&self, lease: &mut D::Lease) -> Inner<Pauses> {
        let mut pauses = Pauses::default();
        for row in lease.rows(self.sql().pauses.query()).await? {
            match pause(&row) {
                Ok(pause) => _ = pauses.add(pause),
                Err(error) => tracing::warn!(%error, "skipped a pause that cannot be read"),
            }
        }
        Ok(pauses)
    }
}

fn pause(row: &impl Row) -> Inner<PauseInfo> {
    let code: i16 = row.try_get(0)?;
    Ok(PauseInfo::from_stored(
        code.into(),
        row.try_get(1)?,
        row.try_get(2)?,
        row.try_get(3)?,
        row.try_get(4)?,
    )?)
}
