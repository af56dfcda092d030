//! Caches the routes, because the row of a job contains only the id of its route.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock};

use ratchet_core::{InvalidInput, Route};

use crate::connections::Connections;
use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::statement::{OwnStatements as _, Statements};

/// The cached routes of a store.
///
/// Stored routes never change and are never deleted. Transactions that add routes commit in the
/// order of the route ids, and each route has a random stamp. So if a database contains a cached
/// route with the same id and stamp, it also contains all cached routes with lower ids.
///
/// After a failover or a restore, the database may lack routes, or have other routes under their
/// ids. Each statement that uses cached ids therefore looks for one [`Mark`] first. If the mark is
/// missing, the statement does nothing. The caller then reads the routes again and repeats the
/// statement.
///
/// New routes are stored on the connection for heartbeats and locks, outside of the caller's
/// transaction, because an `enqueue_in` may already use the pool's only connection. If the caller's
/// transaction is rolled back, the new route remains, which is harmless.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<Known>);

/// Id and random stamp of a stored route. The id 0 means no route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) id: i32,
    pub(crate) stamp: i64,
}

#[derive(Debug, Default)]
struct Known {
    routes: BTreeMap<i32, Route>,
    /// The ids of the routes for jobs with a fair key.
    fair: BTreeSet<i32>,
    /// The marks of each route, for jobs without and for jobs with a fair key.
    marks: HashMap<Route, [Option<Mark>; 2]>,
    /// Mark of the last route that was read, even if the route could not be decoded.
    last: Mark,
    /// Mark that was missing in the database at the last call of [`Routes::refute`]. `None` if that
    /// call reported the same mark as the call before it.
    refuted: Option<Mark>,
}

/// The cached routes that a store call has selected.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// Id of each selected route, and the route, in order of id.
    pub(crate) routes: Vec<(i32, Route)>,
    /// Ids of the routes for jobs with a fair key.
    fair: BTreeSet<i32>,
    /// Mark of the last route that the cache has read from the database.
    pub(crate) last: Mark,
}

impl Chosen {
    pub(crate) fn ids(&self) -> Vec<i32> {
        self.routes.iter().map(|(id, _)| *id).collect()
    }

    /// Returns the ids of the selected routes for jobs with a fair key.
    pub(crate) fn fair(&self) -> Vec<i32> {
        let ids = self.routes.iter().map(|(id, _)| *id);
        ids.filter(|id| self.fair.contains(id)).collect()
    }

    /// Returns whether jobs of any selected route need a permit.
    pub(crate) fn needs_permits(&self) -> bool {
        self.routes.iter().any(|(_, route)| route.permit.is_some())
    }

    /// Returns the route with this id, or `None` if it is not selected.
    pub(crate) fn get(&self, id: i32) -> Option<&Route> {
        let found = self.routes.binary_search_by_key(&id, |(id, _)| *id);
        found.ok().map(|place| &self.routes[place].1)
    }
}

impl Known {
    fn mark(&self, route: &Route, fair: bool) -> Option<Mark> {
        self.marks.get(route)?[usize::from(fair)]
    }

    /// Adds the routes in rows of the statement `load_routes`. `with_fair` tells whether the rows
    /// have the column `fair`.
    fn add(&mut self, rows: &[impl Row], with_fair: bool) -> Result<()> {
        for row in rows {
            let mark = mark(row)?;
            match row::route(row, 2) {
                Ok(route) => {
                    let fair = with_fair && row.try_get(6)?;
                    let marks = self.marks.entry(route.clone()).or_default();
                    marks[usize::from(fair)] = Some(mark);
                    if fair {
                        self.fair.insert(mark.id);
                    }
                    self.routes.insert(mark.id, route);
                }
                Err(error) => {
                    tracing::warn!(route = mark.id, %error, "skipped a stored route that cannot be \
                        read");
                }
            }
            self.last = mark;
        }
        Ok(())
    }
}

impl Routes {
    /// Reads the routes that were added since the last read. If the database lacks the last cached
    /// route, empties the cache and reads all routes.
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
            // A concurrent call has already read these rows.
            return Ok(());
        }
        if !goes_on {
            *known = Known {
                refuted: known.refuted,
                ..Known::default()
            };
        }
        known.add(&rows, sql.own.turns().is_some())
    }

    /// Reads the routes again after a statement on the connection `on` did not find `mark`.
    ///
    /// Returns `true` if `mark` was also the missing mark at the previous call. Then the connection
    /// on which routes are added leads to another database, which still has this mark. The caller
    /// must replace that connection.
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

    /// Returns the mark of a route for jobs without a fair key, or with one. If the route is not
    /// yet in the database, stores it there first.
    pub(crate) async fn mark_of<D: Dialect>(
        &self,
        connections: &Connections<D::Connector>,
        sql: &Statements<D>,
        route: &Route,
        fair: bool,
    ) -> Result<Mark> {
        loop {
            if let Some(mark) = self.read(|known| known.mark(route, fair)) {
                return Ok(mark);
            }
            let mut add = sql
                .add_route
                .query()
                .bind(route.queue.as_str())
                .bind(route.kind.as_str())
                .bind(route.capability_text())
                .bind(route.permit_text());
            if sql.own.turns().is_some() {
                add = add.bind(fair);
            }
            let mut lease = connections.liveness.lease().await?;
            if let Some(resource) = &route.permit {
                // Resources are never deleted, so this check cannot race with the insert.
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
                // Another process added this route, or used its id for another route. So try again.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns the marks of these routes, all from the same state of the cache. Returns `None` if
    /// the cache lacks one of the routes.
    ///
    /// If a database contains the mark with the largest id, it contains all of these marks. See
    /// [`Routes`].
    pub(crate) fn marks<'a>(
        &self,
        routes: impl Iterator<Item = (&'a Route, bool)>,
    ) -> Option<Vec<Mark>> {
        self.read(|known| {
            routes
                .map(|(route, fair)| known.mark(route, fair))
                .collect()
        })
    }

    /// Returns the cached routes for which `matches` returns `true`.
    pub(crate) fn matching(&self, matches: impl Fn(&Route) -> bool) -> Chosen {
        self.read(|known| {
            let chosen = known.routes.iter().filter(|(_, route)| matches(route));
            Chosen {
                routes: chosen.map(|(id, route)| (*id, route.clone())).collect(),
                fair: known.fair.clone(),
                last: known.last,
            }
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads the mark in a row of the statement `load_routes`.
fn mark(row: &impl Row) -> Result<Mark> {
    Ok(Mark {
        id: row.try_get(0)?,
        stamp: row.try_get(1)?,
    })
}
