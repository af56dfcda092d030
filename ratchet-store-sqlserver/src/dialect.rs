//! Implements the dialect of SQL Server and its driver for the shared store.

use std::sync::Arc;

use ratchet_sql::Dialect;

use crate::connect::Connector;
use crate::connection::Lease;
use crate::query::Query;
use crate::row::Row;
use crate::statements::Own;
use crate::words::{DATABASE_CLOCK, quoted};

/// The SQL dialect of SQL Server.
#[derive(Debug)]
pub(crate) struct SqlServer;

impl Dialect for SqlServer {
    const BACKEND: &'static str = "sqlserver";
    const PARAMETER: &'static str = "@P";
    const CLOCK: &'static str = DATABASE_CLOCK;
    /// `false`, because Babelfish changes the names of indexes. So the store cannot compare the
    /// server's indexes with the names in the migrations.
    const LISTS_INDEXES: bool = false;
    const NAMES_BY_BYTES: bool = false;
    /// Maximum number of jobs that one statement deletes. It keeps the statement below 5,000 locks
    /// on a table and its indexes. From that number on, the server would lock the whole table,
    /// unless lock escalation is disabled for the table.
    const DELETES_AT_ONCE: usize = 1_000;
    const ROUTES_MISSING: &'static str = "the routes of the jobs are missing in the database: the \
        connections of the store lead to different servers";

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

    fn identifier_problem(name: &str) -> Option<&'static str> {
        if name.encode_utf16().count() > 128 {
            return Some("is longer than 128 characters");
        }
        // The server ignores trailing spaces when it compares names.
        name.ends_with(' ').then_some("ends with a space")
    }
}
