//! Implements the dialect of PostgreSQL for the store that all SQL dialects share, with the driver
//! `sqlx`.

use std::sync::Arc;

use ratchet_core::JobState;
use ratchet_sql::{Argument, Column, Dialect, List, Result, each_list};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, Encode, Row as _, SqlSafeStr, Type};
use uuid::Uuid;

use crate::connection::{Connector, Lease};
use crate::error::Classified;
use crate::statements::{DATABASE_CLOCK, Own, quoted};

/// The SQL dialect of PostgreSQL.
#[derive(Debug)]
pub(crate) struct Postgres;

impl Dialect for Postgres {
    const BACKEND: &'static str = "postgres";
    const PARAMETER: &'static str = "$";
    const CLOCK: &'static str = DATABASE_CLOCK;
    const LISTS_INDEXES: bool = true;
    const NAMES_BY_BYTES: bool = true;
    const DELETES_AT_ONCE: usize = usize::MAX;
    const ROUTES_MISSING: &'static str = "the transaction does not see the routes of its jobs: its \
        snapshot is older than the routes, or its connection leads to another database; begin a \
        new transaction";

    type Query = Query;
    type Row = Row;
    type Lease = Lease;
    type Connector = Connector;
    type Own = Own;

    fn query(text: &Arc<str>, _parameters: usize) -> Query {
        Query::new(AssertSqlSafe(Arc::clone(text)).into_sql_str())
    }

    fn quoted(name: &str) -> String {
        quoted(name)
    }

    /// Reports names that are longer than 63 bytes, because the server would truncate them.
    fn identifier_problem(name: &str) -> Option<&'static str> {
        (name.len() > 63).then_some("is longer than 63 bytes")
    }
}

/// A statement and its bound parameters. Binding a value encodes it at once.
pub(crate) struct Query {
    pub(crate) query: sqlx::query::Query<'static, sqlx::Postgres, PgArguments>,
    text: sqlx::SqlStr,
    /// Number of parameters bound so far.
    bound: usize,
}

impl Query {
    /// Creates a query without bound parameters.
    pub(crate) fn new(text: sqlx::SqlStr) -> Self {
        Self {
            query: sqlx::query(text.clone()),
            text,
            bound: 0,
        }
    }

    /// Binds the next parameter to a value. The type can be any that the driver can encode.
    pub(crate) fn with<'t, T>(self, value: T) -> Self
    where
        T: Encode<'t, sqlx::Postgres> + Type<sqlx::Postgres> + 't,
    {
        Self {
            query: self.query.bind(value),
            bound: self.bound + 1,
            ..self
        }
    }
}

/// Returns whether a statement gives its list parameters the names of `columns`, in the same order.
/// `first` is the number of the first list parameter. It is 3 in this example with two lists:
/// `unnest($3::uuid[], $4::bigint[]) AS token (job, seq)`.
fn names_columns(text: &str, first: usize, columns: &[(&'static str, &dyn Column)]) -> bool {
    let lists = text.split_once(&format!("unnest(${first}::"));
    let named = lists.and_then(|(_, lists)| lists.split_once(" AS "));
    let names = named.and_then(|(_, named)| named.split_once('('));
    let Some((names, _)) = names.and_then(|(_, names)| names.split_once(')')) else {
        return false;
    };
    let mut names = names.split(',').map(str::trim);
    // `WITH ORDINALITY` adds a last name that is not in `columns`.
    columns
        .iter()
        .all(|(column, _)| names.next() == Some(*column))
}

impl std::fmt::Debug for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Shows no bound values, because they may be secret.
        f.write_str("Query")
    }
}

impl ratchet_sql::Query for Query {
    fn argument(self, argument: Argument<'_>) -> Self {
        match argument {
            Argument::Bool(value) => self.with(value),
            Argument::Small(value) => self.with(value),
            Argument::Int(value) => self.with(value),
            Argument::Big(value) => self.with(value),
            Argument::Uuid(value) => self.with(value),
            Argument::Text(value) => self.with(value),
            Argument::List(list) => each_list!(list, values => self.with(values)),
        }
    }

    fn any_of(self, numbers: Option<&[i32]>) -> Self {
        self.with(numbers)
    }

    fn states(self, states: &[JobState]) -> Self {
        let codes: Vec<i16> = states.iter().map(|state| state.code().into()).collect();
        self.with(codes)
    }

    /// Binds one list for each column, by position. Debug builds check that the statement names the
    /// lists as `columns` does.
    fn table(self, columns: &[(&'static str, &dyn Column)]) -> Self {
        debug_assert!(
            names_columns(self.text.as_str(), self.bound + 1, columns),
            "expected the statement to name the columns {:?}: {}",
            columns.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            self.text.as_str(),
        );
        let bind = |query: Self, column: &dyn Column| query.argument(Argument::List(column.list()));
        columns
            .iter()
            .fold(self, |query, (_, column)| bind(query, *column))
    }

    /// Binds the first value of each column, or NULL if a column is empty.
    fn row(self, columns: &[(&'static str, &dyn Column)]) -> Self {
        columns
            .iter()
            .fold(self, |query, (_, column)| match column.list() {
                List::OptSmall(values) => query.with(values.first().copied().flatten()),
                List::OptInt(values) => query.with(values.first().copied().flatten()),
                List::OptBig(values) => query.with(values.first().copied().flatten()),
                List::OptUuid(values) => query.with(values.first().copied().flatten()),
                List::OptStr(values) => query.with(values.first().copied().flatten()),
                List::OptString(values) => query.with(values.first().and_then(Option::as_deref)),
                List::Bool(values) => query.with(values.first()),
                List::Small(values) => query.with(values.first()),
                List::Int(values) => query.with(values.first()),
                List::Big(values) => query.with(values.first()),
                List::Uuid(values) => query.with(values.first()),
                List::Str(values) => query.with(values.first()),
                List::String(values) => query.with(values.first()),
            })
    }
}

/// A row of a query's result.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) PgRow);

impl ratchet_sql::Row for Row {
    fn bool(&self, column: usize) -> Result<Option<bool>> {
        self.0.try_get(column).classified()
    }

    fn small(&self, column: usize) -> Result<Option<i16>> {
        self.0.try_get(column).classified()
    }

    fn int(&self, column: usize) -> Result<Option<i32>> {
        self.0.try_get(column).classified()
    }

    fn big(&self, column: usize) -> Result<Option<i64>> {
        self.0.try_get(column).classified()
    }

    fn uuid(&self, column: usize) -> Result<Option<Uuid>> {
        self.0.try_get(column).classified()
    }

    fn text(&self, column: usize) -> Result<Option<&str>> {
        self.0.try_get(column).classified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_and_the_order_of_the_text() {
        let (ids, numbers) = (vec![Uuid::nil()], vec![1_i64]);
        let columns: [(&'static str, &dyn Column); 2] = [("job", &ids), ("seq", &numbers)];
        let swapped = [columns[1], columns[0]];
        let text = "SELECT $1 FROM unnest($2::uuid[],\n $3::bigint[])\n AS token (job,\n seq)";
        assert!(names_columns(text, 2, &columns));
        assert!(!names_columns(text, 2, &swapped));
        assert!(!names_columns(text, 1, &columns));
        assert!(names_columns(
            "SELECT FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS a (job, seq, place)",
            1,
            &columns
        ));
    }
}
