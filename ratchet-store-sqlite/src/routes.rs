//! The cache of the dictionary of routes. The row of a job contains only the id of its route.

use ratchet_core::Route;
use ratchet_core::dictionary::{Dictionary, Place, RouteEntry};
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
#[derive(Debug)]
pub(crate) struct Routes {
    known: Dictionary<i64>,
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
    /// Creates an empty cache. `own_queues` is the number of queues that get routes of their own
    /// because they were used first.
    pub(crate) fn new(own_queues: usize) -> Self {
        Self {
            known: Dictionary::new(own_queues),
            last: Mark::default(),
            compared: false,
        }
    }

    /// Clears the cache.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.last = Mark::default();
        self.compared = false;
    }

    /// Starts a new request. The next use of the cache compares the last route again.
    pub(crate) const fn begin(&mut self) {
        self.compared = false;
    }

    /// Returns the cached routes. First reads the routes that were stored since the last refresh.
    /// If the last known route is not stored any more, clears the cache and reads all routes. Reads
    /// nothing if the current request has already done this.
    pub(crate) fn known(&mut self, conn: Connection<'_>) -> Result<&Dictionary<i64>> {
        if self.compared {
            return Ok(&self.known);
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
        Ok(&self.known)
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
                // The cache has this route.
                continue;
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
            match RouteEntry::from_texts(text(2)?, text(3)?, text(4)?, text(5)?) {
                Ok(entry) => self.known.add(id, entry, row.get(6)?),
                Err(error) => tracing::warn!(route = id, %error, "skipped a stored route that \
                    cannot be read"),
            }
            self.last = mark;
        }
        Ok(goes_on)
    }

    /// Returns the entry of a job with this route, without or with a fair key. Stores the entry
    /// first if it is new.
    pub(crate) fn place(
        &mut self,
        conn: Connection<'_>,
        route: &Route,
        fair: bool,
    ) -> Result<Place<i64>> {
        loop {
            match self.known(conn)?.place(route, fair) {
                Ok(place) => return Ok(place),
                Err(entry) => drop(self.add(conn, entry, fair)?),
            }
        }
    }

    /// Returns the id of a queue's own route of plain jobs. Stores the route first if it is new.
    pub(crate) fn own(&mut self, conn: Connection<'_>, route: Route) -> Result<i64> {
        match self.known(conn)?.own(&route) {
            Some(id) => Ok(id),
            None => self.add(conn, RouteEntry::Own(route), false),
        }
    }

    /// Stores a new entry, and returns its id. The cache must be up to date.
    pub(crate) fn add(
        &mut self,
        conn: Connection<'_>,
        entry: RouteEntry,
        fair: bool,
    ) -> Result<i64> {
        let [queue, kind, capability, permit] = entry.texts();
        self.last = conn
            .prepare_cached(&SQL.add_route)?
            .query_row(params![queue, kind, capability, permit, fair], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        self.known.add(self.last.0, entry, fair);
        Ok(self.last.0)
    }

    /// Returns the route of a job with this entry, which may name its queue itself. Returns `None`
    /// if the entry is not stored or the route cannot be read.
    pub(crate) fn get(
        &mut self,
        conn: Connection<'_>,
        id: i64,
        queue: Option<&str>,
    ) -> Result<Option<Route>> {
        Ok(self.known(conn)?.route(id, queue))
    }
}
