//! The cache of routes. The row of a job contains only the id of its route.

use std::collections::{BTreeMap, HashMap};

use ratchet_core::Route;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::statements::{Connection, SQL};

/// One connection's cache of the routes.
///
/// Stored routes are never changed or deleted, and each has a random stamp. So if the last stored
/// route has the id and stamp of the last cached one, the cache is valid. It may be outdated:
/// another process may have added routes, a restore may have replaced the database, or this
/// connection may have rolled back routes of its own. So each request compares the last route
/// first.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    known: BTreeMap<i64, Route>,
    ids: HashMap<Route, i64>,
    /// The id and the stamp of the last route that was read. If that route is unreadable, it is not
    /// among the known ones.
    last: Mark,
    /// Whether this request has already compared the last route.
    compared: bool,
}

/// The id of a route and its stamp; an id of 0 means no route.
type Mark = (i64, i64);

/// Returns ids as a JSON array for `json_each`.
pub(crate) fn json_of(ids: impl Iterator<Item = i64>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    format!("[{}]", ids.join(","))
}

impl Routes {
    /// Clears the cache.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Makes the next use compare the last route.
    pub(crate) const fn begin(&mut self) {
        self.compared = false;
    }

    /// Adds the routes that were stored since the last refresh. If the last known route is no
    /// longer stored, clears the cache and reads all routes.
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

    /// Reads the routes from the last known one on. Returns whether the last known one is still
    /// stored.
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
                    self.ids.insert(route.clone(), id);
                    self.known.insert(id, route);
                }
                Err(error) => tracing::warn!(route = id, %error, "a stored route cannot be read"),
            }
            self.last = mark;
        }
        Ok(goes_on)
    }

    /// Returns the id of a route; stores the route if it is new.
    pub(crate) fn id_of(&mut self, conn: Connection<'_>, route: &Route) -> Result<i64> {
        self.refresh(conn)?;
        if let Some(id) = self.ids.get(route) {
            return Ok(*id);
        }
        let texts = params![
            route.queue.as_str(),
            route.kind.as_str(),
            route.capability_text(),
            route.permit_text(),
        ];
        self.last = conn
            .prepare_cached(&SQL.add_route)?
            .query_row(texts, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let id = self.last.0;
        self.ids.insert(route.clone(), id);
        self.known.insert(id, route.clone());
        Ok(id)
    }

    /// Returns the route with this id; `None` if it is not stored or is unreadable.
    pub(crate) fn get(&mut self, conn: Connection<'_>, id: i64) -> Result<Option<&Route>> {
        self.refresh(conn)?;
        Ok(self.known.get(&id))
    }

    /// Returns the known routes that match, with their ids.
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
