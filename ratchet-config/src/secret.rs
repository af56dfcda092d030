use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// The text that replaces a secret in all output.
pub const HIDDEN: &str = "***";

/// A value that must not be shown. `Debug`, `Display` and serialization print [`HIDDEN`] instead.
///
/// ```
/// use ratchet_config::Secret;
///
/// let password = Secret::new("hunter2".to_owned());
/// assert_eq!(format!("{password} {password:?}"), "*** ***");
/// assert_eq!(password.expose(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Creates a secret from a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the secret value. Call this method only where the program needs the value itself.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}
