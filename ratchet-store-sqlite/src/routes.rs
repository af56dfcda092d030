//! The cache of routes. The row of a job contains only the id of its route.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ratchet_core::Route;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::statements::{Connection, SQL};

/// The cache of routes of one connection.
///
/// Stored routes are never changed or deleted, and each has a random stamp. So the cache is up to
/// date if the last stored route has the id and the stamp of the last cached route.
///
/// The cache can become outdated in three ways. Another process may add routes, a restore may
/// replace the database, or this connection may roll back new routes. So each request compares the
/// last route before it uses the cache.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    known: BTreeMap<i64, Route>,
    /// The ids of the routes for jobs with a fair key.
    fair: BTreeSet<i64>,
    /// The ids of each route, for jobs without and for jobs with a fair key.
    ids: HashMap<Route, [Option<i64>; 2]>,
    /// Id and stamp of the last route that was read. If this route could not be decoded, it is not
    /// in `known`.
    last: Mark,
    /// Whether the current request has already compared the last route.
    compared: bool,
}

/// Id and stamp of a route. The id 0 means that there is no route.
type Mark = (i64, i64);

/// Returns the ids as a JSON array, for the SQL function `json_each`.
pub(crate) fn json_of(ids: impl Iterator<Item = i64>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    format!("[{}]", ids.join(","))
}

impl Routes {
    /// Clears the cache.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Starts a new request. The next use of the cache compares the last route again.
    pub(crate) const fn begin(&mut self) {
        self.compared = false;
    }

    /// Reads the routes that were stored since the last refresh. If the last known route is not
    /// stored any more, clears the cache and reads all routes. Does nothing if the current request
    /// has already done this.
    fn refresh(&mut self, conn: Connection<'_>) -> Result<()> {
        if self.compared {
            return Ok(());
        }
        let last = conn
            .prepare_cached(&SQL.last_route)?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if last.unwrap_or_default() != self.last && !self.load(conn)? {
            self.clear();
            self.load(conn)?;
        }
        self.compared = true;
        Ok(())
    }

    /// Reads the last known route and all routes after it. Returns false if the last known route is
    /// not stored any more.
    fn load(&mut self, conn: Connection<'_>) -> Result<bool> {
        let mut goes_on = self.last == Mark::default();
        let mut statement = conn.prepare_cached(&SQL.load_routes)?;
        let mut rows = statement.query([self.last.0])?;
        while let Some(row) = rows.next()? {
            let mark = (row.get(0)?, row.get(1)?);
            if mark == self.last {
                goes_on = true;
            }
            if !goes_on {
                break;
            }
            // A value that is not text becomes an invalid name.
            let text = |column: usize| {
                let value = row.get_ref(column)?;
                Ok::<_, rusqlite::Error>(value.as_str().unwrap_or("\0"))
            };
            let id = mark.0;
            match Route::from_texts(text(2)?, text(3)?, text(4)?, text(5)?) {
                Ok(route) => {
                    self.add(id, route, row.get(6)?);
                }
                Err(error) => tracing::warn!(route = id, %error, "skipped a stored route that \
                    cannot be read"),
            }
            self.last = mark;
        }
        Ok(goes_on)
    }

    fn add(&mut self, id: i64, route: Route, fair: bool) {
        self.ids.entry(route.clone()).or_default()[usize::from(fair)] = Some(id);
        self.known.insert(id, route);
        if fair {
            self.fair.insert(id);
        }
    }

    /// Returns whether a cached route is for jobs with a fair key.
    pub(crate) fn is_fair(&self, id: i64) -> bool {
        self.fair.contains(&id)
    }

    /// Returns the id of a route for jobs without a fair key, or for jobs with one. Stores the
    /// route first if it is new.
    pub(crate) fn id_of(&mut self, conn: Connection<'_>, route: &Route, fair: bool) -> Result<i64> {
        self.refresh(conn)?;
        if let Some(id) = self.ids.get(route).and_then(|ids| ids[usize::from(fair)]) {
            return Ok(id);
        }
        let texts = params![
            route.queue.as_str(),
            route.kind.as_str(),
            route.capability_text(),
            route.permit_text(),
            fair,
        ];
        self.last = conn
            .prepare_cached(&SQL.add_route)?
            .query_row(texts, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let id = self.last.0;
        self.add(id, route.clone(), fair);
        Ok(id)
    }

    /// Returns the route with this id. Returns `None` if the route is not stored or cannot be read.
    pub(crate) fn get(&mut self, conn: Connection<'_>, id: i64) -> Result<Option<&Route>> {
        self.refresh(conn)?;
        Ok(self.known.get(&id))
    }

    /// Returns the stored routes for which `matches` returns true, with their ids.
    pub(crate) fn matching(
        &mut self,
        conn: Connection<'_>,
        matches: impl Fn(&Route) -> bool,
    ) -> Result<Vec<(i64, &Route)>> {
        self.refresh(conn)?;
        let known = self.known.iter().map(|(id, route)| (*id, route));
        Ok(known.filter(|(_, route)| matches(route)).collect())
    }
}
