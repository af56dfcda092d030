//! What statements return.

use ratchet_core::{SchemaProblem, StoreErrorKind};
use tiberius::ColumnData;
use uuid::Uuid;

use crate::error::{Failure, Result};

/// A row; its values are read by place.
#[derive(Debug)]
pub(crate) struct Row(tiberius::Row);

/// The rows of all results of a batch, one after the other. Statements return one result; that those
/// before it have no rows is nothing special.
pub(crate) fn all(results: Vec<Vec<tiberius::Row>>) -> Vec<Row> {
    results.into_iter().flatten().map(Row).collect()
}

impl Row {
    /// The value of a column; the first is 0.
    ///
    /// # Errors
    /// `Corrupt` if it is not of this type, `SchemaMismatch` if there is no such column.
    pub(crate) fn try_get<'a, T: Value<'a>>(&'a self, column: usize) -> Result<T> {
        let data = self.0.get_column_data(column).map_err(|_| {
            let text = format!("a statement returned no column {column}");
            Failure::new(StoreErrorKind::SchemaMismatch(SchemaProblem::Altered), text)
        })?;
        T::read(data).ok_or_else(unreadable)
    }
}

fn unreadable() -> Failure {
    Failure::new(StoreErrorKind::Corrupt, "a stored value cannot be read")
}

/// A type that columns are read as.
pub(crate) trait Value<'a>: Sized {
    /// The value, if it is one of this type.
    fn read(data: &'a ColumnData<'static>) -> Option<Self>;
}

/// Expressions are of the narrowest type that the server found, so every width is read as every
/// other one that has room for the number.
fn integer(data: &ColumnData<'static>) -> Option<Option<i64>> {
    Some(match data {
        ColumnData::U8(value) => value.map(i64::from),
        ColumnData::I16(value) => value.map(i64::from),
        ColumnData::I32(value) => value.map(i64::from),
        ColumnData::I64(value) => *value,
        _ => return None,
    })
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Value<'_> for $type {
            fn read(data: &ColumnData<'static>) -> Option<Self> {
                Self::try_from(integer(data)??).ok()
            }
        }

        impl Value<'_> for Option<$type> {
            fn read(data: &ColumnData<'static>) -> Option<Self> {
                match integer(data)? {
                    Some(number) => <$type>::try_from(number).ok().map(Some),
                    None => Some(None),
                }
            }
        }
    )*};
}

integers! { i16 i32 i64 }

impl Value<'_> for bool {
    fn read(data: &ColumnData<'static>) -> Option<Self> {
        <Option<Self> as Value<'_>>::read(data)?
    }
}

impl Value<'_> for Option<bool> {
    fn read(data: &ColumnData<'static>) -> Option<Self> {
        match data {
            ColumnData::Bit(value) => Some(*value),
            _ => None,
        }
    }
}

impl<'a> Value<'a> for &'a str {
    fn read(data: &'a ColumnData<'static>) -> Option<Self> {
        <Option<Self> as Value<'a>>::read(data)?
    }
}

impl<'a> Value<'a> for Option<&'a str> {
    fn read(data: &'a ColumnData<'static>) -> Option<Self> {
        match data {
            ColumnData::String(value) => Some(value.as_deref()),
            _ => None,
        }
    }
}

impl Value<'_> for String {
    fn read(data: &ColumnData<'static>) -> Option<Self> {
        <&str>::read(data).map(str::to_owned)
    }
}

impl Value<'_> for Option<String> {
    fn read(data: &ColumnData<'static>) -> Option<Self> {
        <Option<&str>>::read(data).map(|text| text.map(str::to_owned))
    }
}

impl Value<'_> for Uuid {
    fn read(data: &ColumnData<'static>) -> Option<Self> {
        <Option<Self> as Value<'_>>::read(data)?
    }
}

impl Value<'_> for Option<Uuid> {
    fn read(data: &ColumnData<'static>) -> Option<Self> {
        match data {
            ColumnData::Binary(None) => Some(None),
            ColumnData::Binary(Some(bytes)) => Uuid::from_slice(bytes).ok().map(Some),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn numbers_of_every_width_are_read_if_there_is_room() {
        assert_eq!(<i64>::read(&ColumnData::I32(Some(7))), Some(7));
        assert_eq!(<i16>::read(&ColumnData::I64(Some(7))), Some(7));
        assert_eq!(<i16>::read(&ColumnData::I64(Some(70_000))), None);
        assert_eq!(<i64>::read(&ColumnData::I64(None)), None);
        assert_eq!(<Option<i64>>::read(&ColumnData::I16(None)), Some(None));
        assert_eq!(<i64>::read(&ColumnData::Bit(Some(true))), None);
    }

    #[test]
    fn what_is_of_another_type_is_not_read() {
        let text = ColumnData::String(Some(Cow::Borrowed("a")));
        assert_eq!(<&str>::read(&text), Some("a"));
        assert_eq!(<Option<Uuid>>::read(&text), None);
        assert_eq!(<i64>::read(&text), None);
        let short = ColumnData::Binary(Some(Cow::Borrowed(&[1, 2])));
        assert_eq!(<Uuid>::read(&short), None);
        let id = ColumnData::Binary(Some(Cow::Borrowed(&[7; 16])));
        assert_eq!(<Uuid>::read(&id), Some(Uuid::from_bytes([7; 16])));
    }
}
