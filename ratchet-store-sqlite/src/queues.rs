//! [`QueueStore`] on SQLite.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{DueRoute, PauseInfo, PauseRequest, PauseScope, Pauses, QueueInfo};
use ratchet_core::store::{Changed, QueueStore};
use ratchet_core::time::duration_millis;
use ratchet_core::{InvalidInput, JobState, Name, Result};
use rusqlite::{Row, params};

use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl QueueStore for SqliteStore {
    async fn pause(&self, request: &PauseRequest) -> Result<Changed> {
        let request = request.clone();
        self.write("pause", Urgency::Normal, move |work| {
            let mut statement = work.conn.prepare_cached(&SQL.pause)?;
            let (scope, name) = (request.scope.code(), request.scope.name().as_str());
            let (by, reason) = (request.by_text(), request.reason_text());
            let rows = statement.execute(params![scope, name, work.now, by, reason])?;
            Ok(Changed::when(rows > 0))
        })
        .await
    }

    async fn resume(&self, scope: &PauseScope) -> Result<Changed> {
        let scope = scope.clone();
        self.write("resume", Urgency::Normal, move |work| {
            let mut statement = work.conn.prepare_cached(&SQL.resume)?;
            let rows = statement.execute(params![scope.code(), scope.name().as_str()])?;
            Ok(Changed::when(rows > 0))
        })
        .await
    }

    async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        let pauses = self.read("pauses", |work| pauses(work)).await?;
        Ok(pauses.into_list())
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.read("queues", list).await
    }

    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>> {
        let within = duration_millis(within);
        self.read("due_routes", move |work| due(work, within)).await
    }

    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64> {
        let (queue, limit) = (queue.clone(), i64::try_from(limit).unwrap_or(i64::MAX));
        self.read("count_due", move |work| {
            let mut statement = work.conn.prepare_cached(&SQL.count_due)?;
            let mut rows = statement.query(params![work.now, queue.as_str(), limit])?;
            let count = rows.next()?.map(|row| row::number(row, 0, "count"));
            Ok(count.transpose()?.unwrap_or(0))
        })
        .await
    }

    async fn separate_queues(&self, limit: usize) -> Result<u64> {
        self.write_unless(
            "separate_queues",
            |work| Ok(misplaced(work)?.is_empty().then_some(0)),
            move |work| separate(work, limit),
        )
        .await
    }
}

/// Returns the queues whose pending jobs must move to routes of their own, each with one of the
/// shared routes that the jobs have now.
fn misplaced(work: &Work<'_>) -> crate::error::Result<Vec<(String, i64)>> {
    let mut find = work.conn.prepare_cached(&SQL.misplaced_jobs)?;
    let found = find.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

fn separate(work: &mut Work<'_>, limit: usize) -> crate::error::Result<u64> {
    let mut moved = 0;
    for (queue, shared) in misplaced(work)? {
        let left = limit.saturating_sub(moved);
        if left == 0 {
            break;
        }
        let Some(route) = work.routes.get(work.conn, shared, Some(&queue))? else {
            continue;
        };
        let own = work.routes.own(work.conn, route)?;
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        let mut statement = work.conn.prepare_cached(&SQL.move_jobs)?;
        moved += statement.execute(params![queue, shared, own, left])?;
    }
    Ok(moved as u64)
}

fn due(work: &mut Work<'_>, within: i64) -> crate::error::Result<Vec<DueRoute>> {
    let mut statement = work.conn.prepare_cached(&SQL.due_routes)?;
    let mut rows = statement.query([work.now.saturating_add(within)])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        let queue = row::queue(row, 4);
        if let Some(route) = work.routes.get(work.conn, row.get(0)?, queue)? {
            let route = DueRoute::at(route, row.get(1)?, row.get(3)?, work.now);
            due.push(route.kind_paused(row.get(2)?));
        }
    }
    DueRoute::sort(&mut due);
    Ok(due)
}

fn list(work: &mut Work<'_>) -> crate::error::Result<Vec<QueueInfo>> {
    let pauses = pauses(work)?;
    let mut statement = work.conn.prepare_cached(&SQL.count_jobs)?;
    let mut rows = statement.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let queue = row::queue(row, 1);
        if let Some(route) = work.routes.get(work.conn, row.get(0)?, queue)? {
            let state = JobState::from_code(row.get(2)?)?;
            counts.push((route.queue, state, row::number(row, 3, "count")?));
        }
    }
    Ok(QueueInfo::collect(&pauses, counts))
}

fn pauses(work: &Work<'_>) -> crate::error::Result<Pauses> {
    let mut statement = work.conn.prepare_cached(&SQL.pauses)?;
    let mut rows = statement.query([])?;
    let mut pauses = Pauses::default();
    while let Some(row) = rows.next()? {
        match pause(row) {
            Ok(pause) => _ = pauses.add(pause),
            Err(error) => tracing::warn!(%error, "skipped a pause that cannot be read"),
        }
    }
    Ok(pauses)
}

fn pause(row: &Row<'_>) -> std::result::Result<PauseInfo, InvalidInput> {
    PauseInfo::from_stored(
        row::number(row, 0, "scope")?,
        row::text(row, 1, "name")?.unwrap_or_default(),
        row::number(row, 2, "paused_at")?,
        row::text(row, 3, "paused_by")?.unwrap_or_default(),
        row::text(row, 4, "reason")?.unwrap_or_default(),
    )
}
