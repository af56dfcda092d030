//! [`QueueStore`] on MongoDB.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::{FindOptions, Hint, ReadConcern};
use ratchet_core::model::{DueRoute, PauseInfo, PauseRequest, PauseScope, Pauses, QueueInfo};
use ratchet_core::store::{Changed, QueueStore};
use ratchet_core::time::duration_millis;
use ratchet_core::{InvalidInput, JobId, JobState, Name, Result, Route};

use crate::connection::Tx;
use crate::error::Result as Inner;
use crate::pipelines::{self, code, literal};
use crate::row;
use crate::store::MongoStore;

/// Maximum number of queues whose shared routes one command reads. The server limits a pipeline to
/// 1,000 stages.
const MOST_QUEUES: usize = 100;

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

    async fn separate_queues(&self, limit: usize) -> Result<u64> {
        self.call("separate_queues", || self.move_misplaced(limit))
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
        let until = now.saturating_add(duration_millis(within));
        // Jobs move from shared routes to others, and not back. So the shared ones are read first,
        // and then the own ones, of which some may be new.
        let mut routes: Vec<((i32, Option<Name>), Route)> = Vec::new();
        let mut first = BTreeMap::new();
        if self.routes().has_shared() {
            for (number, queue) in self.shared_routes().await? {
                let route = self.routes().get(number.into(), Some(queue.as_str()));
                routes.extend(route.map(|route| ((number, Some(queue)), route)));
            }
            let numbers: Vec<_> = routes.iter().map(|(number, _)| number.clone()).collect();
            first = self.first_due(&numbers, until).await?;
            self.routes().refresh(side).await?;
        }
        let own = self.routes().of_queues().into_iter();
        let own: Vec<_> = own.map(|(number, route)| ((number, None), route)).collect();
        let numbers: Vec<_> = own.iter().map(|(number, _)| number.clone()).collect();
        first.extend(self.first_due(&numbers, until).await?);
        routes.extend(own);
        let pauses = self.read_pauses().await?;
        // A route may have several numbers.
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

    /// Counts the due jobs of a queue, up to a limit. Reads shared routes and own routes in one
    /// snapshot, so it counts a job that moves once. [queue.depth] [queue.separate]
    async fn count_due_of(&self, queue: &Name, limit: u64) -> Inner<u64> {
        let side = self.main();
        let now = self.millis(side).await?;
        let counting = || async {
            let mut on = match self.routes().has_shared() {
                true => self.begin(side).await?,
                false => side.plain(),
            };
            let counted = self.count_due_on(&mut on, queue, limit, now).await;
            on.finish(counted).await
        };
        self.with_routes(counting).await
    }

    async fn count_due_on(
        &self,
        on: &mut Tx<'_>,
        queue: &Name,
        limit: u64,
        now: i64,
    ) -> Inner<u64> {
        let numbers = |routes: Vec<(i32, Route)>| {
            let of_queue = routes
                .into_iter()
                .filter(|(_, route)| route.queue == *queue);
            of_queue.map(|(number, _)| number).collect::<Vec<i32>>()
        };
        let mut due = 0;
        for (routes, shared, index) in [
            (numbers(self.routes().shared(queue)), Some(queue), "queue"),
            (numbers(self.routes().of_queues()), None, "claim"),
        ] {
            if routes.is_empty() || due == limit {
                continue;
            }
            let stages = pipelines::count_due(&routes, shared, limit - due, now);
            let jobs = &self.main().jobs;
            let counted = on.aggregate_by(jobs, stages, ReadConcern::local(), Some(index));
            let counted = counted.await?;
            due += counted
                .first()
                .map_or(Ok(0), |row| row::count::<u64>(row, "count"))?;
        }
        Ok(due)
    }

    /// Returns the shared routes that have pending jobs, with the queues of these jobs.
    async fn shared_routes(&self) -> Inner<Vec<(i32, Name)>> {
        let side = self.main();
        let mut on = side.plain();
        let queue = |row: &RawDocumentBuf, field| row::name(row, field).ok()?;
        let stages = shared_queues();
        let rows = on.aggregate_by(&side.jobs, stages, ReadConcern::local(), Some("queue"));
        let rows = rows.await?;
        let queues: Vec<Name> = rows.iter().filter_map(|row| queue(row, "_id")).collect();
        let mut routes = Vec::new();
        for queues in queues.chunks(MOST_QUEUES) {
            let stages = shared_routes(side.jobs.name(), queues);
            let rows = on.aggregate(&side.jobs, stages, ReadConcern::local());
            for row in rows.await? {
                let route = row::count(&row, "route").ok();
                routes.extend(route.zip(queue(&row, "queue")));
            }
        }
        Ok(routes)
    }

    /// Moves pending jobs of paused and marked queues from shared routes to routes of their own.
    /// [queue.separate]
    async fn move_misplaced(&self, limit: usize) -> Inner<u64> {
        let side = self.main();
        // A node that claims jobs soon knows the routes that others have added.
        if !self.routes().has_shared() {
            return Ok(0);
        }
        let mut queues: BTreeSet<Name> = self.read_pauses().await?.queues().cloned().collect();
        queues.extend(self.routes().marked());
        let Some(any) = queues.first() else {
            return Ok(0);
        };
        let names: Vec<&str> = queues.iter().map(Name::as_str).collect();
        let shared = self.routes().shared(any).into_iter();
        let shared: Vec<i32> = shared.map(|(number, _)| number).collect();
        let pending = doc! { "state": code(JobState::Pending) };
        let mut misplaced = pending.clone();
        misplaced.extend(doc! { "queue": { "$in": names }, "route": { "$in": shared } });
        let options = FindOptions::builder()
            .projection(doc! { "queue": 1, "route": 1 })
            .hint(Hint::Name("queue".to_owned()))
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        let found = side.plain().find(&side.jobs, misplaced, options).await?;
        let mut jobs: BTreeMap<(&str, i32), Vec<JobId>> = BTreeMap::new();
        for row in &found {
            // Another document cannot be moved, and must not hinder the others.
            if let (Some(queue), Ok(id)) = (row::queue(row), row::job_id(row, "_id")) {
                let place = (queue, row::count(row, "route")?);
                jobs.entry(place).or_default().push(id);
            }
        }
        let mut moved = 0;
        for ((queue, number), jobs) in jobs {
            let Some(route) = self.routes().get(number.into(), Some(queue)) else {
                continue;
            };
            let own = self.routes().own(self.live(), route).await?;
            let mut these = pending.clone();
            these.extend(doc! { "queue": queue, "route": number });
            these.insert("_id", doc! { "$in": pipelines::ids(&jobs) });
            let own = doc! { "$set": { "route": own }, "$unset": { "queue": "" } };
            moved += side.plain().update_these(&side.jobs, these, own).await?;
        }
        Ok(moved)
    }

    async fn list_queues(&self) -> Inner<Vec<QueueInfo>> {
        let side = self.main();
        let pauses = self.read_pauses().await?;
        let counted = self.count_routes().await?;
        self.routes().refresh(side).await?;
        let counts = counted.into_iter().filter_map(|one| {
            let route = self.routes().get(one.route.into(), one.queue.as_deref());
            let state = JobState::from_code(one.state.into()).ok()?;
            Some((route?.queue, state, one.jobs))
        });
        Ok(QueueInfo::collect(&pauses, counts))
    }
}

/// Returns the pipeline that reads the names of the shared queues that have pending jobs. With the
/// index `queue`, the server skips from one name to the next: with `$exists` instead of `$gte`, it
/// would read the documents of all their jobs. [queue.due]
fn shared_queues() -> Vec<Document> {
    let shared = doc! { "state": code(JobState::Pending), "queue": { "$gte": "" } };
    vec![
        doc! { "$match": shared },
        doc! { "$group": { "_id": "$queue" } },
    ]
}

/// Returns the pipeline that reads the numbers of the shared routes in which each of these queues
/// has pending jobs. With the index `queue`, the server skips from one route to the next.
/// [queue.due]
fn shared_routes(jobs: &str, queues: &[Name]) -> Vec<Document> {
    let stages = |queue: &Name| {
        let pending = doc! {
            "state": code(JobState::Pending),
            "queue": queue.as_str(),
            "route": { "$gte": 0 },
        };
        vec![
            doc! { "$match": pending },
            doc! { "$group": { "_id": "$route" } },
            doc! { "$project": { "_id": 0, "route": "$_id", "queue": literal(queue.as_str()) } },
        ]
    };
    pipelines::union(jobs, queues.iter().map(stages))
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
