//! Reads the rows that statements return.

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{Failure, Result};
use tiberius::ColumnData;
use uuid::Uuid;

/// A row of a query's result. Its values are read by position.
#[derive(Debug)]
pub(crate) struct Row(tiberius::Row);

/// Returns the rows of all results of a batch, one result after the other. Only the last result of
/// a statement has rows, because a statement returns rows at most once.
pub(crate) fn all(results: Vec<Vec<tiberius::Row>>) -> Vec<Row> {
    results.into_iter().flatten().map(Row).collect()
}

impl Row {
    /// Reads a column. `read` converts the value, and returns `None` if the value has another type.
    fn read<'r, T>(
        &'r self,
        column: usize,
        read: impl FnOnce(&'r ColumnData<'static>) -> Option<T>,
    ) -> Result<T> {
        let data = self.0.get_column_data(column).map_err(|_| {
            let text = format!("a statement returned no column {column}");
            Failure::new(StoreErrorKind::SchemaMismatch(SchemaProblem::Altered), text)
        })?;
        read(data).ok_or_else(Failure::unreadable)
    }
}

impl ratchet_sql::Row for Row {
    fn bool(&self, column: usize) -> Result<Option<bool>> {
        self.read(column, truth)
    }

    fn small(&self, column: usize) -> Result<Option<i16>> {
        self.read(column, number)
    }

    fn int(&self, column: usize) -> Result<Option<i32>> {
        self.read(column, number)
    }

    fn big(&self, column: usize) -> Result<Option<i64>> {
        self.read(column, integer)
    }

    fn uuid(&self, column: usize) -> Result<Option<Uuid>> {
        self.read(column, id)
    }

    fn text(&self, column: usize) -> Result<Option<&str>> {
        self.read(column, text)
    }
}

/// Reads an integer of any width. All widths must be accepted, because the server gives an
/// expression the narrowest type that fits.
fn integer(data: &ColumnData<'static>) -> Option<Option<i64>> {
    Some(match data {
        ColumnData::U8(value) => value.map(i64::from),
        ColumnData::I16(value) => value.map(i64::from),
        ColumnData::I32(value) => value.map(i64::from),
        ColumnData::I64(value) => *value,
        _ => return None,
    })
}

fn number<T: TryFrom<i64>>(data: &ColumnData<'static>) -> Option<Option<T>> {
    match integer(data)? {
        Some(number) => T::try_from(number).ok().map(Some),
        None => Some(None),
    }
}

/// Reads a truth value. Statements return truth values as numbers, because conditions have no type
/// in SQL Server.
fn truth(data: &ColumnData<'static>) -> Option<Option<bool>> {
    match data {
        ColumnData::Bit(value) => Some(*value),
        data => integer(data).map(|number| number.map(|number| number != 0)),
    }
}

fn id(data: &ColumnData<'static>) -> Option<Option<Uuid>> {
    match data {
        ColumnData::Binary(None) => Some(None),
        ColumnData::Binary(Some(bytes)) => Uuid::from_slice(bytes).ok().map(Some),
        _ => None,
    }
}

fn text<'r>(data: &'r ColumnData<'static>) -> Option<Option<&'r str>> {
    match data {
        ColumnData::String(value) => Some(value.as_deref()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn numbers_of_every_width_are_read_if_there_is_room() {
        assert_eq!(integer(&ColumnData::I32(Some(7))), Some(Some(7)));
        assert_eq!(number::<i16>(&ColumnData::I64(Some(7))), Some(Some(7)));
        assert_eq!(number::<i16>(&ColumnData::I64(Some(70_000))), None);
        assert_eq!(integer(&ColumnData::I16(None)), Some(None));
        assert_eq!(integer(&ColumnData::Bit(Some(true))), None);
    }

    #[test]
    fn a_condition_is_a_bit_or_a_number() {
        assert_eq!(truth(&ColumnData::Bit(Some(true))), Some(Some(true)));
        assert_eq!(truth(&ColumnData::I32(Some(1))), Some(Some(true)));
        assert_eq!(truth(&ColumnData::I64(Some(0))), Some(Some(false)));
        assert_eq!(truth(&ColumnData::I32(None)), Some(None));
    }

    #[test]
    fn what_is_of_another_type_is_not_read() {
        let string = ColumnData::String(Some(Cow::Borrowed("a")));
        assert_eq!(text(&string), Some(Some("a")));
        assert_eq!(id(&string), None);
        assert_eq!(integer(&string), None);
        assert_eq!(truth(&string), None);
        let short = ColumnData::Binary(Some(Cow::Borrowed(&[1, 2])));
        assert_eq!(id(&short), None);
        let whole = ColumnData::Binary(Some(Cow::Borrowed(&[7; 16])));
        assert_eq!(id(&whole), Some(Some(Uuid::from_bytes([7; 16]))));
    }
}
