//! [`QueueStore`] on SQLite.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{DueRoute, QueueInfo};
use ratchet_core::store::{Changed, QueueStore};
use ratchet_core::time::duration_millis;
use ratchet_core::{JobState, Name, Result};
use rusqlite::params;

use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl QueueStore for SqliteStore {
    async fn pause_queue(&self, queue: &Name) -> Result<Changed> {
        let queue = queue.clone();
        self.write("pause_queue", Urgency::Normal, move |work| {
            let mut statement = work.conn.prepare_cached(&SQL.pause_queue)?;
            let rows = statement.execute(params![queue.as_str(), work.now])?;
            Ok(Changed::when(rows > 0))
        })
        .await
    }

    async fn resume_queue(&self, queue: &Name) -> Result<Changed> {
        let queue = queue.clone();
        self.write("resume_queue", Urgency::Normal, move |work| {
            let mut statement = work.conn.prepare_cached(&SQL.resume_queue)?;
            Ok(Changed::when(statement.execute([queue.as_str()])? > 0))
        })
        .await
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
}

fn due(work: &mut Work<'_>, within: i64) -> crate::error::Result<Vec<DueRoute>> {
    let mut statement = work.conn.prepare_cached(&SQL.due_routes)?;
    let mut rows = statement.query([work.now.saturating_add(within)])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(route) = work.routes.get(work.conn, row.get(0)?)? {
            let (paused, run_at) = (row.get(1)?, row.get(2)?);
            due.push(DueRoute::at(route.clone(), paused, run_at, work.now));
        }
    }
    DueRoute::sort(&mut due);
    Ok(due)
}

fn list(work: &mut Work<'_>) -> crate::error::Result<Vec<QueueInfo>> {
    let paused = paused(work)?;
    let mut statement = work.conn.prepare_cached(&SQL.count_jobs)?;
    let mut rows = statement.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(route) = work.routes.get(work.conn, row.get(0)?)? {
            let state = JobState::from_code(row.get(1)?)?;
            counts.push((route.queue.clone(), state, row::number(row, 2, "count")?));
        }
    }
    Ok(QueueInfo::collect(&paused, counts))
}

fn paused(work: &Work<'_>) -> crate::error::Result<BTreeSet<Name>> {
    let mut statement = work.conn.prepare_cached(&SQL.paused_queues)?;
    let mut rows = statement.query([])?;
    let mut paused = BTreeSet::new();
    while let Some(row) = rows.next()? {
        paused.extend(row::name(row, 0, "queue").ok().flatten());
    }
    Ok(paused)
}
