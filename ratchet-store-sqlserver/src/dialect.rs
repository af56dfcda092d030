//! SQL Server and its driver, as the shared store uses them.

use std::sync::Arc;

use ratchet_sql::Dialect;

use crate::connection::{Connections, Lease};
use crate::query::Query;
use crate::row::Row;
use crate::statements::Own;
use crate::words::{DATABASE_CLOCK, quoted};

/// SQL Server.
#[derive(Debug)]
pub(crate) struct SqlServer;

impl Dialect for SqlServer {
    const BACKEND: &'static str = "sqlserver";
    const PARAMETER: &'static str = "@P";
    const CLOCK: &'static str = DATABASE_CLOCK;
    /// Not every server that can run the statements calls indexes as they were called.
    const LISTS_INDEXES: bool = false;
    const NAMES_BY_BYTES: bool = false;
    /// Fewer than the 5,000 locks of one statement on one table and its indexes from which on the
    /// server would lock the table instead, which not every table of a job is kept from.
    const DELETES_AT_ONCE: usize = 1_000;
    const ROUTES_MISSING: &'static str = "the routes of the jobs are missing in the database: the \
        connections of the store lead to different servers";

    type Query = Query;
    type Row = Row;
    type Lease = Lease;
    type Connections = Connections;
    type Own = Own;

    fn query(text: &Arc<str>, parameters: usize) -> Query {
        Query::new(Arc::clone(text), parameters)
    }

    fn quoted(name: &str) -> String {
        quoted(name)
    }

    fn identifier_problem(name: &str) -> Option<&'static str> {
        if name.encode_utf16().count() > 128 {
            return Some("is longer than 128 characters");
        }
        // Names are compared without the spaces behind them.
        name.ends_with(' ').then_some("ends with a space")
    }
}
