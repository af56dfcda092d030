//! [`QueueStore`] on MongoDB.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::doc;
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::model::{DueRoute, QueueInfo};
use ratchet_core::store::{Changed, QueueStore};
use ratchet_core::time::duration_millis;
use ratchet_core::{JobState, Name, Result, Route};

use crate::error::Result as Inner;
use crate::pipelines;
use crate::row;
use crate::store::MongoStore;

/// Paused queues. Calls that pause or resume a queue are repeated if their reply is lost. The
/// repeated call then returns `Unchanged`, although the first try changed the queue. In both cases,
/// the queue is in the state that the caller asked for.
#[async_trait]
impl QueueStore for MongoStore {
    async fn pause_queue(&self, queue: &Name) -> Result<Changed> {
        self.call("pause_queue", || async {
            let side = self.main();
            let row = mongodb::bson::RawDocumentBuf::try_from(&doc! { "_id": queue.as_str() })?;
            match side.plain().insert_many(&side.queues, &[row]).await {
                Ok(()) => Ok(Changed::Changed),
                Err(failure) if failure.is_duplicate() => Ok(Changed::Unchanged),
                Err(failure) => Err(failure),
            }
        })
        .await
    }

    async fn resume_queue(&self, queue: &Name) -> Result<Changed> {
        self.call("resume_queue", || async {
            let side = self.main();
            let this = doc! { "_id": queue.as_str() };
            let gone = side.plain().delete_many(&side.queues, this).await?;
            Ok(Changed::when(gone > 0))
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
        self.call("count_due", || self.count_due_of(queue, limit))
            .await
    }
}

impl MongoStore {
    /// Returns the names of all paused queues.
    async fn paused_queues(&self) -> Inner<BTreeSet<Name>> {
        let side = self.main();
        let rows = side
            .plain()
            .find(&side.queues, doc! {}, FindOptions::default())
            .await?;
        let names = rows.iter().map(|row| row::name(row, "_id").ok().flatten());
        Ok(names.flatten().collect())
    }

    /// Returns the routes that have a job due within this duration from now. [queue.due]
    async fn list_due(&self, within: Duration) -> Inner<Vec<DueRoute>> {
        let side = self.main();
        let now = self.millis(side).await?;
        self.routes().refresh(side).await?;
        let routes = self.routes().chosen(|_| true);
        let numbers: Vec<i32> = routes.iter().map(|(number, _)| *number).collect();
        let until = now.saturating_add(duration_millis(within));
        let first = self.first_due(&numbers, until).await?;
        let paused = self.paused_queues().await?;
        // A route may have two numbers.
        let mut longest: BTreeMap<Route, i64> = BTreeMap::new();
        for (number, route) in routes {
            if let Some(run_at) = first.get(&number) {
                let longest = longest.entry(route).or_insert(*run_at);
                *longest = (*run_at).min(*longest);
            }
        }
        let due = longest.into_iter().map(|(route, run_at)| {
            let paused = paused.contains(&route.queue);
            DueRoute::at(route, paused, run_at, now)
        });
        let mut due: Vec<DueRoute> = due.collect();
        DueRoute::sort(&mut due);
        Ok(due)
    }

    /// Counts the due jobs of a queue, up to a limit. [queue.depth]
    async fn count_due_of(&self, queue: &Name, limit: u64) -> Inner<u64> {
        let side = self.main();
        let now = self.millis(side).await?;
        self.routes().refresh(side).await?;
        let routes = self.routes().chosen(|route| route.queue == *queue);
        let routes: Vec<i32> = routes.iter().map(|(number, _)| *number).collect();
        if routes.is_empty() || limit == 0 {
            return Ok(0);
        }
        let stages = pipelines::count_due(&routes, limit, now);
        let concern = ReadConcern::local();
        let counted = side
            .plain()
            .aggregate_by(&side.jobs, stages, concern, Some("claim"))
            .await?;
        Ok(counted
            .first()
            .map_or(Ok(0), |row| row::count(row, "count"))?)
    }

    async fn list_queues(&self) -> Inner<Vec<QueueInfo>> {
        let side = self.main();
        let paused = self.paused_queues().await?;
        let counted = self.count_routes().await?;
        self.routes().refresh(side).await?;
        let counts = counted.into_iter().filter_map(|(state, route, count)| {
            let route = self.routes().get(route.into())?;
            let state = JobState::from_code(state.into()).ok()?;
            Some((route.queue, state, count))
        });
        Ok(QueueInfo::collect(&paused, counts))
    }
}
