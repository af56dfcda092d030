//! The routes, cached: a job row has only the number of its route.

use std::collections::{BTreeMap, HashMap};

use ratchet_core::Route;
use rusqlite::{Connection, params};

use crate::error::Result;
use crate::statements;

/// What one connection knows of the routes. Stored routes are never changed or deleted, so what is
/// known stays true; only a rollback can take back what was added by this connection itself.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    known: BTreeMap<i64, Route>,
    ids: HashMap<Route, i64>,
    /// The largest id that was looked at; a route that cannot be read is not among the known.
    seen: i64,
}

/// Ids as a JSON array for `json_each`.
pub(crate) fn json_of(ids: impl Iterator<Item = i64>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    format!("[{}]", ids.join(","))
}

impl Routes {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Learns the routes that were added meanwhile, by whomever.
    pub(crate) fn refresh(&mut self, conn: &Connection) -> Result<()> {
        let last: i64 = conn
            .prepare_cached(statements::LAST_ROUTE)?
            .query_row([], |row| row.get(0))?;
        if last == self.seen {
            return Ok(());
        }
        let mut statement = conn.prepare_cached(statements::LOAD_ROUTES)?;
        let mut rows = statement.query([self.seen])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            // What is no text is no name either.
            let text = |column: usize| {
                let value = row.get_ref(column)?;
                Ok::<_, rusqlite::Error>(value.as_str().unwrap_or("\0"))
            };
            match Route::from_texts(text(1)?, text(2)?, text(3)?, text(4)?) {
                Ok(route) => {
                    self.ids.insert(route.clone(), id);
                    self.known.insert(id, route);
                }
                Err(error) => tracing::warn!(route = id, %error, "a stored route cannot be read"),
            }
            self.seen = id;
        }
        Ok(())
    }

    /// The id of a route; stores the route if it is new.
    pub(crate) fn id_of(&mut self, conn: &Connection, route: &Route) -> Result<i64> {
        if let Some(id) = self.ids.get(route) {
            return Ok(*id);
        }
        self.refresh(conn)?;
        if let Some(id) = self.ids.get(route) {
            return Ok(*id);
        }
        conn.prepare_cached(statements::ADD_ROUTE)?
            .execute(params![
                route.queue.as_str(),
                route.kind.as_str(),
                route.capability_text(),
                route.permit_text(),
            ])?;
        let id = conn.last_insert_rowid();
        self.ids.insert(route.clone(), id);
        self.known.insert(id, route.clone());
        self.seen = id;
        Ok(id)
    }

    /// The route with this id; none if it is not stored or cannot be read.
    pub(crate) fn get(&mut self, conn: &Connection, id: i64) -> Result<Option<&Route>> {
        if !self.known.contains_key(&id) {
            self.refresh(conn)?;
        }
        Ok(self.known.get(&id))
    }

    /// Whether this route is known to be stored.
    pub(crate) fn is_known(&self, route: &Route) -> bool {
        self.ids.contains_key(route)
    }

    /// The matching routes.
    pub(crate) fn matching(
        &mut self,
        conn: &Connection,
        matches: impl Fn(&Route) -> bool,
    ) -> Result<Vec<(i64, &Route)>> {
        self.refresh(conn)?;
        let known = self.known.iter().map(|(id, route)| (*id, route));
        Ok(known.filter(|(_, route)| matches(route)).collect())
    }
}
