//! The traits that abstract over a server and its driver.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::JobState;
use uuid::Uuid;

use crate::arguments::{Argument, Column};
use crate::connector::Connector;
use crate::failure::Result;
use crate::statement::{OwnStatements, Statement};
use crate::value::Value;

/// A dialect: a type of database server, together with the driver for it.
///
/// A statement is a text with parameters, and returns rows. On PostgreSQL, the text is one SQL
/// statement. On SQL Server, the text is a T-SQL batch. A statement has the same name, parameters
/// and result columns in all dialects. Only the SQL text may differ. [`Own`](Self::Own) holds the
/// statements that exist in one dialect only.
pub trait Dialect: Sized + Send + Sync + 'static {
    /// Name of the backend, for [`StoreInfo::backend`](ratchet_core::store::StoreInfo).
    const BACKEND: &'static str;
    /// Prefix of parameter names in a statement, such as `$` or `@P`.
    const PARAMETER: &'static str;
    /// SQL expression for the current time by the database's clock, in milliseconds since 1970.
    const CLOCK: &'static str;
    /// Whether the statement `own_objects` lists indexes in addition to tables.
    const LISTS_INDEXES: bool;
    /// Whether the server sorts names in byte order.
    const NAMES_BY_BYTES: bool;
    /// Maximum number of jobs that one statement deletes.
    const DELETES_AT_ONCE: usize;
    /// Error message of a call that fails because the database lacks the routes of the call's jobs.
    const ROUTES_MISSING: &'static str;

    /// Type of a statement with its bound parameters.
    type Query: Query;
    /// Type of a row of a statement's result.
    type Row: Row;
    /// Type of a leased connection.
    type Lease: Lease<Self>;
    /// Type that opens connections with the driver.
    type Connector: Connector<Lease = Self::Lease>;
    /// Type that holds the statements that only this dialect has.
    type Own: OwnStatements<Self>;

    /// Returns a statement to whose parameters no values are bound yet. `parameters` is the number
    /// of parameters in `text`.
    fn query(text: &Arc<str>, parameters: usize) -> Self::Query;

    /// Quotes a name for use in a statement. The name may contain any characters.
    fn quoted(name: &str) -> String;

    /// Returns the quoted name of a table for messages. `schema` is the schema of the store. By
    /// default, the schema contains the table.
    #[must_use]
    fn table(schema: &str, name: &str) -> String {
        format!("{}.{name}", Self::quoted(schema))
    }

    /// Returns the reason why the server would reject or change a name. Returns `None` if the
    /// server accepts the name unchanged. The caller has already rejected empty names, and names
    /// with a NUL character or a brace.
    fn identifier_problem(name: &str) -> Option<&'static str>;
}

/// A statement with its bound parameters. Each method binds the next parameter of the statement.
/// Some methods can bind several parameters, as their documentation states.
pub trait Query: Sized + Send {
    /// Binds a single value or a list to the next parameter.
    #[must_use]
    fn argument(self, argument: Argument<'_>) -> Self;

    /// Binds a filter that matches rows with one of these numbers. `None` matches every row. Binds
    /// one or two parameters, depending on the dialect.
    #[must_use]
    fn any_of(self, numbers: Option<&[i32]>) -> Self;

    /// Binds a set of job states.
    #[must_use]
    fn states(self, states: &[JobState]) -> Self;

    /// Binds a table, which is given as a list of columns. Depending on the dialect, binds one
    /// parameter for each column in the order of `columns`, or one parameter for the whole table.
    #[must_use]
    fn table(self, columns: &[(&'static str, &dyn Column)]) -> Self;

    /// Binds a table with a single row, for the statement `enqueue_job`. By default, binds the same
    /// parameters as [`table`](Self::table). A dialect may instead bind the value of each column as
    /// a separate parameter.
    #[must_use]
    fn row(self, columns: &[(&'static str, &dyn Column)]) -> Self {
        self.table(columns)
    }

    /// Converts a value to an [`Argument`], and binds it to the next parameter.
    #[must_use]
    fn bind<'a>(self, argument: impl Into<Argument<'a>>) -> Self {
        self.argument(argument.into())
    }
}

/// A row of a statement's result. Columns are numbered from 0.
///
/// Each method reads a column of one type. The column must have exactly this type, but a dialect
/// may also accept integers of another width.
///
/// # Errors
/// Each method fails with `Corrupt` if the column has another type, and with `SchemaMismatch` if
/// the row has no such column.
#[expect(
    clippy::missing_errors_doc,
    reason = "the documentation of the trait describes the errors of all methods"
)]
pub trait Row: Send + Sync + Sized + 'static {
    /// Reads a boolean. `None` means NULL.
    fn bool(&self, column: usize) -> Result<Option<bool>>;
    /// Reads a 16-bit integer. `None` means NULL.
    fn small(&self, column: usize) -> Result<Option<i16>>;
    /// Reads a 32-bit integer. `None` means NULL.
    fn int(&self, column: usize) -> Result<Option<i32>>;
    /// Reads a 64-bit integer. `None` means NULL.
    fn big(&self, column: usize) -> Result<Option<i64>>;
    /// Reads an id. `None` means NULL.
    fn uuid(&self, column: usize) -> Result<Option<Uuid>>;
    /// Reads a text. `None` means NULL.
    fn text(&self, column: usize) -> Result<Option<&str>>;

    /// Reads a value of the type `T`.
    fn try_get<'r, T: Value<'r>>(&'r self, column: usize) -> Result<T> {
        T::read(self, column)
    }
}

/// A connection that can run statements: a [`Lease`], or a connection that belongs to the
/// application.
pub trait Run<D: Dialect>: Send {
    /// Runs a statement and returns all its rows.
    fn rows(&mut self, query: D::Query) -> impl Future<Output = Result<Vec<D::Row>>> + Send;

    /// Runs a statement and returns the number of changed rows that the driver reports. The number
    /// is correct only if exactly one part of the statement writes rows.
    fn execute(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send;
}

/// A leased connection. When the lease is dropped, another call may use the connection.
///
/// The connection is closed instead if it was lost, or if the lease is dropped during a statement
/// or a transaction. So the future of a call may be dropped at any await point.
pub trait Lease<D: Dialect>: Run<D> + Sized + 'static {
    /// Runs one of the statements `pause_queue`, `set_permits` and `enqueue_jobs`, and returns the
    /// number of rows that the statement changed.
    ///
    /// By default, returns the number that the driver reports. If the statement has several parts
    /// in a dialect, the dialect returns the first column of the result instead.
    fn changed(&mut self, query: D::Query) -> impl Future<Output = Result<u64>> + Send {
        self.execute(query)
    }

    /// Runs a statement without parameters and ignores its result.
    fn script(&mut self, statement: &Statement<D>) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction. Each statement of the transaction sees everything that was committed
    /// before the statement began.
    fn begin(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction. Each statement of the transaction waits at most `patience` for a lock.
    fn begin_within(&mut self, patience: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Ends the transaction: commits if `result` is `Ok`, and rolls back otherwise. Returns
    /// `result`, or the failure of the commit.
    fn finish<T: Send>(&mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send;

    /// Ends the transaction in the same way as [`finish`](Self::finish), and then drops the lease.
    fn end<T: Send>(mut self, result: Result<T>) -> impl Future<Output = Result<T>> + Send {
        async move { self.finish(result).await }
    }

    /// Binds the database session on which a lock depends. If `held` is true, this is the session
    /// of this connection. If `held` is false, the lock is released and depends on no session. A
    /// dialect whose locks never depend on sessions binds no parameter.
    #[must_use]
    fn bind_session(&self, query: D::Query, held: bool) -> D::Query {
        let _ = held;
        query
    }
}
