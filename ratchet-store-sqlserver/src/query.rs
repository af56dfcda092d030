//! Binds the arguments of statements: single values, and lists as JSON for `OPENJSON`.
//!
//! A list is always one parameter. The driver has no table-valued parameters. One parameter per
//! value would need another statement text for each length, and a statement has at most 2,100
//! parameters. A parameter that is a single text is never NULL, because the driver would send NULL
//! without a type. A text in a list may be NULL.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use ratchet_core::JobState;
use ratchet_sql::{Argument, Column, List, each_list};
use tiberius::{ColumnData, IntoSql};
use uuid::Uuid;

use crate::connect::{Client, quietly};
use crate::row::{self, Row};
use crate::words::ESCAPES;

/// A statement and its arguments. The first argument is the parameter `@P1`.
pub(crate) struct Query {
    sql: Arc<str>,
    /// Number of parameters of the statement.
    parameters: usize,
    arguments: Vec<ColumnData<'static>>,
}

impl Query {
    pub(crate) const fn new(sql: Arc<str>, parameters: usize) -> Self {
        Self {
            sql,
            parameters,
            arguments: Vec::new(),
        }
    }

    fn with(mut self, data: ColumnData<'static>) -> Self {
        self.arguments.push(data);
        self
    }

    /// Binds the arguments to the statement. Debug builds check the number of arguments, because
    /// the server silently ignores surplus ones.
    fn prepared(&self) -> tiberius::Query<'_> {
        debug_assert_eq!(self.arguments.len(), self.parameters, "{}", self.sql);
        let mut query = tiberius::Query::new(&*self.sql);
        for argument in &self.arguments {
            query.bind(Raw(argument.clone()));
        }
        query
    }

    /// Runs the statement and returns all its rows.
    pub(crate) async fn rows(self, client: &mut Client) -> tiberius::Result<Vec<Row>> {
        quietly(async {
            let stream = self.prepared().query(client).await?;
            Ok(row::all(stream.into_results().await?))
        })
        .await
    }

    /// Runs the statement, which may have several parts. Returns the number of rows that the last
    /// writing part changed.
    pub(crate) async fn execute(self, client: &mut Client) -> tiberius::Result<u64> {
        let done = quietly(self.prepared().execute(client)).await?;
        Ok(done.rows_affected().last().copied().unwrap_or_default())
    }
}

impl ratchet_sql::Query for Query {
    fn argument(self, argument: Argument<'_>) -> Self {
        self.with(match argument {
            Argument::Bool(value) => ColumnData::Bit(Some(value)),
            Argument::Small(value) => ColumnData::I16(Some(value)),
            Argument::Int(value) => ColumnData::I32(Some(value)),
            Argument::Big(value) => ColumnData::I64(value),
            // Ids are `binary(16)`, which sorts like the ids; `uniqueidentifier` does not.
            Argument::Uuid(value) => {
                ColumnData::Binary(Some(Cow::Owned(value.as_bytes().to_vec())))
            }
            Argument::Text(text) => string(text.to_owned()),
            Argument::List(list) => string(json(list)),
        })
    }

    fn any_of(self, numbers: Option<&[i32]>) -> Self {
        let list = List::Int(numbers.unwrap_or_default());
        self.with(ColumnData::Bit(Some(numbers.is_some())))
            .with(string(json(list)))
    }

    /// Binds the states as one parameter, a bit mask.
    fn states(self, states: &[JobState]) -> Self {
        let bits = states
            .iter()
            .fold(0_i32, |bits, state| bits | 1 << state.code());
        self.with(ColumnData::I32(Some(bits)))
    }

    fn table(self, columns: &[(&'static str, &dyn Column)]) -> Self {
        self.with(string(table(columns)))
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the arguments, which may be secret.
        f.debug_tuple("Query").field(&self.sql).finish()
    }
}

struct Raw(ColumnData<'static>);

impl<'a> IntoSql<'a> for Raw {
    fn into_sql(self) -> ColumnData<'a> {
        self.0
    }
}

fn string(text: String) -> ColumnData<'static> {
    ColumnData::String(Some(Cow::Owned(text)))
}

/// Returns a list as JSON, `["…", …]`. In a statement, `OPENJSON(@P1)` converts it to rows with a
/// column `value`.
fn json(list: List<'_>) -> String {
    let mut text = String::from("[");
    each_list!(list, values => for (place, cell) in values.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        cell.write(&mut text);
    });
    text.push(']');
    text
}

/// A value that can be an element of a list parameter.
trait Cell {
    /// Appends the value to `out`, as JSON.
    fn write(&self, out: &mut String);
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Cell for $type {
            fn write(&self, out: &mut String) {
                // Writing to a string cannot fail.
                let _ = write!(out, "{self}");
            }
        }
    )*};
}

numbers! { i16 i32 i64 bool }

impl Cell for Uuid {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "\"{}\"", self.simple());
    }
}

/// Replaces the characters that JSON would escape with the escapes in [`ESCAPES`]. Statements undo
/// these escapes with the placeholder `{text x}`, see `words.rs`. This is needed because Babelfish
/// does not undo the escapes of JSON. Rare control characters are not replaced.
impl Cell for &str {
    fn write(&self, out: &mut String) {
        let mut text = String::with_capacity(self.len() + 2);
        for character in self.chars() {
            match ESCAPES.iter().find(|(_, one)| *one == character) {
                Some((escape, _)) => text.push_str(escape),
                None => text.push(character),
            }
        }
        // A text can always be encoded as JSON.
        out.push_str(&serde_json::to_string(&text).unwrap_or_default());
    }
}

impl Cell for String {
    fn write(&self, out: &mut String) {
        self.as_str().write(out);
    }
}

impl<T: Cell> Cell for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(cell) => cell.write(out),
            None => out.push_str("null"),
        }
    }
}

/// Returns rows as JSON, `[{"job":"…","seq":1}, …]`. In a statement,
/// `OPENJSON(@P1) WITH (job char(32), seq bigint)` converts it to rows again. Each column has a
/// name and one value for each row. Missing values become NULL.
fn table(columns: &[(&'static str, &dyn Column)]) -> String {
    let columns = columns.iter().map(|(name, column)| (*name, column.list()));
    let columns: Vec<(&str, List<'_>)> = columns.collect();
    let rows = columns.iter().map(|(_, list)| list.len()).max();
    let mut text = String::from("[");
    for place in 0..rows.unwrap_or_default() {
        text.push_str(if place > 0 { ",{" } else { "{" });
        for (index, (name, list)) in columns.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            let _ = write!(text, "\"{name}\":");
            each_list!(*list, values => match values.get(place) {
                Some(cell) => cell.write(&mut text),
                None => text.push_str("null"),
            });
        }
        text.push('}');
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use ratchet_sql::Element;

    use super::*;

    fn text<T: Element>(values: &[T]) -> String {
        json(T::list(values))
    }

    #[test]
    fn lists_are_json() {
        assert_eq!(text::<i32>(&[]), "[]");
        assert_eq!(text(&[1_i64, i64::MIN]), "[1,-9223372036854775808]");
        assert_eq!(
            text(&[Uuid::from_u128(0xA1)]),
            "[\"000000000000000000000000000000a1\"]"
        );
        assert_eq!(
            text(&["a\"\\~q\n\r\t\u{1}", "🦀"]),
            "[\"a~q~b~tq~n~r~a\\u0001\",\"🦀\"]"
        );
        assert_eq!(text(&[Some(1), None, Some(-2)]), "[1,null,-2]");
    }

    #[test]
    fn tables_have_a_row_for_each_place() {
        let (jobs, errors) = (vec![1_i64, 2], vec![None, Some("e")]);
        assert_eq!(
            table(&[("job", &jobs), ("error", &errors)]),
            "[{\"job\":1,\"error\":null},{\"job\":2,\"error\":\"e\"}]"
        );
        let none: Vec<i64> = Vec::new();
        assert_eq!(table(&[("job", &none)]), "[]");
    }
}
