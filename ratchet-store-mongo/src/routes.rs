//! The cache of routes. The document of a job contains only the number of its route.
//!
//! A restored backup may lack the newest routes. New routes then get the numbers of the missing
//! routes. To detect this, each route has a random stamp, and the cache is validated against the
//! database before it is used. Every claim validates the cache, in the statement that reads the
//! data for the claim. All other calls validate the cache after a lost connection, or if the last
//! validation is more than a second old.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::{Route, time};
use tokio::time::Instant;

use crate::connection::Side;
use crate::error::Result;
use crate::outages::Outages;
use crate::row;

/// How long the cache is used without another validation, if no connection is lost.
const TRUSTED: Duration = Duration::from_secs(1);

/// A cache of all stored routes.
///
/// A route has up to two documents: one for its jobs without a fair key, and one with the flag
/// `fair` for the others. So claims of plain jobs never read the others.
///
/// Stored routes are never deleted, and only their counter of [turns](crate::fair) changes. A new
/// route gets the largest stored number plus one.
/// A store adds a route only after a majority of the servers has the previous route. So routes
/// become visible in the order of their numbers. To find new routes, the cache only reads routes
/// with a larger number than it has.
#[derive(Debug)]
pub(crate) struct Routes {
    known: RwLock<Known>,
    checked: Mutex<Checked>,
}

#[derive(Debug, Default)]
struct Known {
    routes: BTreeMap<i32, Route>,
    /// The numbers of the routes of jobs with a fair key.
    fair: BTreeSet<i32>,
    /// The numbers of routes: first those of jobs without a fair key, and then those of the others.
    ids: [HashMap<Route, i32>; 2],
    last: Last,
}

/// The stored route with the largest number that the cache has read. If this route cannot be
/// decoded, the cache still records its number here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    number: i32,
    /// Random value that identifies the route. `None` for a route that an earlier version stored.
    stamp: Option<ObjectId>,
}

/// The time of the last validation of the cache, and the outages since.
#[derive(Debug)]
struct Checked {
    at: Option<Instant>,
    outages: Outages,
}

impl Last {
    /// Reads the last route from a document. The field `number` contains the route's number.
    pub(crate) fn read(row: &RawDocument, number: &'static str) -> Result<Self> {
        Ok(Self {
            number: row::count(row, number)?,
            stamp: row.get_object_id("stamp").ok(),
        })
    }
}

impl Known {
    /// Adds routes to the cache. The documents must be in the order of their numbers.
    fn learn(&mut self, rows: &[RawDocumentBuf]) {
        for row in rows {
            let Ok(last) = Last::read(row, "_id") else {
                continue;
            };
            let id = last.number;
            match route(row) {
                Ok(route) => {
                    let fair = row::flag(row, "fair");
                    if fair {
                        self.fair.insert(id);
                    }
                    self.ids[usize::from(fair)].insert(route.clone(), id);
                    self.routes.insert(id, route);
                }
                Err(error) => tracing::warn!(route = id, %error, "skipped a stored route that \
                    cannot be read"),
            }
            self.last = last;
        }
    }
}

impl Routes {
    /// Creates an empty cache. `outages` reports the outages of the client that reads the routes.
    pub(crate) fn new(outages: &Outages) -> Self {
        Self {
            known: RwLock::default(),
            checked: Mutex::new(Checked {
                at: None,
                outages: outages.clone(),
            }),
        }
    }

    /// Refreshes the cache if its last validation is too old, or if a connection was lost since.
    pub(crate) async fn check(&self, side: &Side) -> Result<()> {
        let trusted = {
            let checked = self.checked();
            let recent = checked.at.is_some_and(|at| at.elapsed() < TRUSTED);
            recent && !checked.outages.have_been()
        };
        match trusted {
            true => Ok(()),
            false => self.refresh(side).await,
        }
    }

    /// Marks the cache as outdated. From now on, the cache uses `outages`, which reports the
    /// outages of another client.
    pub(crate) fn follow(&self, outages: &Outages) {
        *self.checked() = Checked {
            at: None,
            outages: outages.clone(),
        };
    }

    /// Validates the cache and adds the routes that other stores have added. If the last known
    /// route is not stored any more, or its number belongs to another route, reads all routes
    /// again.
    pub(crate) async fn refresh(&self, side: &Side) -> Result<()> {
        let began = time::monotonic();
        self.checked().outages.forget();
        loop {
            let last = self.last();
            let mut rows = self.read_from(side, last.number).await?;
            let restored = last.number > 0
                && match rows.first() {
                    Some(row) => Last::read(row, "_id")? != last,
                    None => true,
                };
            if restored {
                rows = self.read_from(side, 0).await?;
            }
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.last != last {
                // A concurrent refresh was faster, and it may have read newer rows than this one.
                continue;
            }
            if restored {
                tracing::warn!(
                    route = last.number,
                    "a known route is no longer stored, so the database was restored"
                );
                *known = Known::default();
            }
            known.learn(&rows);
            break;
        }
        self.checked().at = Some(began);
        Ok(())
    }

    /// Reads all routes whose number is at least `number`, in order.
    async fn read_from(&self, side: &Side, number: i32) -> Result<Vec<RawDocumentBuf>> {
        let options = FindOptions::builder().sort(doc! { "_id": 1 }).build();
        let from = doc! { "_id": { "$gte": number } };
        side.plain().find(&side.routes, from, options).await
    }

    /// Returns the number of a route, for jobs with a fair key if `fair` is true, and otherwise for
    /// jobs without. Stores the route first if it is new.
    pub(crate) async fn id_of(&self, side: &Side, route: &Route, fair: bool) -> Result<i32> {
        self.check(side).await?;
        loop {
            if let Some(id) = self.known_id(route, fair) {
                return Ok(id);
            }
            self.refresh(side).await?;
            if let Some(id) = self.known_id(route, fair) {
                return Ok(id);
            }
            let mut new = doc! {
                "_id": self.last().number + 1,
                "stamp": ObjectId::new(),
                "queue": route.queue.as_str(),
                "kind": route.kind.as_str(),
                "capability": route.capability_text(),
                "permit": route.permit_text(),
            };
            if fair {
                new.insert("fair", true);
            }
            let new = RawDocumentBuf::try_from(&new)?;
            match side.plain().insert_many(&side.routes, &[new]).await {
                // Another store has added this route, or has added another route with the same
                // number. A majority may not have that route yet.
                Err(failure) if failure.is_duplicate() => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                added => added?,
            }
        }
    }

    /// Returns whether the cache contains this route.
    pub(crate) fn is_known(&self, route: &Route) -> bool {
        [false, true]
            .into_iter()
            .any(|fair| self.known_id(route, fair).is_some())
    }

    fn known_id(&self, route: &Route, fair: bool) -> Option<i32> {
        self.read(|known| known.ids[usize::from(fair)].get(route).copied())
    }

    /// Returns the numbers of the cached routes of jobs with a fair key.
    pub(crate) fn fair(&self) -> BTreeSet<i32> {
        self.read(|known| known.fair.clone())
    }

    /// Returns the route with this number, if the cache contains it.
    pub(crate) fn get(&self, id: i64) -> Option<Route> {
        let id = i32::try_from(id).ok()?;
        self.read(|known| known.routes.get(&id).cloned())
    }

    /// Returns the route with the largest number that the cache has read.
    pub(crate) fn last(&self) -> Last {
        self.read(|known| known.last)
    }

    /// Returns the largest route number that the cache has read.
    pub(crate) fn seen(&self) -> i32 {
        self.last().number
    }

    /// Returns the numbers of the cached routes for which `matches` returns true.
    pub(crate) fn matching(&self, matches: impl Fn(&Route) -> bool) -> Vec<i32> {
        self.read(|known| {
            let chosen = known.routes.iter().filter(|(_, route)| matches(route));
            chosen.map(|(id, _)| *id).collect()
        })
    }

    /// Returns the cached routes for which `matches` returns true, with their numbers.
    pub(crate) fn chosen(&self, matches: impl Fn(&Route) -> bool) -> Vec<(i32, Route)> {
        self.read(|known| {
            let chosen = known.routes.iter().filter(|(_, route)| matches(route));
            chosen.map(|(id, route)| (*id, route.clone())).collect()
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn checked(&self) -> MutexGuard<'_, Checked> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a route from a document of the collection `routes`.
fn route(row: &RawDocument) -> Result<Route> {
    let text = |field| row::text(row, field).map(Option::unwrap_or_default);
    Ok(Route::from_texts(
        text("queue")?,
        text("kind")?,
        text("capability")?,
        text("permit")?,
    )?)
}
