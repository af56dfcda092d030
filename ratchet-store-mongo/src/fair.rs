//! Fair keys: gives turns to jobs.
//!
//! A pending job with a fair key has a turn, and is then in the indexes `turn` and `key_turn`, or
//! it sleeps, and is then in the index `asleep`. All writes that end a claim, that end or move a
//! job, and that change its due time or priority, remove the field `turn`. So only this module,
//! enqueues and the limits (module `fair_limits`) must know about turns.
//!
//! Each call that gives turns writes to the documents of the routes in the transaction in which it
//! reads the last turns. So of two concurrent calls, one is retried and then sees the turns that
//! the other has given. A transaction of the application never writes to these documents.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mongodb::bson::{Bson, Document, RawDocument, doc};
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::fair::{self, FIRST_PARKED, Last, Level, WOKEN_BY_A_CLAIM};
use ratchet_core::model::FairKey;
use ratchet_core::{JobId, JobState, Name, Priority, StoreErrorKind};

use crate::bulk::Statement;
use crate::connection::Tx;
use crate::division::Division;
use crate::error::Result;
use crate::pipelines::{any_job_id, code};
use crate::row;
use crate::store::{MongoStore, pause};

/// Field of the document that [`any_asleep`] adds to a search.
pub(crate) const ASLEEP: &str = "asleep";

/// Maximum number of routes whose sleeping jobs one query reads. The server merges up to this many
/// `$in` values as sorted streams.
const ROUTES: usize = 150;

/// Returns the condition for the field `turn` of jobs that have a turn, parked or not. The server
/// reads it from the index alone, unlike `$exists`.
fn any_turn() -> Document {
    doc! { "$gte": i64::MIN }
}

/// Returns the condition for the field `turn` of jobs that have a turn and are not parked.
pub(crate) fn unparked() -> Document {
    doc! { "$gte": i64::MIN, "$lt": FIRST_PARKED }
}

/// Returns the condition for the field `turn` of parked jobs.
pub(crate) fn parked() -> Document {
    doc! { "$gte": FIRST_PARKED }
}

/// Returns the stages that read the first turns of a level, without parked jobs. The index `turn`
/// covers them.
pub(crate) fn turns(route: i32, priority: i32, limit: i64) -> Vec<Document> {
    vec![
        doc! { "$match": {
            "state": code(JobState::Pending),
            "route": route,
            "priority": priority,
            "turn": unparked(),
        } },
        doc! { "$sort": { "turn": 1, "fair_key": 1, "_id": 1 } },
        doc! { "$limit": limit },
        doc! { "$project": { "run_at": 1, "priority": 1, "route": 1 } },
    ]
}

/// Returns the stage that reads pending jobs whose `same` fields equal the fields of a document.
/// `turn` is the condition for their turns, and `rest` are the further stages.
pub(crate) fn read_turns(
    jobs: &str,
    same: &[&str],
    turn: Document,
    rest: Vec<Document>,
    name: &str,
) -> Document {
    let same = same.iter().map(|field| {
        let variable = format!("$${field}");
        doc! { "$eq": [format!("${field}"), variable] }
    });
    let mut pipeline = vec![doc! { "$match": {
        "state": code(JobState::Pending),
        "turn": turn,
        "$expr": { "$and": same.collect::<Vec<_>>() },
    } }];
    pipeline.extend(rest);
    doc! { "$lookup": {
        "from": jobs,
        "let": { "route": "$route", "priority": "$priority", "fair_key": "$key" },
        "pipeline": pipeline,
        "as": name,
    } }
}

/// Returns the stages that make a document of each element of `list`. They run on the collection
/// `meta`, because this collection always has a document.
pub(crate) fn documents(list: Vec<Document>) -> Vec<Document> {
    vec![
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 0, "one": { "$literal": list } } },
        doc! { "$unwind": "$one" },
        doc! { "$replaceWith": "$one" },
    ]
}

/// Returns the pipeline that reads the first turn of each of these levels, and the last turn of
/// each of their keys, with the cost. `last` is the condition for last turns. The result has one
/// document for each key. Uses the indexes `turn` and `key_turn`.
fn known_turns(
    jobs: &str,
    levels: &BTreeMap<(i32, Priority), BTreeSet<&Name>>,
    last: Document,
) -> Vec<Document> {
    let level = |((route, priority), keys): (&(i32, Priority), &BTreeSet<&Name>)| {
        let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
        doc! { "route": *route, "priority": i32::from(priority.level()), "key": keys }
    };
    let one = |sort: Document| {
        vec![
            doc! { "$sort": sort },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "turn": 1, "fair_cost": 1 } },
        ]
    };
    let mut stages = documents(levels.iter().map(level).collect());
    let level = ["route", "priority"];
    let first = one(doc! { "turn": 1 });
    stages.push(read_turns(jobs, &level, unparked(), first, "first"));
    stages.push(doc! { "$unwind": "$key" });
    let key = ["route", "priority", "fair_key"];
    let order = one(doc! { "turn": -1, "_id": -1 });
    stages.push(read_turns(jobs, &key, last, order, "last"));
    stages.push(doc! { "$set": {
        "first": { "$arrayElemAt": ["$first.turn", 0] },
        "turn": { "$arrayElemAt": ["$last.turn", 0] },
        "fair_cost": { "$arrayElemAt": ["$last.fair_cost", 0] },
    } });
    stages.push(doc! { "$unset": "last" });
    stages
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
    /// Returns the turn of the next job of a key, which is due at `run_at`. `None` if the call has
    /// not locked the route.
    pub(crate) fn give(
        &mut self,
        (route, priority): (i32, Priority),
        (key, cost): (&Name, u32),
        run_at: i64,
    ) -> Option<i64> {
        let level = self.0.get_mut(&(route, priority))?;
        Some(level.give_due(key.as_str(), cost, run_at))
    }
}

/// What a transaction that gives turns has done.
pub(crate) enum Given {
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
        jobs: &[(i32, Priority, &Name)],
        now: i64,
    ) -> Result<Levels> {
        if jobs.is_empty() {
            return Ok(Levels::default());
        }
        let routes: BTreeSet<i32> = jobs.iter().map(|(route, ..)| *route).collect();
        let these = doc! { "_id": { "$in": routes.into_iter().collect::<Vec<_>>() } };
        self.lock_routes(tx, these).await?;
        self.read_levels(tx, jobs, any_turn(), now).await
    }

    /// Locks the routes that match the filter.
    pub(crate) async fn lock_routes(&self, tx: &mut Tx<'_>, these: Document) -> Result<()> {
        let meet = doc! { "$inc": { "turns": 1_i64 } };
        tx.update_many(&self.main().routes, these, meet).await?;
        Ok(())
    }

    /// Reads the levels in which jobs get their turns. The transaction must have locked the routes.
    /// `last` is the condition for the last turns of the keys.
    pub(crate) async fn read_levels(
        &self,
        tx: &mut Tx<'_>,
        jobs: &[(i32, Priority, &Name)],
        last: Document,
        now: i64,
    ) -> Result<Levels> {
        let side = self.main();
        let mut wanted: BTreeMap<(i32, Priority), BTreeSet<&Name>> = BTreeMap::new();
        for (route, priority, key) in jobs {
            let keys = wanted.entry((*route, *priority)).or_default();
            keys.insert(key);
        }
        let stages = known_turns(side.jobs.name(), &wanted, last);
        let rows = tx.aggregate(&side.meta, stages, ReadConcern::majority());
        let mut levels = Levels::default();
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
    /// A job that another transaction has locked stays asleep, and keeps no other asleep. A later
    /// claim gives turns to those left out.
    pub(crate) async fn wake(&self, routes: &BTreeSet<i32>, now: i64) -> Result<()> {
        let routes: Vec<i32> = routes.iter().copied().collect();
        // Until this call has given turns, other calls of this store wait. Then they find no jobs
        // asleep.
        let mut giving = Some(self.giving_turns().await);
        let sleepers = self.sleepers(&routes, now).await?;
        let mut division = Division::new(&sleepers, 0);
        while let Some(chunk) = division.next() {
            let alone = match giving.take() {
                Some(alone) => alone,
                None => self.giving_turns().await,
            };
            let given = self.give_turns(chunk, now).await;
            drop(alone);
            division.given(chunk, given?).await;
        }
        let left_out = division.left_out().len();
        if left_out > 0 {
            tracing::debug!(jobs = left_out, "due jobs that are locked get no turns yet");
        }
        Ok(())
    }

    /// Gives these jobs their turns, except those that no longer sleep.
    async fn give_turns(&self, jobs: &[Sleeper], now: i64) -> Result<Given> {
        let places = jobs.iter().filter_map(|one| {
            let (priority, key) = one.place.as_ref()?;
            Some((one.route, *priority, key.name()))
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

impl<'a, T> Division<'a, T> {
    /// Takes note of what the transaction of this chunk has done. Waits if it must be repeated.
    pub(crate) async fn given(&mut self, chunk: &'a [T], given: Given) {
        match given {
            Given::All => {}
            Given::JobsLocked => self.locked(chunk),
            Given::RoutesLocked => {
                if let Some(conflicts) = self.repeat(chunk) {
                    tokio::time::sleep(pause(conflicts)).await;
                }
            }
        }
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
            let key = (key.name(), key.cost());
            levels.give((self.route, *priority), key, self.run_at)
        });
        // A job that cannot be read gets a turn too, so that it does not take the place of another
        // sleeping job.
        let turn = turn.unwrap_or_else(|| fair::turn(None, None, FairKey::UNIT, now));
        Statement::new(this, vec![doc! { "$set": { "turn": turn } }])
    }
}
