//! The routes, cached: a job has only the number of its route.
//!
//! A restore can take routes away, and others then get their numbers. So each route has a random
//! stamp, and the cache is compared with the database where it is used: claims do so in the statement
//! that reads the gate, all else when a connection was lost, and otherwise once a second.

use std::collections::{BTreeMap, HashMap};
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

/// How long the cache is trusted if no connection was lost.
const TRUSTED: Duration = Duration::from_secs(1);

/// What a store knows of the routes. Stored routes are never changed or deleted. Each is stored
/// under the number after the last, and only once that one is known to a majority: so they become
/// visible in the order of their numbers, and the largest known number says what is new.
#[derive(Debug)]
pub(crate) struct Routes {
    known: RwLock<Known>,
    checked: Mutex<Checked>,
}

#[derive(Debug, Default)]
struct Known {
    routes: BTreeMap<i32, Route>,
    ids: HashMap<Route, i32>,
    last: Last,
}

/// The route with the largest number that was looked at. One that cannot be read is not among the
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    number: i32,
    /// `None` for routes of earlier versions.
    stamp: Option<ObjectId>,
}

/// When the cache was last compared with the database.
#[derive(Debug)]
struct Checked {
    at: Option<Instant>,
    outages: Outages,
}

impl Last {
    /// Of a document of `routes`, whose number is in this field.
    pub(crate) fn read(row: &RawDocument, number: &'static str) -> Result<Self> {
        Ok(Self {
            number: row::count(row, number)?,
            stamp: row.get_object_id("stamp").ok(),
        })
    }
}

impl Known {
    /// Adds routes, which come in the order of their numbers.
    fn learn(&mut self, rows: &[RawDocumentBuf]) {
        for row in rows {
            let Ok(last) = Last::read(row, "_id") else {
                continue;
            };
            let id = last.number;
            match route(row) {
                Ok(route) => {
                    self.ids.insert(route.clone(), id);
                    self.routes.insert(id, route);
                }
                Err(error) => tracing::warn!(route = id, %error, "a stored route cannot be read"),
            }
            self.last = last;
        }
    }
}

impl Routes {
    /// None yet. The outages are those of the client that reads them.
    pub(crate) fn new(outages: &Outages) -> Self {
        Self {
            known: RwLock::default(),
            checked: Mutex::new(Checked {
                at: None,
                outages: outages.clone(),
            }),
        }
    }

    /// Makes sure that the known routes are those that are stored, if there is reason to doubt it.
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

    /// Doubts the cache after outages of another client.
    pub(crate) fn follow(&self, outages: &Outages) {
        *self.checked() = Checked {
            at: None,
            outages: outages.clone(),
        };
    }

    /// Learns the routes that others added. Forgets all if the last known one is not stored any more,
    /// or another route has its number.
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
                // Another refresh was faster: these rows may be older than what it found.
                continue;
            }
            if restored {
                tracing::warn!(
                    route = last.number,
                    "a known route is not stored any more: the database was restored"
                );
                *known = Known::default();
            }
            known.learn(&rows);
            break;
        }
        self.checked().at = Some(began);
        Ok(())
    }

    /// The routes from this number on, in order.
    async fn read_from(&self, side: &Side, number: i32) -> Result<Vec<RawDocumentBuf>> {
        let options = FindOptions::builder().sort(doc! { "_id": 1 }).build();
        let from = doc! { "_id": { "$gte": number } };
        side.plain().find(&side.routes, from, options).await
    }

    /// The number of a route; stores the route if it is new.
    pub(crate) async fn id_of(&self, side: &Side, route: &Route) -> Result<i32> {
        self.check(side).await?;
        loop {
            if let Some(id) = self.known_id(route) {
                return Ok(id);
            }
            self.refresh(side).await?;
            if let Some(id) = self.known_id(route) {
                return Ok(id);
            }
            let new = doc! {
                "_id": self.last().number + 1,
                "stamp": ObjectId::new(),
                "queue": route.queue.as_str(),
                "kind": route.kind.as_str(),
                "capability": route.capability_text(),
                "permit": route.permit_text(),
            };
            let new = RawDocumentBuf::try_from(&new)?;
            match side.plain().insert_many(&side.routes, &[new]).await {
                // Somebody else added this route, or another one under its number, and that may not
                // be known to a majority yet.
                Err(failure) if failure.is_duplicate() => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                added => added?,
            }
        }
    }

    /// Whether this route is known to be stored.
    pub(crate) fn is_known(&self, route: &Route) -> bool {
        self.known_id(route).is_some()
    }

    fn known_id(&self, route: &Route) -> Option<i32> {
        self.read(|known| known.ids.get(route).copied())
    }

    /// The route with this number, if it is known.
    pub(crate) fn get(&self, id: i64) -> Option<Route> {
        let id = i32::try_from(id).ok()?;
        self.read(|known| known.routes.get(&id).cloned())
    }

    /// The last route that was looked at.
    pub(crate) fn last(&self) -> Last {
        self.read(|known| known.last)
    }

    /// The largest number that was looked at.
    pub(crate) fn seen(&self) -> i32 {
        self.last().number
    }

    /// The numbers of the known routes that match.
    pub(crate) fn matching(&self, matches: impl Fn(&Route) -> bool) -> Vec<i32> {
        self.read(|known| {
            let chosen = known.routes.iter().filter(|(_, route)| matches(route));
            chosen.map(|(id, _)| *id).collect()
        })
    }

    /// The known routes that match, with their numbers.
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

/// The route of a document of `routes`.
fn route(row: &RawDocument) -> Result<Route> {
    let text = |field| row::text(row, field).map(Option::unwrap_or_default);
    Ok(Route::from_texts(
        text("queue")?,
        text("kind")?,
        text("capability")?,
        text("permit")?,
    )?)
}
