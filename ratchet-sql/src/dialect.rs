//! What a server and its driver have of their own.

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
    /// The expression of the database's clock, in milliseconds since 1970.
    const CLOCK: &'static str;
    /// Whether the statement `own_objects` lists indexes beside tables.
    const LISTS_INDEXES: bool;
    /// Whether the server orders names by their bytes.
    const NAMES_BY_BYTES: bool;
    /// How many jobs one statement deletes at most.
    const DELETES_AT_ONCE: usize;
    /// The message for callers when the routes of their jobs are missing in the database.
    const ROUTES_MISSING: &'static str;

    /// A statement with what is bound to it.
    type Query: Query;
    /// A row of an answer.
    type Row: Row;
    /// A connection in use.
    type Lease: Lease<Self>;
    /// All connections of a store.
    type Connections: Connections<Self>;
    /// The statements that only this dialect has.
    type Own: OwnStatements<Self>;

    /// Returns the statement with nothing bound to it; its text has this many parameters.
    fn query(text: &Arc<str>, parameters: usize) -> Self::Query;

    /// Returns a name as it is written in a statement, whatever is in it.
    fn quoted(name: &str) -> String;

    /// Returns why the server would refuse or change a name, beyond what no dialect takes: an empty
    /// name, NUL, and braces.
    fn identifier_problem(name: &str) -> Option<&'static str>;
}

/// A statement with what is bound to it. Each method binds the next parameter, or the next ones
/// where that is said, in the order of the calls.
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

    /// Binds a list of rows: a parameter for each column, in this order, or one for all of them.
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

/// A row. Columns count from 0. A column must have exactly the type that is read; a dialect may
/// accept numbers of another width.
///
/// # Errors
/// Each method fails with `Corrupt` for a value of another type, and with `SchemaMismatch` if there
/// is no such column.
#[expect(clippy::missing_errors_doc, reason = "said above of all methods")]
pub trait Row: Send + Sync + Sized + 'static {
    /// Reads a truth value.
    fn bool(&self, column: usize) -> Result<Option<bool>>;
    /// Reads a number of 16 bits.
    fn small(&self, column: usize) -> Result<Option<i16>>;
    /// Reads a number of 32 bits.
    fn int(&self, column: usize) -> Result<Option<i32>>;
    /// Reads a number of 64 bits.
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

/// Where the statements of a transaction run: on a lease, or on a connection of the application.
pub trait Run<D: Dialect>: Send {
    /// Runs a statement and reads all that it returns.
    fn rows(&mut self, query: D::Query) -> impl Future<Output = Result<Vec<D::Row>>> + Send;

    /// Runs a statement; returns the driver's count of changed rows, which is right for a statement
    /// with a single part that writes.
    fn execute(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send;
}

/// A connection in use. If its use ends in the middle of a statement or of a transaction, or with
/// the loss of the connection, it is closed and never used again. Dropping a call midway is safe.
pub trait Lease<D: Dialect>: Run<D> + Sized + 'static {
    /// Runs `pause_queue`, `set_permits` or `enqueue_jobs`; returns how many rows it changed: the
    /// driver's count, or what the statement returns as its first column where it has several
    /// parts.
    fn changed(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send {
        self.execute(query)
    }

    /// Runs a statement without parameters whose answer does not matter.
    fn script(&mut self, statement: &Statement<D>) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction in which each statement sees what was committed before it.
    fn begin(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction that waits for locks no longer than this.
    fn begin_within(&mut self, patience: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Ends the transaction: commits if all went well, and rolls back otherwise.
    fn finish<T: Send>(&mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send;

    /// As [`finish`](Self::finish), and gives the connection back.
    fn end<T: Send>(mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send {
        async move { self.finish(result).await }
    }

    /// Binds the session of this connection if the lock is `held`, and none if it is released.
    /// Binds nothing in a dialect whose locks are never bound to a session.
    #[must_use]
    fn bind_session(&self, query: D::Query, held: bool) -> D::Query {
        let _ = held;
        query
    }
}

/// The connections of a store: a pool for jobs, and one for heartbeats and locks, which no job can
/// take away.
pub trait Connections<D: Dialect>: Send + Sync + 'static {
    /// Takes a connection for jobs, within the time that the settings give.
    fn lease(&self) -> impl Future<Output = Result<D::Lease>> + Send;

    /// Takes the connection of heartbeats and locks, once no other call uses it.
    fn live(&self) -> impl Future<Output = Result<D::Lease>> + Send;

    /// Makes the next [`live`](Self::live) use a new connection, which may be opened now.
    fn renew_live(&self) -> impl Future<Output = Result<()>> + Send;

    /// Whether the store was closed.
    fn is_closed(&self) -> bool;

    /// Returns how many connections for jobs are open.
    fn open_connections(&self) -> u32;

    /// Returns how many connections for jobs there may be.
    fn max_connections(&self) -> u32;

    /// Closes the connections that are idle: the network may have fallen silent.
    fn drop_idle(&self);
}
