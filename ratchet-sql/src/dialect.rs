//! The traits that abstract over a server and its driver.

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
    /// The maximum number of jobs that one statement deletes.
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

    /// Returns a statement with no parameters bound yet. `parameters` is the number of parameters
    /// in `text`.
    fn query(text: &Arc<str>, parameters: usize) -> Self::Query;

    /// Quotes a name for use in a statement, whatever characters it has.
    fn quoted(name: &str) -> String;

    /// Returns why the server would reject or change a name, or `None` if it accepts the name
    /// unchanged. Empty names, NUL and braces are checked for all dialects elsewhere.
    fn identifier_problem(name: &str) -> Option<&'static str>;
}

/// A statement with its bound parameters. Each method binds the next parameter, or several if its
/// documentation states that.
pub trait Query: Sized + Send {
    /// Binds a value, or a list.
    #[must_use]
    fn argument(self, argument: Argument<'_>) -> Self;

    /// Binds a filter on a number: `None` matches every row. Binds one parameter or two, depending
    /// on the dialect.
    #[must_use]
    fn any_of(self, numbers: Option<&[i32]>) -> Self;

    /// Binds a set of states.
    #[must_use]
    fn states(self, states: &[JobState]) -> Self;

    /// Binds a list of rows: one parameter per column, in this order, or one for all columns,
    /// depending on the dialect.
    #[must_use]
    fn table(self, columns: &[(&'static str, &dyn Column)]) -> Self;

    /// Binds a table with a single row, for the statement `enqueue_job`. Binds what
    /// [`table`](Self::table) binds, unless the dialect binds each column as a single value.
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

/// A row of a result. Columns are numbered from 0. A column must have exactly the type that is
/// read, but a dialect may accept integers of another width.
///
/// # Errors
/// Each method fails with `Corrupt` for a value of another type, and with `SchemaMismatch` if there
/// is no such column.
#[expect(
    clippy::missing_errors_doc,
    reason = "documented above for all methods"
)]
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

/// A connection that runs statements: a lease, or a connection of the application.
pub trait Run<D: Dialect>: Send {
    /// Runs a statement and returns all its rows.
    fn rows(&mut self, query: D::Query) -> impl Future<Output = Result<Vec<D::Row>>> + Send;

    /// Runs a statement and returns the driver's count of changed rows. The count is right only for
    /// a statement with a single part that writes.
    fn execute(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send;
}

/// A leased connection. If the lease is dropped during a statement or transaction, or if the
/// connection was lost, the connection is closed instead of being used again. So a call may be
/// dropped at any await point.
pub trait Lease<D: Dialect>: Run<D> + Sized + 'static {
    /// Runs `pause_queue`, `set_permits` or `enqueue_jobs` and returns how many rows it changed:
    /// the driver's count, or the first column of the result if the statement has several parts.
    fn changed(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send {
        self.execute(query)
    }

    /// Runs a statement without parameters and ignores its result.
    fn script(&mut self, statement: &Statement<D>) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction in which each statement sees everything committed before that
    /// statement.
    fn begin(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction whose statements wait for a lock for at most `patience`.
    fn begin_within(&mut self, patience: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Ends the transaction: commits if `result` is `Ok`, and rolls back otherwise.
    fn finish<T: Send>(&mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send;

    /// Ends the transaction as [`finish`](Self::finish) does, and returns the connection to the
    /// pool.
    fn end<T: Send>(mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send {
        async move { self.finish(result).await }
    }

    /// Binds the session that a lock depends on: this connection's session if the lock is `held`,
    /// none if it is released. A dialect that never ties locks to sessions binds no parameter.
    #[must_use]
    fn bind_session(&self, query: D::Query, held: bool) -> D::Query {
        let _ = held;
        query
    }
}

/// The connections of a store: a pool for jobs, and one reserved for heartbeats and locks, so that
/// jobs cannot starve them.
pub trait Connections<D: Dialect>: Send + Sync + 'static {
    /// Leases a connection for jobs, waiting at most as long as the settings allow.
    fn lease(&self) -> impl Future<Output = Result<D::Lease>> + Send;

    /// Leases the connection for heartbeats and locks, once no other call uses it.
    fn live(&self) -> impl Future<Output = Result<D::Lease>> + Send;

    /// Makes the next [`live`](Self::live) use a new connection, which may be opened right away.
    fn renew_live(&self) -> impl Future<Output = Result<()>> + Send;

    /// Returns whether the store was closed.
    fn is_closed(&self) -> bool;

    /// Returns how many connections for jobs are open.
    fn open_connections(&self) -> u32;

    /// Returns how many connections for jobs there may be.
    fn max_connections(&self) -> u32;

    /// Closes the idle connections, because the network may have dropped them silently.
    fn drop_idle(&self);
}
