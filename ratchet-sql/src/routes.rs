//! Caches the dictionary of routes, because the row of a job contains only the id of its route.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use ratchet_core::dictionary::{Dictionary, Place, RouteEntry, SharedRoute, Streams};
use ratchet_core::model::ClaimRequest;
use ratchet_core::{InvalidInput, Name, Route, Selection};

use crate::connections::Connections;
use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::statement::{OwnStatements as _, Statements};

/// The cached dictionary of a store.
///
/// Stored entries never change and are never deleted. Transactions that add entries commit in the
/// order of the ids, and each entry has a random stamp. So if a database contains a cached entry
/// with the same id and stamp, it also contains all cached entries with lower ids.
///
/// After a failover or a restore, the database may lack entries, or have other entries under their
/// ids. Each statement that uses cached ids therefore looks for one [`Mark`] first. If the mark is
/// missing, the statement does nothing. The caller then reads the dictionary again and repeats the
/// statement.
///
/// New entries are stored on the connection for heartbeats and locks, outside of the caller's
/// transaction, because an `enqueue_in` may already use the pool's only connection. If the caller's
/// transaction is rolled back, the new entry remains, which is harmless.
#[derive(Debug)]
pub(crate) struct Routes(RwLock<Known>);

/// Id and random stamp of a stored entry. The id 0 means no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    pub(crate) id: i32,
    pub(crate) stamp: i64,
}

#[derive(Debug)]
struct Known {
    entries: Dictionary<Mark>,
    /// Mark of the last entry that was read, even if the entry could not be decoded.
    last: Mark,
    /// Mark that was missing in the database at the last call of [`Routes::refute`]. `None` if that
    /// call reported the same mark as the call before it.
    refuted: Option<Mark>,
}

/// What a claim reads.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Id of each selected route of a single queue, and the route, in order of id.
    pub(crate) routes: Vec<(i32, Route)>,
    /// The selected shared routes.
    shared: Vec<(i32, SharedRoute)>,
    /// The queues whose jobs of the shared routes are selected.
    queues: Selection,
    /// Ids of the selected routes for jobs with a fair key.
    fair: HashSet<i32>,
    /// Id and queue of each route for jobs with a fair key in the selected queues, whatever the
    /// kind and capability, in order of id.
    pub(crate) of_queues: Vec<(i32, Name)>,
    /// Mark of the last entry that the cache has read from the database.
    pub(crate) last: Mark,
}

/// One stream of a claim: the jobs of a route, or those of one queue in a shared route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) id: i32,
    /// The queue of the jobs. `None` for all jobs of a shared route.
    pub(crate) queue: Option<&'a Name>,
    pub(crate) kind: &'a Name,
    /// The route of the jobs, unless it is a shared route.
    pub(crate) own: Option<&'a Route>,
}

impl Chosen {
    /// Returns the streams that the claim reads.
    pub(crate) fn wanted(&self) -> Vec<Wanted<'_>> {
        let own = self.routes.iter().map(|(id, route)| Wanted {
            id: *id,
            queue: Some(&route.queue),
            kind: &route.kind,
            own: Some(route),
        });
        let mut wanted: Vec<Wanted<'_>> = own.collect();
        for (id, shared) in &self.shared {
            let of = |queue| Wanted {
                id: *id,
                queue,
                kind: &shared.kind,
                own: None,
            };
            match &self.queues {
                Selection::Only(names) => wanted.extend(names.iter().map(|name| of(Some(name)))),
                Selection::All | Selection::Except(_) => wanted.push(of(None)),
            }
        }
        wanted
    }

    /// Returns the ids of the selected shared routes.
    pub(crate) fn shared(&self) -> Vec<i32> {
        self.shared.iter().map(|(id, _)| *id).collect()
    }

    /// Returns the queues whose jobs of the shared routes are not selected.
    pub(crate) fn excluded(&self) -> Vec<&str> {
        match &self.queues {
            Selection::Except(names) => names.iter().map(Name::as_str).collect(),
            Selection::All | Selection::Only(_) => Vec::new(),
        }
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

    /// Returns the route of a job with this id in the dictionary. `queue` is the queue that the job
    /// names itself. Returns `None` if the entry is not selected, or if a job of a shared route
    /// names no valid queue.
    pub(crate) fn get(&self, id: i32, queue: Option<&str>) -> Option<Route> {
        let found = self.routes.binary_search_by_key(&id, |(id, _)| *id);
        if let Ok(place) = found {
            return Some(self.routes[place].1.clone());
        }
        let (_, shared) = self.shared.iter().find(|(shared, _)| *shared == id)?;
        Some(shared.in_queue(Name::new("queue", queue?).ok()?))
    }
}

impl Known {
    /// Adds the entries in rows of the statement `load_routes`. `with_fair` tells whether the rows
    /// have the column `fair`.
    fn add(&mut self, rows: &[impl Row], with_fair: bool) -> Result<()> {
        for row in rows {
            let mark = mark(row)?;
            if mark == self.last {
                // The cache has this entry.
                continue;
            }
            match entry(row) {
                Ok(entry) => self.entries.add(mark, entry, with_fair && row.try_get(6)?),
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
    /// Creates an empty cache. `own_queues` is the number of queues that get routes of their own
    /// because they were used first.
    pub(crate) fn new(own_queues: usize) -> Self {
        Self(RwLock::new(Known {
            entries: Dictionary::new(own_queues),
            last: Mark::default(),
            refuted: None,
        }))
    }

    /// Reads the entries that were added since the last read. If the database lacks the last cached
    /// entry, empties the cache and reads all entries.
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
            known.entries.clear();
            known.last = Mark::default();
        }
        known.add(&rows, sql.own.turns().is_some())
    }

    /// Reads the dictionary again after a statement on the connection `on` did not find `mark`.
    ///
    /// Returns `true` if `mark` was also the missing mark at the previous call. Then the connection
    /// on which entries are added leads to another database, which still has this mark. The caller
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

    /// Returns the entry of a job with this route, without a fair key or with one. If the entry is
    /// not yet in the database, stores it there first.
    pub(crate) async fn place<D: Dialect>(
        &self,
        connections: &Connections<D::Connector>,
        sql: &Statements<D>,
        route: &Route,
        fair: bool,
    ) -> Result<Place<Mark>> {
        // The cache may lack an entry that another process has added. So it is read again before
        // the first new entry is stored.
        let mut is_read = false;
        loop {
            let entry = match self.read(|known| known.entries.place(route, fair)) {
                Ok(place) => return Ok(place),
                Err(entry) => entry,
            };
            let mut lease = connections.liveness.lease().await?;
            if !std::mem::replace(&mut is_read, true) {
                self.refresh(&mut lease, sql).await?;
                continue;
            }
            if let Some(resource) = &route.permit {
                // Resources are never deleted, so this check cannot race with the insert.
                let find = sql.find_permit.query().bind(resource.as_str());
                if lease.rows(find).await?.is_empty() {
                    return Err(Failure::refused(InvalidInput::unknown_permit(resource)));
                }
            }
            let added = self.add(&mut lease, sql, &entry, fair).await?;
            drop(lease);
            if added == 0 {
                // Another process added this entry, or used its id for another. So try again.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Stores a new entry, and reads the entries that were added since the last read. Returns 0 if
    /// another process has stored the entry, or has used its id for another entry.
    async fn add<D: Dialect>(
        &self,
        on: &mut impl Run<D>,
        sql: &Statements<D>,
        entry: &RouteEntry,
        fair: bool,
    ) -> Result<u64> {
        let [queue, kind, capability, permit] = entry.texts();
        let add = sql.add_route.query();
        let mut add = add.bind(queue).bind(kind).bind(capability).bind(permit);
        if sql.own.turns().is_some() {
            add = add.bind(fair);
        }
        let added = match on.execute(add).await {
            Err(failure) if failure.duplicate => 0,
            added => added?,
        };
        self.refresh(on, sql).await?;
        Ok(added)
    }

    /// Stores the markers of the queues that the request excludes, if there are shared routes.
    pub(crate) async fn mark<D: Dialect>(
        &self,
        connections: &Connections<D::Connector>,
        sql: &Statements<D>,
        request: &ClaimRequest,
    ) -> Result<()> {
        for marker in self.read(|known| known.entries.markers(request)) {
            let mut lease = connections.liveness.lease().await?;
            // If another process was faster, the next claim tries again.
            self.add(&mut lease, sql, &marker, false).await?;
        }
        Ok(())
    }

    /// Returns whether the cache has shared routes.
    pub(crate) fn has_shared(&self) -> bool {
        self.read(|known| known.entries.shared().next().is_some())
    }

    /// Returns the mark of a queue's own route of plain jobs. If the route is not yet in the
    /// database, stores it there first. Returns `None` if another process used its id for another
    /// entry.
    pub(crate) async fn own<D: Dialect>(
        &self,
        connections: &Connections<D::Connector>,
        sql: &Statements<D>,
        route: Route,
    ) -> Result<Option<Mark>> {
        if let Some(mark) = self.read(|known| known.entries.own(&route)) {
            return Ok(Some(mark));
        }
        let entry = RouteEntry::Own(route.clone());
        let mut lease = connections.liveness.lease().await?;
        self.add(&mut lease, sql, &entry, false).await?;
        Ok(self.read(|known| known.entries.own(&route)))
    }

    /// Returns the entries of jobs with these routes, all from the same state of the cache. Returns
    /// `None` if the cache lacks one of the entries.
    ///
    /// If a database contains the mark with the largest id, it contains all of these marks. See
    /// [`Routes`].
    pub(crate) fn places<'a>(
        &self,
        routes: impl Iterator<Item = (&'a Route, bool)>,
    ) -> Option<Vec<Place<Mark>>> {
        self.read(|known| {
            routes
                .map(|(route, fair)| known.entries.place(route, fair).ok())
                .collect()
        })
    }

    /// Returns what a claim reads.
    pub(crate) fn chosen(&self, request: &ClaimRequest) -> Chosen {
        self.read(|known| {
            let Streams {
                own,
                shared,
                queues,
            } = known.entries.streams(request);
            let fair = own.iter().filter(|(mark, _)| known.entries.is_fair(*mark));
            Chosen {
                of_queues: fair_routes(known, |queue| request.queues.contains(queue)),
                fair: fair.map(|(mark, _)| mark.id).collect(),
                routes: own
                    .into_iter()
                    .map(|(mark, route)| (mark.id, route))
                    .collect(),
                shared: shared
                    .into_iter()
                    .map(|(mark, shared)| (mark.id, shared))
                    .collect(),
                queues,
                last: known.last,
            }
        })
    }

    /// Returns the id and the queue of each route for jobs with a fair key in these queues.
    pub(crate) fn fair(&self, in_queue: impl Fn(&Name) -> bool) -> Vec<(i32, Name)> {
        self.read(|known| fair_routes(known, in_queue))
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn fair_routes(known: &Known, in_queue: impl Fn(&Name) -> bool) -> Vec<(i32, Name)> {
    let fair = known.entries.fair_routes();
    let fair = fair.filter(|(_, route)| in_queue(&route.queue));
    fair.map(|(mark, route)| (mark.id, route.queue.clone()))
        .collect()
}

/// Reads the mark in a row of the statement `load_routes`.
fn mark(row: &impl Row) -> Result<Mark> {
    Ok(Mark {
        id: row.try_get(0)?,
        stamp: row.try_get(1)?,
    })
}

/// Reads the entry in a row of the statement `load_routes`.
fn entry(row: &impl Row) -> Result<RouteEntry> {
    let text = |column: usize| row.try_get::<&str>(2 + column);
    let entry = RouteEntry::from_texts(text(0)?, text(1)?, text(2)?, text(3)?)?;
    Ok(entry)
}
