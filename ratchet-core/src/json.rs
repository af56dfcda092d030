//! JSON text as stores keep it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::InvalidInput;

/// A JSON document, kept as text: a payload, a checkpoint or a result.
///
/// Cheap to clone. Its `Debug` shows the size only, since payloads may hold what logs must not.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    /// The JSON of a value.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `field` if the value does not serialize.
    pub fn encode<T: Serialize + ?Sized>(
        field: &'static str,
        value: &T,
    ) -> Result<Self, InvalidInput> {
        serde_json::to_string(value)
            .map(|text| Self(text.into()))
            .map_err(|error| InvalidInput::new(field, format!("does not serialize: {error}")))
    }

    /// Checks that `text` is one JSON document and keeps it.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `field` if it is not.
    pub fn parse(field: &'static str, text: &str) -> Result<Self, InvalidInput> {
        serde_json::from_str::<&RawValue>(text)
            .map(|raw| Self(raw.get().into()))
            .map_err(|error| InvalidInput::new(field, format!("is not JSON: {error}")))
    }

    /// Text that a store kept, unchecked: whether it still is JSON shows when it is decoded.
    #[must_use]
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The value.
    ///
    /// # Errors
    /// What serde says if the text is not the JSON of a `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the document `null`, which is how the result of a job without one looks.
    #[must_use]
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }

    /// Refuses more than `limit` bytes.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `field` and both sizes.
    pub fn check_size(&self, field: &'static str, limit: usize) -> Result<(), InvalidInput> {
        if self.0.len() > limit {
            let bytes = self.0.len();
            return Err(InvalidInput::new(
                field,
                format!("has {bytes} bytes, {limit} are allowed"),
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let json = Json::encode("payload", &(1, "é")).unwrap();
        assert_eq!(json.as_str(), r#"[1,"é"]"#);
        assert_eq!(json.decode::<(i32, String)>().unwrap(), (1, "é".to_owned()));
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        for text in ["", "{", "1 2", "nul", "\0"] {
            assert!(Json::parse("payload", text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn debug_does_not_show_the_content() {
        let json = Json::encode("payload", "secret").unwrap();
        assert_eq!(format!("{json:?}"), "Json(8 bytes)");
    }
}
