//! [`QueueStore`] on MongoDB.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::model::{DueRoute, PauseInfo, PauseRequest, PauseScope, Pauses, QueueInfo};
use ratchet_core::store::{Changed, QueueStore};
use ratchet_core::time::duration_millis;
use ratchet_core::{InvalidInput, JobState, Name, Result, Route};

use crate::error::Result as Inner;
use crate::pipelines;
use crate::row;
use crate::store::MongoStore;

/// Calls that pause or resume are repeated if their reply is lost. The repeated call then returns
/// `Unchanged`, although the first try changed the pause. In both cases, the queue or kind is in
/// the state that the caller asked for.
#[async_trait]
impl QueueStore for MongoStore {
    async fn pause(&self, request: &PauseRequest) -> Result<Changed> {
        self.call("pause", || async {
            let side = self.main();
            let row = RawDocumentBuf::try_from(&doc! {
                "_id": scope_id(&request.scope),
                "paused_at": self.millis(side).await?,
                "paused_by": request.by_text(),
                "reason": request.reason_text(),
            })?;
            match side.plain().insert_many(&side.pauses, &[row]).await {
                Ok(()) => Ok(Changed::Changed),
                Err(failure) if failure.is_duplicate() => Ok(Changed::Unchanged),
                Err(failure) => Err(failure),
            }
        })
        .await
    }

    async fn resume(&self, scope: &PauseScope) -> Result<Changed> {
        self.call("resume", || async {
            let side = self.main();
            let this = doc! { "_id": scope_id(scope) };
            let gone = side.plain().delete_many(&side.pauses, this).await?;
            Ok(Changed::when(gone > 0))
        })
        .await
    }

    async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        let pauses = self.call("pauses", || self.read_pauses()).await?;
        Ok(pauses.into_list())
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
    async fn read_pauses(&self) -> Inner<Pauses> {
        let side = self.main();
        let rows = side
            .plain()
            .find(&side.pauses, doc! {}, FindOptions::default())
            .await?;
        let mut pauses = Pauses::default();
        for row in &rows {
            match pause(row) {
                Ok(pause) => _ = pauses.add(pause),
                Err(error) => tracing::warn!(%error, "skipped a pause that cannot be read"),
            }
        }
        Ok(pauses)
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
        let pauses = self.read_pauses().await?;
        // A route may have two numbers.
        let mut longest: BTreeMap<Route, i64> = BTreeMap::new();
        for (number, route) in routes {
            if let Some(run_at) = first.get(&number) {
                let longest = longest.entry(route).or_insert(*run_at);
                *longest = (*run_at).min(*longest);
            }
        }
        let due = longest.iter();
        let due = due.map(|(route, run_at)| pauses.due(route, *run_at, now));
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
        let pauses = self.read_pauses().await?;
        let counted = self.count_routes().await?;
        self.routes().refresh(side).await?;
        let counts = counted.into_iter().filter_map(|(state, route, count)| {
            let route = self.routes().get(route.into())?;
            let state = JobState::from_code(state.into()).ok()?;
            Some((route.queue, state, count))
        });
        Ok(QueueInfo::collect(&pauses, counts))
    }
}

/// Returns the `_id` of a pause.
fn scope_id(scope: &PauseScope) -> Document {
    doc! { "scope": i32::from(scope.code()), "name": scope.name().as_str() }
}

fn pause(row: &RawDocument) -> std::result::Result<PauseInfo, InvalidInput> {
    let id = row.get_document("_id");
    let id = id.map_err(|_| InvalidInput::new("_id", "is not a document"))?;
    PauseInfo::from_stored(
        row::int(id, "scope")?,
        row::text(id, "name")?.unwrap_or_default(),
        row::int(row, "paused_at")?,
        row::text(row, "paused_by")?.unwrap_or_default(),
        row::text(row, "reason")?.unwrap_or_default(),
    )
}
