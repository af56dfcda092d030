//! Names of kinds, queues, capabilities, keys, locks and labels.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;

/// Checks the rules of a [`Name`], with another maximum length in bytes.
pub(crate) fn check_text(
    field: &'static str,
    text: &str,
    max_bytes: usize,
) -> Result<(), InvalidInput> {
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > max_bytes {
        format!("has {} bytes; at most {max_bytes} are allowed", text.len())
    } else if text.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else if text.trim() != text {
        "begins or ends with white space".to_owned()
    } else {
        return Ok(());
    };
    Err(InvalidInput::new(field, problem))
}

/// A short text that names something. A name has 1 to 128 bytes of UTF-8, no control characters,
/// and no white space at its beginning or end.
///
/// `Name::new` refuses any other text, so every backend can store a `Name` unchanged. Cloning a
/// name is cheap.
///
/// In JSON, a name is a string. Decoding fails for a string that `Name::new` refuses.
///
/// ```
/// use ratchet::Name;
///
/// let queue = Name::new("queue", "mail")?;
/// assert_eq!(queue.as_str(), "mail");
/// assert_eq!(Name::new("queue", "").unwrap_err().field(), "queue");
/// # Ok::<(), ratchet::InvalidInput>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The maximum length of a name in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Creates a name from `text`. If the text is invalid, the error names `field` as the invalid
    /// field.
    ///
    /// # Errors
    /// [`InvalidInput`] if the text is empty, longer than [`Name::MAX_BYTES`], has a control
    /// character (such as NUL), or begins or ends with white space.
    pub fn new(field: &'static str, text: impl AsRef<str>) -> Result<Self, InvalidInput> {
        let text = text.as_ref();
        check_text(field, text, Self::MAX_BYTES)?;
        Ok(Self(text.into()))
    }

    /// Joins names into one text with one name per line. Stores save lists of names in this form.
    /// [`split`](Self::split) is the inverse.
    #[must_use]
    pub fn join(names: &[Self]) -> String {
        let texts: Vec<&str> = names.iter().map(Self::as_str).collect();
        texts.join("\n")
    }

    /// Splits a text that [`join`](Self::join) returned into the names.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `field` if a line is not a valid name.
    pub fn split(field: &'static str, text: &str) -> Result<Vec<Self>, InvalidInput> {
        text.lines().map(|line| Self::new(field, line)).collect()
    }

    /// Returns the name as the value of a metric's label, without copying the text.
    pub(crate) fn shared(&self) -> ::metrics::SharedString {
        Arc::clone(&self.0).into()
    }

    /// Returns the text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidInput;

    fn try_from(text: String) -> Result<Self, InvalidInput> {
        Self::new("name", text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_kept_as_they_are() {
        for text in ["a", "resize.v2", "größe", "with space inside", "日本"] {
            assert_eq!(Name::new("kind", text).unwrap(), text);
        }
        assert!(Name::new("kind", "x".repeat(128)).is_ok());
    }

    #[test]
    fn in_json_a_name_is_a_string_and_a_bad_one_is_refused() {
        let name = Name::new("queue", "mail").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"mail\"");
        assert_eq!(serde_json::from_str::<Name>("\"mail\"").unwrap(), name);
        let error = serde_json::from_str::<Name>("\" mail\"").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("begins or ends with white space"),
            "{error}"
        );
    }

    #[test]
    fn bad_names_are_refused_and_the_field_is_named() {
        let long = "x".repeat(129);
        for text in ["", "a\0b", "line\nbreak", " a", "a ", "\u{7f}", &long] {
            let error = Name::new("queue", text).unwrap_err();
            assert_eq!(error.field(), "queue", "{text:?}");
        }
    }
}
