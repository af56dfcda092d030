//! The routes, cached: a job row has only the number of its route.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock};

use ratchet_core::{InvalidInput, Route};

use crate::connection::Liveness;
use crate::error::{Failure, Result};
use crate::row;
use crate::statements::Statements;

/// What a store knows of the routes. Stored routes are never changed or deleted, and become visible
/// in the order of their ids, so what is known stays true and the largest known id says what is
/// new. Only a server that took over from another, or was restored, may lack some: what is known is
/// doubted with every call that finds its connection lost, and when there are fewer than are known,
/// and then read anew. A node has heartbeats, which find theirs lost. A process that only enqueues
/// may see nothing of it: a pooler hides it, a pool of the application's own replaces dead
/// connections before it hands them out, and so does the store's own pool those that nobody was
/// using. If the server that took over lacks a route (it was added within the lag of the replica),
/// such a process stores jobs for it under a number that is nobody's until a node adds it, or is
/// another's.
///
/// Routes are read and added on the connection of heartbeats and locks, in statements of their own:
/// the pool may have no other connection than the one that an `enqueue_in` is on, and a route that
/// is left over from a transaction that was rolled back does no harm.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    routes: BTreeMap<i32, Route>,
    ids: HashMap<Route, i32>,
    /// The largest id that was looked at; a route that cannot be read is not among the known.
    seen: i32,
    /// All is to be read anew before anything is stored or claimed by it.
    doubted: bool,
}

/// The routes that a call is about.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) routes: Vec<(i32, Route)>,
    /// The last route that was looked at.
    pub(crate) seen: i32,
}

impl Chosen {
    /// Their ids.
    pub(crate) fn ids(&self) -> Vec<i32> {
        self.routes.iter().map(|(id, _)| *id).collect()
    }

    /// Whether jobs of any of them need a permit.
    pub(crate) fn needs_permits(&self) -> bool {
        self.routes.iter().any(|(_, route)| route.permit.is_some())
    }
}

impl Known {
    /// The last route that was looked at; if that is doubted, one that there never is.
    fn trusted(&self) -> i32 {
        if self.doubted { -1 } else { self.seen }
    }
}

impl Routes {
    /// Has everything read anew.
    pub(crate) fn doubt(&self) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.doubted = true;
    }

    /// Learns the routes that were added meanwhile, by whomever.
    pub(crate) async fn refresh(&self, liveness: &Liveness, sql: &Statements) -> Result<()> {
        let (seen, doubted) = self.read(|known| (known.seen, known.doubted));
        let from = if doubted { 0 } else { seen };
        let mut lease = liveness.lease().await?;
        // The last known one comes too, unless it is gone.
        let rows = lease.rows(sql.load_routes.query().bind(from)).await?;
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if (known.seen, known.doubted) != (seen, doubted) {
            // Somebody else was faster, or there are new doubts: callers look again.
            return Ok(());
        }
        if from > 0 && rows.is_empty() {
            known.doubted = true;
            return Ok(());
        }
        if doubted {
            *known = Known::default();
        }
        for row in rows {
            let id: i32 = row.try_get(0)?;
            match row::route(&row, 1) {
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

    /// The id of a route; stores the route if it is new.
    pub(crate) async fn id_of(
        &self,
        liveness: &Liveness,
        sql: &Statements,
        route: &Route,
    ) -> Result<i32> {
        loop {
            if let Some(id) = self.known_id(route) {
                return Ok(id);
            }
            let add = sql
                .add_route
                .query()
                .bind(route.queue.as_str())
                .bind(route.kind.as_str())
                .bind(route.capability_text())
                .bind(route.permit_text());
            let mut lease = liveness.lease().await?;
            if let Some(resource) = &route.permit {
                // No resource is ever deleted, so nothing can come between the look and the route.
                let find = sql.find_permit.query().bind(resource.as_str());
                if lease.rows(find).await?.is_empty() {
                    return Err(Failure::refused(InvalidInput::unknown_permit(resource)));
                }
            }
            let added = lease.execute(add).await;
            drop(lease);
            let raced = matches!(&added, Err(failure) if failure.duplicate);
            if !raced {
                added?;
            }
            self.refresh(liveness, sql).await?;
            if raced {
                // Somebody else added this route, or another one under the id it was to have.
                tokio::task::yield_now().await;
            }
        }
    }

    /// The id of a route that is known.
    pub(crate) fn known_id(&self, route: &Route) -> Option<i32> {
        self.read(|known| known.ids.get(route).filter(|_| !known.doubted).copied())
    }

    /// The route with this id, if it is known.
    pub(crate) fn get(&self, id: i32) -> Option<Route> {
        self.read(|known| known.routes.get(&id).cloned())
    }

    /// The last route that was looked at.
    pub(crate) fn seen(&self) -> i32 {
        self.read(Known::trusted)
    }

    /// The known routes that match.
    pub(crate) fn matching(&self, matches: impl Fn(&Route) -> bool) -> Chosen {
        self.read(|known| {
            let chosen = known.routes.iter().filter(|(_, route)| matches(route));
            Chosen {
                routes: chosen.map(|(id, route)| (*id, route.clone())).collect(),
                seen: known.trusted(),
            }
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
