//! What is specific to a server and its driver.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::JobState;
use uuid::Uuid;

use crate::arguments::{Argument, Column};
use crate::failure::Result;
use crate::statement::{OwnStatements, Statement};
use crate::value::Value;

/// A server and its driver.
///
/// A statement is text with parameters that returns rows: one statement on PostgreSQL, a T-SQL
/// batch on SQL Server. Dialects share the names, the parameters and the columns of statements;
/// their SQL may differ.
pub trait Dialect: Sized + Send + Sync + 'static {
    /// The value of [`StoreInfo::backend`](ratchet_core::store::StoreInfo).
    const BACKEND: &'static str;
    /// The prefix of parameters in a statement, such as `$` or `@P`.
    const PARAMETER: &'static str;
    /// The SQL expression of the database's clock, in milliseconds since 1970.
    const CLOCK: &'static str;
    /// Whether the statement `own_objects` lists indexes as well as tables.
    const LISTS_INDEXES: bool;
    /// Whether the server orders names by their bytes.
    const NAMES_BY_BYTES: bool;
    /// The most jobs that one statement deletes.
    const DELETES_AT_ONCE: usize;
    /// The error message when the routes of a call's jobs are missing in the database.
    const ROUTES_MISSING: &'static str;

    /// A statement with its bound parameters.
    type Query: Query;
    /// A row of a result.
    type Row: Row;
    /// A connection in use.
    type Lease: Lease<Self>;
    /// All connections of a store.
    type Connections: Connections<Self>;
    /// The statements that only this dialect has.
    type Own: OwnStatements<Self>;

    /// Returns a statement with nothing bound yet; its text has this many parameters.
    fn query(text: &Arc<str>, parameters: usize) -> Self::Query;

    /// Quotes a name for use in a statement, whatever characters it has.
    fn quoted(name: &str) -> String;

    /// Returns why the server would refuse or change a name, or `None` if it would not. Empty
    /// names, NUL and braces are checked for all dialects elsewhere.
    fn identifier_problem(name: &str) -> Option<&'static str>;
}

/// A statement with its bound parameters. Each method binds the next parameter, or several where
/// its documentation says so.
pub trait Query: Sized + Send {
    /// Binds a value, or a list.
    #[must_use]
    fn argument(self, argument: Argument<'_>) -> Self;

    /// Binds a filter on a number: `None` matches every row. Binds one parameter or two.
    #[must_use]
    fn any_of(self, numbers: Option<&[i32]>) -> Self;

    /// Binds a set of states.
    #[must_use]
    fn states(self, states: &[JobState]) -> Self;

    /// Binds a list of rows: one parameter per column, in this order, or one for all columns.
    #[must_use]
    fn table(self, columns: &[(&'static str, &dyn Column)]) -> Self;

    /// Binds the only row of a table, for the statement `enqueue_job`: as [`table`](Self::table)
    /// does, unless the dialect binds single values there.
    #[must_use]
    fn row(self, columns: &[(&'static str, &dyn Column)]) -> Self {
        self.table(columns)
    }

    /// Binds a value, or a list.
    #[must_use]
    fn bind<'a>(self, argument: impl Into<Argument<'a>>) -> Self {
        self.argument(argument.into())
    }
}

/// A row of a result. Columns count from 0. A column must have exactly the type that is read, but a
/// dialect may accept integers of another width.
///
/// # Errors
/// Each method fails with `Corrupt` for a value of another type, and with `SchemaMismatch` if there
/// is no such column.
#[expect(clippy::missing_errors_doc, reason = "said above of all methods")]
pub trait Row: Send + Sync + Sized + 'static {
    /// Reads a boolean.
    fn bool(&self, column: usize) -> Result<Option<bool>>;
    /// Reads a 16-bit integer.
    fn small(&self, column: usize) -> Result<Option<i16>>;
    /// Reads a 32-bit integer.
    fn int(&self, column: usize) -> Result<Option<i32>>;
    /// Reads a 64-bit integer.
    fn big(&self, column: usize) -> Result<Option<i64>>;
    /// Reads an id.
    fn uuid(&self, column: usize) -> Result<Option<Uuid>>;
    /// Reads a text.
    fn text(&self, column: usize) -> Result<Option<&str>>;

    /// Reads a value of the type that the caller wants.
    fn try_get<'r, T: Value<'r>>(&'r self, column: usize) -> Result<T> {
        T::read(self, column)
    }
}

/// Runs the statements of a transaction: a lease, or a connection of the application.
pub trait Run<D: Dialect>: Send {
    /// Runs a statement and returns all its rows.
    fn rows(&mut self, query: D::Query) -> impl Future<Output = Result<Vec<D::Row>>> + Send;

    /// Runs a statement and returns the driver's count of changed rows. The count is right only for
    /// a statement with a single part that writes.
    fn execute(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send;
}

/// A leased connection. The connection is closed and never used again if the lease is dropped in
/// the middle of a statement or transaction, or if it is lost. Dropping a call midway is safe.
pub trait Lease<D: Dialect>: Run<D> + Sized + 'static {
    /// Runs `pause_queue`, `set_permits` or `enqueue_jobs` and returns how many rows it changed:
    /// the driver's count, or the statement's first column if it has several parts.
    fn changed(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send {
        self.execute(query)
    }

    /// Runs a statement without parameters and ignores its result.
    fn script(&mut self, statement: &Statement<D>) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction in which each statement sees everything committed before it.
    fn begin(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction that waits for a lock at most this long.
    fn begin_within(&mut self, patience: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Ends the transaction: commits if `result` is `Ok`, and rolls back otherwise.
    fn finish<T: Send>(&mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send;

    /// Ends the transaction as [`finish`](Self::finish) does, and returns the connection to the
    /// pool.
    fn end<T: Send>(mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send {
        async move { self.finish(result).await }
    }

    /// Binds this connection's session if the lock is `held`, and no session if it is released.
    /// A dialect that never binds locks to sessions binds no parameter.
    #[must_use]
    fn bind_session(&self, query: D::Query, held: bool) -> D::Query {
        let _ = held;
        query
    }
}

/// The connections of a store: a pool for jobs, and one reserved for heartbeats and locks, so that
/// jobs cannot starve them.
pub trait Connections<D: Dialect>: Send + Sync + 'static {
    /// Takes a connection for jobs, waiting at most as long as the settings allow.
    fn lease(&self) -> impl Future<Output = Result<D::Lease>> + Send;

    /// Takes the connection of heartbeats and locks, once no other call uses it.
    fn live(&self) -> impl Future<Output = Result<D::Lease>> + Send;

    /// Makes the next [`live`](Self::live) use a new connection; may open it right away.
    fn renew_live(&self) -> impl Future<Output = Result<()>> + Send;

    /// Returns whether the store was closed.
    fn is_closed(&self) -> bool;

    /// Returns how many connections for jobs are open.
    fn open_connections(&self) -> u32;

    /// Returns how many connections for jobs there may be.
    fn max_connections(&self) -> u32;

    /// Closes the idle connections, since the network may have dropped them silently.
    fn drop_idle(&self);
}
