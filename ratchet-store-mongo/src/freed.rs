//! Freed entries: the keys whose parked jobs may get turns, see [`fair_limits`](crate::fair_limits).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;
use ratchet_core::fair::{FIRST_PARKED, FREED_BY_A_CLAIM, places_for, share};
use ratchet_core::model::FairKey;
use ratchet_core::{InvalidInput, JobId, JobState, Name, Priority, StoreErrorKind};

use crate::bulk::{MOST, Statement};
use crate::connection::Tx;
use crate::division::Division;
use crate::error::Result;
use crate::fair::{self, Given};
use crate::fair_limits::{Counted, Key, LIMITED, VERSION};
use crate::pipelines::{code, ids};
use crate::row;
use crate::store::MongoStore;

/// Returns an expression for the field [`LIMITED`] of a waiting job whose turn a write removes if
/// `removes` is true: then the job becomes a freed entry if it has a turn and is not parked.
pub(crate) fn left_by(removes: impl Into<Bson>) -> Document {
    let frees = doc! { "$and": [
        removes.into(),
        { "$gte": ["$turn", i64::MIN] },
        { "$lt": ["$turn", FIRST_PARKED] },
    ] };
    doc! { "$cond": [frees, true, format!("${LIMITED}")] }
}

/// Returns the condition for the state of a job whose field [`LIMITED`] is a freed entry.
fn not_running() -> Document {
    let states = JobState::ALL
        .iter()
        .filter(|one| **one != JobState::Running);
    doc! { "$in": states.map(|state| code(*state)).collect::<Vec<i32>>() }
}

/// Returns a filter for the jobs of these routes that are freed entries. Uses the index `limited`.
pub(crate) fn left(routes: &[i32]) -> Document {
    doc! { LIMITED: true, "state": not_running(), "route": { "$in": routes } }
}

/// Route and fair key of a freed entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Freed {
    route: i32,
    key: String,
}

impl Freed {
    /// Reads the entry that an ended job is. `None` if it is none, or if it cannot be read.
    pub(crate) fn of(row: &RawDocument) -> Option<Self> {
        row::flag(row, LIMITED).then_some(())?;
        Self::read(row).ok()
    }

    /// Returns the projection of the fields that [`of`](Self::of) needs.
    pub(crate) fn fields() -> Document {
        doc! { LIMITED: 1, "route": 1, "fair_key": 1 }
    }

    pub(crate) fn read(row: &RawDocument) -> Result<Self, InvalidInput> {
        let key = row::text(row, "fair_key")?;
        let key = key.ok_or_else(|| InvalidInput::new("fair_key", "is missing"))?;
        Ok(Self {
            route: row::count(row, "route")?,
            key: key.to_owned(),
        })
    }
}

/// The freed entries of one key.
#[derive(Default)]
struct Entries {
    /// Queue and fair key. `None` if they cannot be read; then the entries are only removed.
    key: Option<Key>,
    /// The jobs that are entries.
    jobs: Vec<JobId>,
    /// The ids of the entries in `freed`.
    stored: Vec<Bson>,
}

/// A level of a key that has parked jobs.
struct ParkedLevel {
    key: Key,
    route: i32,
    priority: Priority,
}

/// A parked job that gets a turn.
struct Woken<'a> {
    id: JobId,
    level: &'a ParkedLevel,
    cost: u32,
}

impl MongoStore {
    /// Stores freed entries.
    pub(crate) async fn store_freed(&self, tx: &mut Tx<'_>, freed: &[Freed]) -> Result<()> {
        let row = |one: &Freed| {
            let row = doc! { "_id": ObjectId::new(), "route": one.route, "fair_key": &one.key };
            RawDocumentBuf::try_from(&row)
        };
        let rows: Vec<RawDocumentBuf> = freed.iter().map(row).collect::<Result<_, _>>()?;
        for rows in rows.chunks(MOST) {
            tx.insert_many(&self.main().freed, rows).await?;
        }
        Ok(())
    }

    /// Stores the freed entries of jobs that this transaction deletes. Without any limit, no job is
    /// parked, so there is nothing to store.
    pub(crate) async fn keep_freed(&self, tx: &mut Tx<'_>, freed: &[Freed]) -> Result<()> {
        if freed.is_empty() {
            return Ok(());
        }
        let limits = doc! { "_id": "ratchet", VERSION: { "$exists": true } };
        match tx.find_one(&self.main().meta, limits).await? {
            Some(_) => self.store_freed(tx, freed).await,
            None => Ok(()),
        }
    }

    /// Takes the freed entries of these routes, and gives turns to parked jobs of their keys.
    /// [fair.limit.free] [fair.limit.wait] [fair.limit.change]
    ///
    /// Entries that other transactions have locked are left to later claims.
    pub(crate) async fn wake_parked(&self, routes: &[(i32, Name)], now: i64) -> Result<()> {
        let mut giving = Some(self.giving_turns().await);
        let freed = self.freed_entries(routes).await?;
        let mut division = Division::new(&freed, 0);
        while let Some(chunk) = division.next() {
            let alone = match giving.take() {
                Some(alone) => alone,
                None => self.giving_turns().await,
            };
            let given = self.wake_keys(chunk, now).await;
            drop(alone);
            division.given(chunk, given?).await;
        }
        let left_out = division.left_out().len();
        if left_out > 0 {
            tracing::debug!(keys = left_out, "left freed entries to a later claim");
        }
        Ok(())
    }

    /// Reads the freed entries of these routes, in the order of queue and key.
    async fn freed_entries(&self, routes: &[(i32, Name)]) -> Result<Vec<Entries>> {
        let side = self.main();
        let queues: HashMap<i32, &Name> = routes.iter().map(|(id, queue)| (*id, queue)).collect();
        let routes: Vec<i32> = queues.keys().copied().collect();
        let limit = doc! { "$limit": i64::try_from(FREED_BY_A_CLAIM).unwrap_or(i64::MAX) };
        let read = doc! { "$project": { "route": 1, "fair_key": 1 } };
        let stages = vec![
            doc! { "$match": { "route": { "$in": &routes } } },
            doc! { "$sort": { "_id": 1 } },
            limit.clone(),
            read.clone(),
            doc! { "$set": { "stored": true } },
            doc! { "$unionWith": { "coll": side.jobs.name(), "pipeline": [
                { "$match": left(&routes) },
                limit.clone(),
                read,
            ] } },
            limit,
        ];
        let rows = side
            .plain()
            .aggregate(&side.freed, stages, ReadConcern::majority())
            .await?;
        let mut all: BTreeMap<Option<Key>, Entries> = BTreeMap::new();
        for row in &rows {
            let freed = Freed::read(row).ok();
            let key = freed.and_then(|Freed { route, key }| {
                let key = Name::new("fair_key", key).ok()?;
                Some(((*queues.get(&route)?).clone(), key))
            });
            let entries = all.entry(key).or_default();
            match row::flag(row, "stored") {
                true => entries
                    .stored
                    .extend(row.get("_id")?.map(Bson::try_from).transpose()?),
                false => entries.jobs.extend(row::job_id(row, "_id")),
            }
        }
        let entries = |(key, entries)| Entries { key, ..entries };
        Ok(all.into_iter().map(entries).collect())
    }

    /// Gives turns to the parked jobs of these keys, and removes the entries.
    async fn wake_keys(&self, freed: &[Entries], now: i64) -> Result<Given> {
        let side = self.main();
        let keys = freed.iter().filter_map(|entries| entries.key.clone());
        let keys: BTreeSet<Key> = keys.collect();
        let mut tx = side.begin().await?;
        let mut conflict = Given::RoutesLocked;
        let woken = async {
            let queues: BTreeSet<&str> = keys.iter().map(|(queue, _)| queue.as_str()).collect();
            let queues: Vec<&str> = queues.into_iter().collect();
            let of_queues = doc! { "queue": { "$in": queues } };
            let mut fair = of_queues.clone();
            fair.insert("fair", true);
            self.lock_routes(&mut tx, fair).await?;
            let counted = self.count_keys(&mut tx, &keys).await?;
            let routes = self.fair_routes(&mut tx, of_queues).await?;
            let levels = self.parked_levels(&mut tx, &routes, &keys).await?;
            let (woken, more) = self.first_parked(&mut tx, &counted, &levels).await?;
            let of_level = |one: &Woken<'_>| (one.level.route, one.level.priority);
            let places = woken.iter().map(|one| {
                let (route, priority) = of_level(one);
                (route, priority, &one.level.key.1)
            });
            let places: Vec<_> = places.collect();
            let mut turns = match places.is_empty() {
                true => fair::Levels::default(),
                false => {
                    self.read_levels(&mut tx, &places, fair::unparked(), now)
                        .await?
                }
            };
            conflict = Given::JobsLocked;
            let statements = woken.iter().filter_map(|one| {
                let key = (&one.level.key.1, one.cost);
                let turn = turns.give(of_level(one), key, now)?;
                let this = doc! {
                    "_id": row::id(one.id),
                    "state": code(JobState::Pending),
                    "turn": fair::parked(),
                };
                Some(Statement::new(
                    this,
                    vec![doc! { "$set": { "turn": turn } }],
                ))
            });
            tx.bulk(&side.jobs, statements.collect()).await?;
            self.remove_entries(&mut tx, freed).await?;
            self.store_freed(&mut tx, &more).await
        };
        let woken = woken.await;
        match tx.finish(woken).await {
            Err(failure) if failure.kind == StoreErrorKind::Contention => Ok(conflict),
            woken => woken.map(|()| Given::All),
        }
    }

    /// Removes entries. A job that runs again keeps its field.
    async fn remove_entries(&self, tx: &mut Tx<'_>, freed: &[Entries]) -> Result<()> {
        let side = self.main();
        let jobs = freed.iter().flat_map(|entries| &entries.jobs).copied();
        let jobs: Vec<JobId> = jobs.collect();
        if !jobs.is_empty() {
            let these = doc! {
                "_id": { "$in": ids(&jobs) },
                "state": { "$ne": code(JobState::Running) },
            };
            let remove = doc! { "$unset": { LIMITED: "" } };
            tx.update_these(&side.jobs, these, remove).await?;
        }
        let stored = freed.iter().flat_map(|entries| &entries.stored).cloned();
        let stored: Vec<Bson> = stored.collect();
        if !stored.is_empty() {
            let these = doc! { "_id": { "$in": stored } };
            tx.delete_many(&side.freed, these).await?;
        }
        Ok(())
    }

    /// Returns the levels of these keys that have parked jobs, in the order of the keys. First
    /// looks for the levels in which any job is parked, with the index `turn`, and then for the
    /// keys, with the index `key_turn`.
    async fn parked_levels(
        &self,
        tx: &mut Tx<'_>,
        routes: &[(i32, Name)],
        keys: &BTreeSet<Key>,
    ) -> Result<Vec<ParkedLevel>> {
        let side = self.main();
        let levels = routes.iter().flat_map(|(route, queue)| {
            let of_queue = keys.iter().filter(move |(of, _)| of == queue);
            let of_queue: Vec<&str> = of_queue.map(|(_, key)| key.as_str()).collect();
            let level =
                move |priority| doc! { "route": *route, "priority": priority, "key": &of_queue };
            (0..5).map(level)
        });
        let levels: Vec<Document> = levels.collect();
        if levels.is_empty() {
            return Ok(Vec::new());
        }
        let any = || {
            vec![
                doc! { "$limit": 1 },
                doc! { "$project": { "_id": 0, "turn": 1 } },
            ]
        };
        let read = |same: &[&str]| {
            fair::read_turns(side.jobs.name(), same, fair::parked(), any(), "parked")
        };
        let found = doc! { "$match": { "parked": { "$ne": [] } } };
        let mut stages = fair::documents(levels);
        stages.push(read(&["route", "priority"]));
        stages.push(found.clone());
        stages.push(doc! { "$unwind": "$key" });
        stages.push(read(&["route", "priority", "fair_key"]));
        stages.push(found);
        let rows = tx.aggregate(&side.meta, stages, ReadConcern::majority());
        let mut parked = Vec::new();
        for row in rows.await? {
            let route = row::count(&row, "route")?;
            let queue = routes.iter().find(|(id, _)| *id == route);
            if let (Some((_, queue)), Some(key)) = (queue, row::name(&row, "key")?) {
                parked.push(ParkedLevel {
                    key: (queue.clone(), key),
                    route,
                    priority: Priority::from_level(row::int(&row, "priority")?)?,
                });
            }
        }
        parked.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Ok(parked)
    }

    /// Returns the parked jobs of these levels that get turns, and entries for the keys that have
    /// more of them. Uses the index `key_turn`.
    async fn first_parked<'l>(
        &self,
        tx: &mut Tx<'_>,
        counted: &Counted,
        levels: &'l [ParkedLevel],
    ) -> Result<(Vec<Woken<'l>>, Vec<Freed>)> {
        let side = self.main();
        let (mut woken, mut more) = (Vec::new(), BTreeMap::new());
        let share = share(levels.len());
        let free = |level: &ParkedLevel| {
            let (max, running) = counted.of(&level.key);
            (max, places_for(max, running, 0))
        };
        // A level without a free place gets none.
        let levels: Vec<&ParkedLevel> = levels.iter().filter(|one| free(one).1 > 0).collect();
        if levels.is_empty() {
            return Ok((woken, Vec::new()));
        }
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let most = levels.iter().map(|one| free(one).1).max().unwrap_or(0);
        let limited = levels.iter().map(|one| free(one));
        let limited = limited.filter_map(|(max, free)| max.map(|_| free));
        let ahead = vec![
            doc! { "$limit": number(limited.max().unwrap_or(1)) },
            doc! { "$count": "count" },
        ];
        let first = vec![
            doc! { "$sort": { "turn": 1, "_id": 1 } },
            doc! { "$limit": number(most.min(share).saturating_add(1)) },
            doc! { "$project": { "fair_cost": 1 } },
        ];
        let list = levels.iter().enumerate().map(|(place, level)| {
            doc! {
                "place": number(place as u64),
                "route": level.route,
                "priority": i32::from(level.priority.level()),
                "key": level.key.1.as_str(),
            }
        });
        let same = ["route", "priority", "fair_key"];
        let mut stages = fair::documents(list.collect());
        let jobs = side.jobs.name();
        stages.push(fair::read_turns(
            jobs,
            &same,
            fair::unparked(),
            ahead,
            "ahead",
        ));
        stages.push(fair::read_turns(
            jobs,
            &same,
            fair::parked(),
            first,
            "parked",
        ));
        stages.push(doc! { "$set": { "ahead": { "$sum": "$ahead.count" } } });
        let rows = tx.aggregate(&side.meta, stages, ReadConcern::majority());
        for row in rows.await? {
            let place: usize = row::count(&row, "place")?;
            let Some(level) = levels.get(place).copied() else {
                continue;
            };
            let (max, running) = counted.of(&level.key);
            let places = places_for(max, running, row::count(&row, "ahead")?);
            let parked = row.get_array("parked");
            let parked = parked.map_err(|_| InvalidInput::new("parked", "is not an array"))?;
            for (job, number) in parked.into_iter().zip(0..places) {
                if number == share {
                    let route = level.route;
                    let key = level.key.1.to_string();
                    more.insert(&level.key, Freed { route, key });
                    break;
                }
                if let Some(job) = job?.as_document() {
                    woken.push(Woken {
                        id: row::job_id(job, "_id")?,
                        level,
                        cost: FairKey::cost_or_unit(row::int(job, "fair_cost").ok()),
                    });
                }
            }
        }
        Ok((woken, more.into_values().collect()))
    }
}
