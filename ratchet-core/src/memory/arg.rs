use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An argument of a [`Command`](super::Command): borrowed from the caller of the store, or owned by
/// a decoded command. It is as small as a reference, because each call passes its command on
/// several times.
#[derive(Debug)]
pub enum Arg<'a, T: ?Sized> {
    /// The argument of a call.
    Borrowed(&'a T),
    /// A decoded argument.
    Owned(Box<T>),
}

impl<T: ?Sized> Clone for Arg<'_, T>
where
    Box<T>: Clone,
{
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(argument) => Self::Borrowed(argument),
            Self::Owned(argument) => Self::Owned(argument.clone()),
        }
    }
}

impl<T: ?Sized + ToOwned> Arg<'_, T>
where
    T::Owned: Into<Box<T>>,
{
    /// Returns the argument, which then borrows nothing.
    pub(super) fn into_owned(self) -> Arg<'static, T> {
        Arg::Owned(match self {
            Self::Borrowed(argument) => argument.to_owned().into(),
            Self::Owned(argument) => argument,
        })
    }
}

impl<'a, T: ?Sized> From<&'a T> for Arg<'a, T> {
    fn from(argument: &'a T) -> Self {
        Self::Borrowed(argument)
    }
}

impl<T: ?Sized> Deref for Arg<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(argument) => argument,
            Self::Owned(argument) => argument,
        }
    }
}

impl<T: Serialize + ?Sized> Serialize for Arg<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(to)
    }
}

impl<'de, T: ?Sized> Deserialize<'de> for Arg<'_, T>
where
    Box<T>: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Box::deserialize(from).map(Self::Owned)
    }
}
