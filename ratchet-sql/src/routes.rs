//! The routes, cached: a job row has only the number of its route.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock};

use ratchet_core::{InvalidInput, Route};

use crate::dialect::{Connections, Dialect, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::statement::Statements;

/// What a store knows of the routes. Stored routes are never changed or deleted, and are committed
/// in the order of their ids, each with a random stamp. So a database that has a route with this id
/// and this stamp has all routes that a process knew when it read that one, and under the same ids.
/// A server that took over from another, or was restored, may lack some or have others in their
/// place. Each statement that uses ids from here therefore looks for one [`Mark`] first and does
/// nothing if it is missing; the caller then reads the routes again and repeats the statement.
///
/// Routes are added on the connection of heartbeats and locks, in statements of their own: the pool
/// may have no other connection than the one that an `enqueue_in` is on, and a route that is left
/// over from a transaction that was rolled back does no harm.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<Known>);

/// The id of a route with its stamp; an id of 0 stands for no route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) id: i32,
    pub(crate) stamp: i64,
}

#[derive(Debug, Default)]
struct Known {
    routes: BTreeMap<i32, Route>,
    marks: HashMap<Route, Mark>,
    /// The last route that was read; one that cannot be decoded is not among the known.
    last: Mark,
    /// The route that a statement last looked for in vain.
    refuted: Option<Mark>,
}

/// The routes that a call is about.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// In the order of their ids.
    pub(crate) routes: Vec<(i32, Route)>,
    /// The last route that was read.
    pub(crate) last: Mark,
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

    /// The route with this id, if it is one of them.
    pub(crate) fn get(&self, id: i32) -> Option<&Route> {
        let found = self.routes.binary_search_by_key(&id, |(id, _)| *id);
        found.ok().map(|place| &self.routes[place].1)
    }
}

impl Known {
    fn add(&mut self, rows: &[impl Row]) -> Result<()> {
        for row in rows {
            let mark = mark(row)?;
            match row::route(row, 2) {
                Ok(route) => {
                    self.marks.insert(route.clone(), mark);
                    self.routes.insert(mark.id, route);
                }
                Err(error) => {
                    tracing::warn!(route = mark.id, %error, "a stored route cannot be read");
                }
            }
            self.last = mark;
        }
        Ok(())
    }
}

impl Routes {
    /// Reads the routes that were added since, or all of them if the last known one is missing.
    pub(crate) async fn refresh<D: Dialect>(
        &self,
        on: &mut impl Run<D>,
        sql: &Statements<D>,
    ) -> Result<()> {
        let last = self.read(|known| known.last);
        let load = |from: i32| sql.load_routes.query().bind(from);
        let mut rows = on.rows(load(last.id)).await?;
        let goes_on = last == Mark::default() || rows.first().map(mark).transpose()? == Some(last);
        if !goes_on {
            rows = on.rows(load(0)).await?;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.last != last {
            // Another call has read them meanwhile.
            return Ok(());
        }
        if !goes_on {
            *known = Known {
                refuted: known.refuted,
                ..Known::default()
            };
        }
        known.add(&rows)
    }

    /// Reads the routes again on the connection on which this mark was missing. Returns whether it
    /// was missing the last time too: then the connection on which routes are added still shows it.
    pub(crate) async fn refute<D: Dialect>(
        &self,
        mark: Mark,
        on: &mut impl Run<D>,
        sql: &Statements<D>,
    ) -> Result<bool> {
        let again = {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let again = known.refuted == Some(mark);
            known.refuted = (!again).then_some(mark);
            again
        };
        self.refresh(on, sql).await?;
        Ok(again)
    }

    /// The mark of a route; stores the route if it is new.
    pub(crate) async fn mark_of<D: Dialect>(
        &self,
        connections: &D::Connections,
        sql: &Statements<D>,
        route: &Route,
    ) -> Result<Mark> {
        loop {
            if let Some(mark) = self.read(|known| known.marks.get(route).copied()) {
                return Ok(mark);
            }
            let add = sql
                .add_route
                .query()
                .bind(route.queue.as_str())
                .bind(route.kind.as_str())
                .bind(route.capability_text())
                .bind(route.permit_text());
            let mut lease = connections.live().await?;
            if let Some(resource) = &route.permit {
                // No resource is ever deleted, so nothing can come between the look and the route.
                let find = sql.find_permit.query().bind(resource.as_str());
                if lease.rows(find).await?.is_empty() {
                    return Err(Failure::refused(InvalidInput::unknown_permit(resource)));
                }
            }
            let added = match lease.execute(add).await {
                Err(failure) if failure.duplicate => 0,
                added => added?,
            };
            self.refresh(&mut lease, sql).await?;
            drop(lease);
            if added == 0 {
                // Another process added this route, or another one under the id it was to have.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns the marks of these routes, all as of one moment, so that the largest proves the
    /// others. `None` if one is not known.
    pub(crate) fn marks<'a>(&self, routes: impl Iterator<Item = &'a Route>) -> Option<Vec<Mark>> {
        self.read(|known| {
            routes
                .map(|route| known.marks.get(route).copied())
                .collect()
        })
    }

    /// The known routes that match.
    pub(crate) fn matching(&self, matches: impl Fn(&Route) -> bool) -> Chosen {
        self.read(|known| {
            let chosen = known.routes.iter().filter(|(_, route)| matches(route));
            Chosen {
                routes: chosen.map(|(id, route)| (*id, route.clone())).collect(),
                last: known.last,
            }
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The mark in a row of `load_routes`.
fn mark(row: &impl Row) -> Result<Mark> {
    Ok(Mark {
        id: row.try_get(0)?,
        stamp: row.try_get(1)?,
    })
}
