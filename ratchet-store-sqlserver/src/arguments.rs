//! What statements are given: single values, and lists as JSON for `OPENJSON`.
//!
//! A list is one parameter however long it is: the driver has no table-valued parameters, and one
//! parameter for each value would be another statement text for each length, of which there are at
//! most 2,100. Nor is any parameter a text that is NULL, which the driver sends without a type; in a
//! list it may be.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use tiberius::{ColumnData, IntoSql};
use uuid::Uuid;

use crate::connect::{Client, quietly};
use crate::result::{self, Row};
use crate::statements::ESCAPES;

/// A statement with what is bound to it, `@P1` first.
pub(crate) struct Query {
    sql: Arc<str>,
    /// How many parameters it has.
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

    /// The same with the next parameter.
    pub(crate) fn bind(mut self, argument: impl Argument) -> Self {
        self.arguments.push(argument.into_data());
        self
    }

    /// The server would take one too many without a word.
    fn prepared(&self) -> tiberius::Query<'_> {
        debug_assert_eq!(self.arguments.len(), self.parameters, "{}", self.sql);
        let mut query = tiberius::Query::new(&*self.sql);
        for argument in &self.arguments {
            query.bind(Raw(argument.clone()));
        }
        query
    }

    /// Runs the statement and reads all that it returns.
    pub(crate) async fn rows(self, client: &mut Client) -> tiberius::Result<Vec<Row>> {
        quietly(async {
            let stream = self.prepared().query(client).await?;
            Ok(result::all(stream.into_results().await?))
        })
        .await
    }

    /// Runs the statement; how many rows the last of its parts changed that changes any.
    pub(crate) async fn execute(self, client: &mut Client) -> tiberius::Result<u64> {
        let done = quietly(self.prepared().execute(client)).await?;
        Ok(done.rows_affected().last().copied().unwrap_or_default())
    }
}

struct Raw(ColumnData<'static>);

impl<'a> IntoSql<'a> for Raw {
    fn into_sql(self) -> ColumnData<'a> {
        self.0
    }
}

/// A value of a parameter.
pub(crate) trait Argument {
    fn into_data(self) -> ColumnData<'static>;
}

macro_rules! numbers {
    ($($type:ty => $data:ident,)*) => {$(
        impl Argument for $type {
            fn into_data(self) -> ColumnData<'static> {
                ColumnData::$data(Some(self))
            }
        }

        impl Argument for Option<$type> {
            fn into_data(self) -> ColumnData<'static> {
                ColumnData::$data(self)
            }
        }

        impl Cell for $type {
            fn write(&self, out: &mut String) {
                // A string takes everything.
                let _ = write!(out, "{self}");
            }
        }
    )*};
}

numbers! {
    i16 => I16,
    i32 => I32,
    i64 => I64,
    bool => Bit,
}

impl Argument for &str {
    fn into_data(self) -> ColumnData<'static> {
        ColumnData::String(Some(Cow::Owned(self.to_owned())))
    }
}

impl Argument for String {
    fn into_data(self) -> ColumnData<'static> {
        ColumnData::String(Some(Cow::Owned(self)))
    }
}

/// Ids are `binary(16)`: that sorts as they do, which `uniqueidentifier` does not.
impl Argument for Uuid {
    fn into_data(self) -> ColumnData<'static> {
        ColumnData::Binary(Some(Cow::Owned(self.as_bytes().to_vec())))
    }
}

/// `["…", …]`, which `OPENJSON(@P1)` makes rows with a `value` of.
impl<T: Cell> Argument for &[T] {
    fn into_data(self) -> ColumnData<'static> {
        let mut text = String::from("[");
        for (place, cell) in self.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            cell.write(&mut text);
        }
        text.push(']');
        text.into_data()
    }
}

impl<T: Cell> Argument for Vec<T> {
    fn into_data(self) -> ColumnData<'static> {
        self.as_slice().into_data()
    }
}

impl<T: Cell> Argument for &Vec<T> {
    fn into_data(self) -> ColumnData<'static> {
        self.as_slice().into_data()
    }
}

/// A value in a list.
pub(crate) trait Cell {
    /// Writes it as JSON.
    fn write(&self, out: &mut String);
}

impl Cell for Uuid {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "\"{}\"", self.simple());
    }
}

/// In a text no character is written that JSON would have to escape, but for rare control characters:
/// statements undo this (`{text x}`, statements.rs). Not every server that can run the statements
/// undoes what JSON escapes.
impl Cell for &str {
    fn write(&self, out: &mut String) {
        let mut text = String::with_capacity(self.len() + 2);
        for character in self.chars() {
            match ESCAPES.iter().find(|(_, one)| *one == character) {
                Some((escape, _)) => text.push_str(escape),
                None => text.push(character),
            }
        }
        // A text can always be written as JSON.
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

/// A column of a table.
pub(crate) trait Column: Sync {
    fn len(&self) -> usize;
    fn write(&self, place: usize, out: &mut String);
}

impl<T: Cell + Sync> Column for Vec<T> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn write(&self, place: usize, out: &mut String) {
        match self.get(place) {
            Some(cell) => cell.write(out),
            None => out.push_str("null"),
        }
    }
}

/// A list of rows, `[{"job":"…","seq":1}, …]`, for `OPENJSON(@P1) WITH (job char(32), seq bigint)`.
/// The columns have names, and one value for each row; what is missing is none.
pub(crate) fn table(columns: &[(&str, &dyn Column)]) -> String {
    let rows = columns.iter().map(|(_, column)| column.len()).max();
    let mut text = String::from("[");
    for place in 0..rows.unwrap_or_default() {
        text.push_str(if place > 0 { ",{" } else { "{" });
        for (index, (name, column)) in columns.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            let _ = write!(text, "\"{name}\":");
            column.write(place, &mut text);
        }
        text.push('}');
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(argument: impl Argument) -> String {
        match argument.into_data() {
            ColumnData::String(Some(text)) => text.into_owned(),
            other => panic!("{other:?} is no text"),
        }
    }

    #[test]
    fn lists_are_json() {
        assert_eq!(text(Vec::<i32>::new()), "[]");
        assert_eq!(text(vec![1_i64, i64::MIN]), "[1,-9223372036854775808]");
        assert_eq!(
            text(vec![Uuid::from_u128(0xA1)]),
            "[\"000000000000000000000000000000a1\"]"
        );
        assert_eq!(
            text(vec!["a\"\\~q\n\r\t\u{1}", "🦀"]),
            "[\"a~q~b~tq~n~r~a\\u0001\",\"🦀\"]"
        );
        assert_eq!(
            text(vec![Some(true), None, Some(false)]),
            "[true,null,false]"
        );
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
