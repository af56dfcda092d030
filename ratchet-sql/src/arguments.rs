//! Values that can be bound to a statement.

use uuid::Uuid;

/// Value of a statement's parameter: a scalar or a list.
///
/// A text or an id cannot be NULL, because some drivers cannot bind an untyped NULL. For a missing
/// value, bind an empty text, [`Uuid::nil`] or [`Uuid::max`] instead. If a present value can also
/// be equal to this replacement, bind an additional boolean that is true if the value is present.
/// Lists may contain NULL.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A boolean.
    Bool(bool),
    /// A 16-bit integer.
    Small(i16),
    /// A 32-bit integer.
    Int(i32),
    /// A 64-bit integer or NULL.
    Big(Option<i64>),
    /// An id.
    Uuid(Uuid),
    /// A text.
    Text(&'a str),
    /// A list.
    List(List<'a>),
}

/// A list of values of the same type, which is bound as one parameter. In the `Opt…` variants,
/// `None` is bound as NULL.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the types of the variants explain them")]
pub enum List<'a> {
    Bool(&'a [bool]),
    Small(&'a [i16]),
    Int(&'a [i32]),
    Big(&'a [i64]),
    Uuid(&'a [Uuid]),
    Str(&'a [&'a str]),
    String(&'a [String]),
    OptSmall(&'a [Option<i16>]),
    OptInt(&'a [Option<i32>]),
    OptBig(&'a [Option<i64>]),
    OptUuid(&'a [Option<Uuid>]),
    OptStr(&'a [Option<&'a str>]),
    OptString(&'a [Option<String>]),
}

/// Evaluates the expression `$work` for a `List` of any variant. The expression can use the slice
/// inside the list under the name `$values`.
#[macro_export]
macro_rules! each_list {
    ($list:expr, $values:ident => $work:expr) => {
        match $list {
            $crate::List::Bool($values) => $work,
            $crate::List::Small($values) => $work,
            $crate::List::Int($values) => $work,
            $crate::List::Big($values) => $work,
            $crate::List::Uuid($values) => $work,
            $crate::List::Str($values) => $work,
            $crate::List::String($values) => $work,
            $crate::List::OptSmall($values) => $work,
            $crate::List::OptInt($values) => $work,
            $crate::List::OptBig($values) => $work,
            $crate::List::OptUuid($values) => $work,
            $crate::List::OptStr($values) => $work,
            $crate::List::OptString($values) => $work,
        }
    };
}

impl List<'_> {
    /// Returns the number of values in the list.
    #[must_use]
    pub const fn len(&self) -> usize {
        each_list!(self, values => values.len())
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

macro_rules! scalars {
    ($($type:ty => $kind:ident($value:ident) $argument:expr,)*) => {$(
        impl From<$type> for Argument<'_> {
            fn from($value: $type) -> Self {
                Self::$kind($argument)
            }
        }
    )*};
}

scalars! {
    bool => Bool(value) value,
    i16 => Small(value) value,
    i32 => Int(value) value,
    i64 => Big(value) Some(value),
    Option<i64> => Big(value) value,
    Uuid => Uuid(value) value,
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Argument<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Element> From<&'a [T]> for Argument<'a> {
    fn from(values: &'a [T]) -> Self {
        Self::List(T::list(values))
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Argument<'a> {
    fn from(values: &'a Vec<T>) -> Self {
        Self::List(T::list(values))
    }
}

/// Type of the values in a [`List`].
pub trait Element: Sync + Sized {
    /// Returns a list of these values.
    fn list(values: &[Self]) -> List<'_>;
}

macro_rules! elements {
    ($($type:ty => $kind:ident,)*) => {$(
        impl Element for $type {
            fn list(values: &[Self]) -> List<'_> {
                List::$kind(values)
            }
        }
    )*};
}

elements! {
    bool => Bool,
    i16 => Small,
    i32 => Int,
    i64 => Big,
    Uuid => Uuid,
    &str => Str,
    String => String,
    Option<i16> => OptSmall,
    Option<i32> => OptInt,
    Option<i64> => OptBig,
    Option<Uuid> => OptUuid,
    Option<&str> => OptStr,
    Option<String> => OptString,
}

/// A column of a table that is bound to a statement with [`Query::table`](crate::Query::table).
pub trait Column: Sync {
    /// Returns the values of the column, from the first row to the last.
    fn list(&self) -> List<'_>;
}

impl<T: Element> Column for Vec<T> {
    fn list(&self) -> List<'_> {
        T::list(self)
    }
}
