//! Implements the dialect of MySQL and MariaDB for the store that all SQL dialects share, with the
//! driver `sqlx`.

use std::sync::Arc;

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Dialect, Failure, Result};
use sqlx::mysql::{MySql, MySqlRow};
use sqlx::{Decode, Row as _, ValueRef as _};
use uuid::Uuid;

use crate::connection::{Connector, Lease};
use crate::error::Classified;
use crate::query::Query;
use crate::statements::Own;
use crate::words::{DATABASE_CLOCK, quoted};

/// The SQL dialect of MySQL and MariaDB.
#[derive(Debug)]
pub(crate) struct Mysql;

/// Maximum length of a prefix, so that the longest name of a table has at most 64 characters.
const LONGEST_PREFIX: usize = 44;

impl Dialect for Mysql {
    const BACKEND: &'static str = "mysql";
    const PARAMETER: &'static str = "$";
    const CLOCK: &'static str = DATABASE_CLOCK;
    const LISTS_INDEXES: bool = true;
    const NAMES_BY_BYTES: bool = true;
    /// Maximum number of jobs that one statement deletes, so that a purge holds few locks at once.
    const DELETES_AT_ONCE: usize = 1_000;
    const ROUTES_MISSING: &'static str = "the transaction does not see the routes of its jobs: its \
        connection leads to another database; begin a new transaction";

    type Query = Query;
    type Row = Row;
    type Lease = Lease;
    type Connector = Connector;
    type Own = Own;

    fn query(text: &Arc<str>, parameters: usize) -> Query {
        Query::new(Arc::clone(text), parameters)
    }

    fn quoted(name: &str) -> String {
        quoted(name)
    }

    fn table(schema: &str, name: &str) -> String {
        quoted(&format!("{schema}_{name}"))
    }

    /// Reports names that the server would change, or that the statements cannot contain.
    fn identifier_problem(name: &str) -> Option<&'static str> {
        if name.len() > LONGEST_PREFIX {
            return Some("is longer than 44 bytes");
        }
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        // Some servers store the names of tables in lower case.
        (!name.chars().all(allowed))
            .then_some("has a character other than lower-case letters, digits and `_`")
    }
}

/// A row of a query's result. The server sends each value as a text.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) MySqlRow);

impl Row {
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>> {
        let value = self.0.try_get_raw(column).classified()?;
        if value.is_null() {
            return Ok(None);
        }
        let bytes = <&[u8] as Decode<MySql>>::decode(value);
        bytes.map(Some).map_err(|_| Failure::unreadable())
    }

    fn number<T: TryFrom<i64>>(&self, column: usize) -> Result<Option<T>> {
        let Some(text) = ratchet_sql::Row::text(self, column)? else {
            return Ok(None);
        };
        let number = text.parse::<i64>().ok().and_then(|all| all.try_into().ok());
        number.map(Some).ok_or_else(Failure::unreadable)
    }
}

impl ratchet_sql::Row for Row {
    fn bool(&self, column: usize) -> Result<Option<bool>> {
        Ok(self.number::<i64>(column)?.map(|number| number != 0))
    }

    fn small(&self, column: usize) -> Result<Option<i16>> {
        self.number(column)
    }

    fn int(&self, column: usize) -> Result<Option<i32>> {
        self.number(column)
    }

    fn big(&self, column: usize) -> Result<Option<i64>> {
        self.number(column)
    }

    fn uuid(&self, column: usize) -> Result<Option<Uuid>> {
        let bytes = self.bytes(column)?;
        let id = bytes.map(Uuid::from_slice).transpose();
        id.map_err(|_| Failure::unreadable())
    }

    fn text(&self, column: usize) -> Result<Option<&str>> {
        let bytes = self.bytes(column)?;
        let text = bytes.map(std::str::from_utf8).transpose();
        text.map_err(|_| Failure::new(StoreErrorKind::Corrupt, "a stored text is not valid UTF-8"))
    }
}
