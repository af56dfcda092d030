//! The Rust types that can be read from columns.

use ratchet_core::model::JobFlags;
use uuid::Uuid;

use crate::dialect::Row;
use crate::failure::{Failure, Result};

/// A Rust type that can be read from a column.
pub trait Value<'r>: Sized {
    /// Reads the value in column number `column` of `row`.
    ///
    /// # Errors
    /// The errors of the methods of [`Row`]. Also `Corrupt` if the value is NULL and the type is
    /// not an `Option`.
    fn read<R: Row>(row: &'r R, column: usize) -> Result<Self>;
}

macro_rules! values {
    ($($type:ty => $method:ident,)*) => {$(
        impl Value<'_> for Option<$type> {
            fn read<R: Row>(row: &R, column: usize) -> Result<Self> {
                row.$method(column)
            }
        }

        impl Value<'_> for $type {
            fn read<R: Row>(row: &R, column: usize) -> Result<Self> {
                row.$method(column)?.ok_or_else(Failure::unreadable)
            }
        }
    )*};
}

values! {
    bool => bool,
    i16 => small,
    i32 => int,
    i64 => big,
    Uuid => uuid,
}

impl Value<'_> for JobFlags {
    fn read<R: Row>(row: &R, column: usize) -> Result<Self> {
        i16::read(row, column).map(Self::from_bits)
    }
}

impl<'r> Value<'r> for Option<&'r str> {
    fn read<R: Row>(row: &'r R, column: usize) -> Result<Self> {
        row.text(column)
    }
}

impl<'r> Value<'r> for &'r str {
    fn read<R: Row>(row: &'r R, column: usize) -> Result<Self> {
        row.text(column)?.ok_or_else(Failure::unreadable)
    }
}

impl Value<'_> for Option<String> {
    fn read<R: Row>(row: &R, column: usize) -> Result<Self> {
        Ok(row.text(column)?.map(str::to_owned))
    }
}

impl Value<'_> for String {
    fn read<R: Row>(row: &R, column: usize) -> Result<Self> {
        <&str>::read(row, column).map(str::to_owned)
    }
}
