//! The routes, cached: a job has only the number of its route.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::Route;

use crate::connection::Side;
use crate::error::Result;
use crate::row;

/// What a store knows of the routes. Stored routes are never changed or deleted. Each is stored
/// under the number after the last, and only once that one is known to a majority: so they become
/// visible in the order of their numbers, and the largest known number says what is new.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    routes: BTreeMap<i32, Route>,
    ids: HashMap<Route, i32>,
    /// The largest number that was looked at; a route that cannot be read is not among the known.
    seen: i32,
}

impl Routes {
    /// Learns the routes that were added meanwhile, by whomever.
    pub(crate) async fn refresh(&self, side: &Side) -> Result<()> {
        let seen = self.seen();
        let options = FindOptions::builder().sort(doc! { "_id": 1 }).build();
        let rows = side
            .plain()
            .find(&side.routes, doc! { "_id": { "$gt": seen } }, options)
            .await?;
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let Ok(id) = row::count(&row, "_id") else {
                continue;
            };
            match route(&row) {
                Ok(route) => {
                    known.ids.insert(route.clone(), id);
                    known.routes.insert(id, route);
                }
                Err(error) => tracing::warn!(route = id, %error, "a stored route cannot be read"),
            }
            known.seen = known.seen.max(id);
        }
        Ok(())
    }

    /// The number of a route; stores the route if it is new.
    pub(crate) async fn id_of(&self, side: &Side, route: &Route) -> Result<i32> {
        loop {
            if let Some(id) = self.known_id(route) {
                return Ok(id);
            }
            self.refresh(side).await?;
            if let Some(id) = self.known_id(route) {
                return Ok(id);
            }
            let new = doc! {
                "_id": self.seen() + 1,
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
    pub(crate) fn seen(&self) -> i32 {
        self.read(|known| known.seen)
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
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
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
