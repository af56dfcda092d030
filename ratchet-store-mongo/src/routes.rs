//! The cache of routes. The document of a job contains only the number of its route.
//!
//! A restored backup may lack the newest routes. New routes then get the numbers of the missing
//! routes. To detect this, each route has a random stamp, and the cache is validated against the
//! database before it is used. Every claim validates the cache, in the statement that reads the
//! data for the claim. All other calls validate the cache after a lost connection, or if the last
//! validation is more than a second old.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::dictionary::{Dictionary, Place, RouteEntry, Streams};
use ratchet_core::model::{ClaimRequest, JobFilter};
use ratchet_core::{Name, Route, time};
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
/// `fair` for the others. So claims of plain jobs never read the others. A shared route has no
/// queue, and a marker has no kind, see [`ratchet_core::dictionary`].
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

#[derive(Debug)]
struct Known {
    entries: Dictionary<i32>,
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

    /// Reads the last route from a document of [`last_route`](crate::pipelines::last_route).
    /// Returns `None` for other documents.
    pub(crate) fn find(row: &RawDocument) -> Result<Option<Self>> {
        match row::optional_int(row, "last")? {
            Some(_) => Self::read(row, "last").map(Some),
            None => Ok(None),
        }
    }
}

impl Known {
    /// Adds routes to the cache. The documents must be in the order of their numbers.
    fn learn(&mut self, rows: &[RawDocumentBuf]) {
        for row in rows {
            let Ok(last) = Last::read(row, "_id") else {
                continue;
            };
            if last == self.last {
                // The cache has this route.
                continue;
            }
            let id = last.number;
            match entry(row) {
                Ok(entry) => self.entries.add(id, entry, row::flag(row, "fair")),
                Err(error) => tracing::warn!(route = id, %error, "skipped a stored route that \
                    cannot be read"),
            }
            self.last = last;
        }
    }
}

impl Routes {
    /// Creates an empty cache. `outages` reports the outages of the client that reads the routes.
    /// `own_queues` is the number of queues that get routes of their own because they were used
    /// first.
    pub(crate) fn new(outages: &Outages, own_queues: usize) -> Self {
        Self {
            known: RwLock::new(Known {
                entries: Dictionary::new(own_queues),
                last: Last::default(),
            }),
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
                known.entries.clear();
                known.last = Last::default();
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

    /// Returns the entry of a job with this route, without a fair key or with one. Stores the entry
    /// first if it is new.
    pub(crate) async fn place(&self, side: &Side, route: &Route, fair: bool) -> Result<Place<i32>> {
        self.check(side).await?;
        loop {
            if let Ok(place) = self.read(|known| known.entries.place(route, fair)) {
                return Ok(place);
            }
            self.refresh(side).await?;
            match self.read(|known| known.entries.place(route, fair)) {
                Ok(place) => return Ok(place),
                Err(entry) => self.add(side, &entry, fair).await?,
            }
        }
    }

    /// Returns the number of a queue's own route of plain jobs. Stores the route first if it is
    /// new.
    pub(crate) async fn own(&self, side: &Side, route: Route) -> Result<i32> {
        let entry = RouteEntry::Own(route.clone());
        loop {
            self.refresh(side).await?;
            match self.read(|known| known.entries.own(&route)) {
                Some(id) => return Ok(id),
                None => self.add(side, &entry, false).await?,
            }
        }
    }

    /// Stores the markers of the queues that the request excludes, if there are shared routes.
    pub(crate) async fn mark(&self, side: &Side, request: &ClaimRequest) -> Result<()> {
        let markers = |known: &Known| known.entries.markers(request);
        if self.read(markers).is_empty() {
            return Ok(());
        }
        self.refresh(side).await?;
        for marker in self.read(markers) {
            // If another store was faster, the next claim tries again.
            self.add(side, &marker, false).await?;
            self.refresh(side).await?;
        }
        Ok(())
    }

    /// Stores a new entry, unless another store has just stored the entry or another one with its
    /// number. The caller must then read the routes.
    async fn add(&self, side: &Side, entry: &RouteEntry, fair: bool) -> Result<()> {
        let [queue, kind, capability, permit] = entry.texts();
        let mut new = doc! {
            "_id": self.last().number + 1,
            "stamp": ObjectId::new(),
            "queue": queue,
            "kind": kind,
            "capability": capability,
            "permit": permit,
        };
        if fair {
            new.insert("fair", true);
        }
        let new = RawDocumentBuf::try_from(&new)?;
        match side.plain().insert_many(&side.routes, &[new]).await {
            // A majority may not have the other route yet.
            Err(failure) if failure.is_duplicate() => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok(())
            }
            added => added,
        }
    }

    /// Returns whether the cache contains the entry of jobs with this route.
    pub(crate) fn is_known(&self, route: &Route) -> bool {
        let is_known = |fair| self.read(|known| known.entries.place(route, fair).is_ok());
        [false, true].into_iter().any(is_known)
    }

    /// Returns the numbers of those of these routes that are for jobs with a fair key.
    pub(crate) fn fair(&self, routes: impl Iterator<Item = i32>) -> BTreeSet<i32> {
        self.read(|known| routes.filter(|id| known.entries.is_fair(*id)).collect())
    }

    /// Returns the routes of jobs with a fair key whose queues are `wanted`, with their queues.
    pub(crate) fn fair_of(&self, wanted: impl Fn(&Name) -> bool) -> Vec<(i32, Name)> {
        self.read(|known| {
            let fair = known.entries.routes();
            let fair =
                fair.filter(|(id, route)| known.entries.is_fair(*id) && wanted(&route.queue));
            fair.map(|(id, route)| (id, route.queue.clone())).collect()
        })
    }

    /// Returns the route of a job with this number, which may name its queue itself.
    pub(crate) fn get(&self, id: i64, queue: Option<&str>) -> Option<Route> {
        let id = i32::try_from(id).ok()?;
        self.read(|known| known.entries.route(id, queue))
    }

    /// Returns the route with the largest number that the cache has read.
    pub(crate) fn last(&self) -> Last {
        self.read(|known| known.last)
    }

    /// Returns the largest route number that the cache has read.
    pub(crate) fn seen(&self) -> i32 {
        self.last().number
    }

    /// Returns what a claim reads.
    pub(crate) fn streams(&self, request: &ClaimRequest) -> Streams<i32> {
        self.read(|known| known.entries.streams(request))
    }

    /// Returns the numbers of the routes of jobs that may match the filter. Returns `None` if the
    /// filter selects neither by queue nor by kind.
    pub(crate) fn filtered(&self, filter: &JobFilter) -> Option<Vec<i32>> {
        self.read(|known| known.entries.filtered(filter))
    }

    /// Returns the cached routes of single queues, with their numbers.
    pub(crate) fn of_queues(&self) -> Vec<(i32, Route)> {
        self.read(|known| {
            let routes = known.entries.routes();
            routes.map(|(id, route)| (id, route.clone())).collect()
        })
    }

    /// Returns whether the cache has shared routes.
    pub(crate) fn has_shared(&self) -> bool {
        self.read(|known| known.entries.shared().next().is_some())
    }

    /// Returns the queues that have a marker in the cache.
    pub(crate) fn marked(&self) -> Vec<Name> {
        self.read(|known| known.entries.marked().cloned().collect())
    }

    /// Returns the cached shared routes, each as the route of a job in this queue.
    pub(crate) fn shared(&self, queue: &Name) -> Vec<(i32, Route)> {
        self.read(|known| {
            let shared = known.entries.shared();
            shared
                .map(|(id, shared)| (id, shared.in_queue(queue.clone())))
                .collect()
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn checked(&self) -> MutexGuard<'_, Checked> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads an entry from a document of the collection `routes`.
fn entry(row: &RawDocument) -> Result<RouteEntry> {
    let text = |field| row::text(row, field).map(Option::unwrap_or_default);
    Ok(RouteEntry::from_texts(
        text("queue")?,
        text("kind")?,
        text("capability")?,
        text("permit")?,
    )?)
}
