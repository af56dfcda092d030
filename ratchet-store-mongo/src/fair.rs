//! Fair keys: gives turns to jobs.
//!
//! A pending job with a fair key has a turn, and is then in the indexes `turn` and `key_turn`, or
//! it sleeps, and is then in the index `asleep`. All writes that end a claim, that end or move a
//! job, and that change its due time or priority, remove the field `turn`. So only this module and
//! enqueues must know about turns.
//!
//! Each call that gives turns writes to the documents of the routes in the transaction in which it
//! reads the last turns. So of two concurrent calls, one is retried and then sees the turns that
//! the other has given. A transaction of the application never writes to these documents.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mongodb::bson::{Bson, Document, RawDocument, doc};
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::fair::{self, Last, Level, WOKEN_BY_A_CLAIM};
use ratchet_core::model::FairKey;
use ratchet_core::{JobId, JobState, Name, Priority, StoreErrorKind};

use crate::bulk::Statement;
use crate::connection::Tx;
use crate::error::Result;
use crate::pipelines::{any_job_id, code};
use crate::row;
use crate::store::{MongoStore, pause};

/// Field of the document that [`any_asleep`] adds to a search.
pub(crate) const ASLEEP: &str = "asleep";

/// Maximum number of routes whose sleeping jobs one query reads. The server merges up to this many
/// `$in` values as sorted streams.
const ROUTES: usize = 150;
/// Number of conflicts with other transactions after which a claim gives turns only to jobs that
/// conflict no more. The number suffices to find the one locked job of [`WOKEN_BY_A_CLAIM`].
const CONFLICTS: u32 = 24;

/// Returns the condition for the field `turn` of jobs that have a turn. The server reads it from
/// the index alone, unlike `$exists`.
pub(crate) fn any_turn() -> Document {
    doc! { "$gte": i64::MIN }
}

/// Returns the stages that read the first turns of a level. The index `turn` covers them.
pub(crate) fn turns(route: i32, priority: i32, limit: i64) -> Vec<Document> {
    vec![
        doc! { "$match": {
            "state": code(JobState::Pending),
            "route": route,
            "priority": priority,
            "turn": any_turn(),
        } },
        doc! { "$sort": { "turn": 1, "fair_key": 1, "_id": 1 } },
        doc! { "$limit": limit },
        doc! { "$project": { "run_at": 1, "priority": 1, "route": 1 } },
    ]
}

/// Returns the pipeline that reads the first turn of each of these levels, and the last turn of
/// each of their keys, with the cost. The result has one document for each key. It runs on the
/// collection `meta`, because this collection always has a document. Uses the indexes `turn` and
/// `key_turn`.
fn known_turns(jobs: &str, levels: &BTreeMap<(i32, Priority), BTreeSet<&Name>>) -> Vec<Document> {
    let level = |((route, priority), keys): (&(i32, Priority), &BTreeSet<&Name>)| {
        let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
        doc! { "route": *route, "priority": i32::from(priority.level()), "key": keys }
    };
    let levels: Vec<Document> = levels.iter().map(level).collect();
    let read = |same: &[&str], sort: Document, name: &str| {
        let same = same.iter().map(|field| {
            let variable = format!("$${field}");
            doc! { "$eq": [format!("${field}"), variable] }
        });
        doc! { "$lookup": {
            "from": jobs,
            "let": { "route": "$route", "priority": "$priority", "fair_key": "$key" },
            "pipeline": [
                { "$match": {
                    "state": code(JobState::Pending),
                    "turn": any_turn(),
                    "$expr": { "$and": same.collect::<Vec<_>>() },
                } },
                { "$sort": sort },
                { "$limit": 1 },
                { "$project": { "_id": 0, "turn": 1, "fair_cost": 1 } },
            ],
            "as": name,
        } }
    };
    vec![
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 0, "level": { "$literal": levels } } },
        doc! { "$unwind": "$level" },
        doc! { "$replaceWith": "$level" },
        read(&["route", "priority"], doc! { "turn": 1 }, "first"),
        doc! { "$unwind": "$key" },
        read(
            &["route", "priority", "fair_key"],
            doc! { "turn": -1 },
            "last",
        ),
        doc! { "$set": {
            "first": { "$arrayElemAt": ["$first.turn", 0] },
            "turn": { "$arrayElemAt": ["$last.turn", 0] },
            "fair_cost": { "$arrayElemAt": ["$last.fair_cost", 0] },
        } },
        doc! { "$unset": "last" },
    ]
}

/// Returns a filter for the jobs of these routes that sleep and are due. Uses the index `asleep`.
fn asleep(routes: &[i32], now: i64) -> Document {
    doc! {
        "state": code(JobState::Pending),
        "route": { "$in": routes },
        "run_at": { "$lte": now },
        "_id": any_job_id(),
        "fair_key": { "$exists": true },
        "turn": Bson::Null,
    }
}

/// Returns the stage that adds a document with the field [`ASLEEP`] to the result if a job of these
/// routes sleeps and is due.
pub(crate) fn any_asleep(jobs: &str, routes: &[i32], now: i64) -> Document {
    doc! { "$unionWith": { "coll": jobs, "pipeline": [
        { "$match": asleep(routes, now) },
        { "$limit": 1 },
        { "$project": { "_id": 0, ASLEEP: { "$literal": true } } },
    ] } }
}

/// The levels in which a call gives turns, by route and priority. The call has locked the routes.
#[derive(Debug, Default)]
pub(crate) struct Levels(HashMap<(i32, Priority), Level>);

impl Levels {
    /// Returns the turn of the next job of a key. `None` if the call has not locked the route.
    pub(crate) fn give(&mut self, route: i32, priority: Priority, key: &FairKey) -> Option<i64> {
        let level = self.0.get_mut(&(route, priority))?;
        Some(level.give(key.name().as_str(), key.cost()))
    }
}

/// What a transaction that gives turns has done.
enum Given {
    /// All jobs have turns, or no longer sleep.
    All,
    /// Nothing, because another process gives turns in the same routes.
    RoutesLocked,
    /// Nothing, because another transaction has locked at least one of the jobs.
    JobsLocked,
}

/// A sleeping job that is about to get its turn.
struct Sleeper {
    id: JobId,
    route: i32,
    /// Priority and fair key. `None` if one of them cannot be read.
    place: Option<(Priority, FairKey)>,
    run_at: i64,
}

impl MongoStore {
    /// Locks the routes of these jobs, and reads the levels in which they get their turns.
    /// [fair.turn]
    pub(crate) async fn lock_and_read_levels(
        &self,
        tx: &mut Tx<'_>,
        jobs: &[(i32, Priority, &FairKey)],
        now: i64,
    ) -> Result<Levels> {
        let mut levels = Levels::default();
        if jobs.is_empty() {
            return Ok(levels);
        }
        let side = self.main();
        let routes: BTreeSet<i32> = jobs.iter().map(|(route, ..)| *route).collect();
        let these = doc! { "_id": { "$in": routes.into_iter().collect::<Vec<_>>() } };
        let meet = doc! { "$inc": { "turns": 1_i64 } };
        tx.update_many(&side.routes, these, meet).await?;
        let mut wanted: BTreeMap<(i32, Priority), BTreeSet<&Name>> = BTreeMap::new();
        for (route, priority, key) in jobs {
            let keys = wanted.entry((*route, *priority)).or_default();
            keys.insert(key.name());
        }
        let stages = known_turns(side.jobs.name(), &wanted);
        let rows = tx.aggregate(&side.meta, stages, ReadConcern::majority());
        for row in rows.await? {
            let priority = Priority::from_level(row::int(&row, "priority")?)?;
            let level = levels
                .0
                .entry((row::count(&row, "route")?, priority))
                .or_insert_with(|| Level::new(row::int(&row, "first").ok(), now));
            let cost = FairKey::cost_or_unit(row::int(&row, "fair_cost").ok());
            if let (Ok(turn), Some(key)) = (row::int(&row, "turn"), row::name(&row, "key")?) {
                level.last(key.as_str(), Last { turn, cost });
            }
        }
        Ok(levels)
    }

    /// Gives turns to the due jobs of these routes that sleep, the longest due first, up to
    /// [`WOKEN_BY_A_CLAIM`]. [fair.turn]
    ///
    /// A job that another transaction has locked stays asleep, and keeps no other asleep: after a
    /// conflict, the jobs are divided until the locked ones are alone. After [`CONFLICTS`], the
    /// jobs that conflict are no longer divided. A later claim gives turns to those left out.
    pub(crate) async fn wake(&self, routes: &BTreeSet<i32>, now: i64) -> Result<()> {
        let routes: Vec<i32> = routes.iter().copied().collect();
        // Until this call has given turns, other calls of this store wait. Then they find no jobs
        // asleep.
        let mut giving = Some(self.giving_turns().await);
        let sleepers = self.sleepers(&routes, now).await?;
        // The jobs that are longest due are in the last chunk.
        let mut chunks: Vec<&[Sleeper]> = sleepers.chunks(WOKEN_BY_A_CLAIM).collect();
        let (mut conflicts, mut left_out) = (0, 0);
        while let Some(chunk) = chunks.pop() {
            let alone = match giving.take() {
                Some(alone) => alone,
                None => self.giving_turns().await,
            };
            let given = self.give_turns(chunk, now).await;
            drop(alone);
            match given {
                Ok(Given::All) => continue,
                Ok(Given::JobsLocked) if conflicts < CONFLICTS && chunk.len() > 1 => {
                    let (first, second) = chunk.split_at(chunk.len() / 2);
                    chunks.extend([second, first]);
                }
                Ok(Given::RoutesLocked) if conflicts < CONFLICTS => {
                    chunks.push(chunk);
                    tokio::time::sleep(pause(conflicts)).await;
                }
                Ok(_) => left_out += chunk.len(),
                Err(failure) => return Err(failure),
            }
            conflicts += 1;
        }
        if left_out > 0 {
            tracing::debug!(jobs = left_out, "due jobs that are locked get no turns yet");
        }
        Ok(())
    }

    /// Gives these jobs their turns, except those that no longer sleep.
    async fn give_turns(&self, jobs: &[Sleeper], now: i64) -> Result<Given> {
        let places = jobs.iter().filter_map(|one| {
            let (priority, key) = one.place.as_ref()?;
            Some((one.route, *priority, key))
        });
        let places: Vec<_> = places.collect();
        let mut tx = self.main().begin().await?;
        let mut conflict = Given::RoutesLocked;
        let given = async {
            let mut levels = self.lock_and_read_levels(&mut tx, &places, now).await?;
            conflict = Given::JobsLocked;
            let statements = jobs.iter().map(|one| one.statement(&mut levels, now));
            tx.bulk(&self.main().jobs, statements.collect()).await
        };
        let given = given.await;
        match tx.finish(given).await {
            Err(failure) if failure.kind == StoreErrorKind::Contention => Ok(conflict),
            given => given.map(|_| Given::All),
        }
    }

    /// Returns the due jobs of these routes that sleep, the longest due first.
    async fn sleepers(&self, routes: &[i32], now: i64) -> Result<Vec<Sleeper>> {
        let mut all = Vec::new();
        let mut on = self.main().plain();
        for routes in routes.chunks(ROUTES) {
            let fields = doc! {
                "route": 1, "priority": 1, "run_at": 1, "fair_key": 1, "fair_cost": 1,
            };
            let options = FindOptions::builder()
                .sort(doc! { "run_at": 1, "_id": 1 })
                .limit(i64::try_from(WOKEN_BY_A_CLAIM).unwrap_or(i64::MAX))
                .projection(fields)
                .build();
            let rows = on.find(&self.main().jobs, asleep(routes, now), options);
            for row in rows.await? {
                all.push(Sleeper::read(&row)?);
            }
        }
        all.sort_unstable_by_key(|one| (one.run_at, one.id));
        all.truncate(WOKEN_BY_A_CLAIM);
        Ok(all)
    }
}

impl Sleeper {
    fn read(row: &RawDocument) -> Result<Self> {
        let priority = row::int(row, "priority").and_then(Priority::from_level);
        let key = row::fair_key(row).ok().flatten();
        Ok(Self {
            id: row::job_id(row, "_id")?,
            route: row::count(row, "route")?,
            place: priority.ok().zip(key),
            run_at: row::int(row, "run_at").unwrap_or_default(),
        })
    }

    /// Returns the statement that gives the job the next turn of its key, unless the job has
    /// changed since it was read.
    fn statement(&self, levels: &mut Levels, now: i64) -> Statement {
        let mut this = doc! {
            "_id": row::id(self.id),
            "state": code(JobState::Pending),
            "run_at": { "$lte": now },
            "turn": Bson::Null,
        };
        let place = self.place.as_ref();
        let turn = place.and_then(|(priority, key)| {
            this.insert("priority", i32::from(priority.level()));
            levels.give(self.route, *priority, key)
        });
        // A job that cannot be read gets a turn too, so that it does not take the place of another
        // sleeping job.
        let turn = turn.unwrap_or_else(|| fair::turn(None, None, FairKey::UNIT, now));
        Statement::new(this, vec![doc! { "$set": { "turn": turn } }])
    }
}
