//! JSON documents, kept as text.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::InvalidInput;

/// Describes why a JSON document does not decode into a type, without quoting the document. The
/// messages of serde quote values, and errors are shown to people who must not see payloads.
pub(crate) fn misfit(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let said = said
        .rsplit_once(" at line ")
        .map_or(&*said, |(said, _)| said);
    let kinds = [
        "invalid type",
        "invalid value",
        "invalid length",
        "unknown variant",
        "unknown field",
    ];
    let what = match kinds.iter().find(|kind| said.starts_with(**kind)) {
        // The expected type and the names of its fields come from the program, not from the
        // document.
        Some(kind) => match said.rsplit_once(", expected ") {
            Some((_, expected)) => format!("{kind}, expected {expected},"),
            None => (*kind).to_owned(),
        },
        None if said.starts_with("missing field ") => said.to_owned(),
        None if error.is_data() => "a value of the wrong type or form".to_owned(),
        None => "invalid JSON".to_owned(),
    };
    format!("{what} at line {} column {}", error.line(), error.column())
}

/// A JSON document, kept as text. Payloads, checkpoints and results are such documents.
///
/// Cloning is cheap. `Debug` shows only the size, because payloads may contain data that must not
/// appear in logs.
///
/// ```
/// use ratchet::Json;
///
/// let result = Json::encode("result", &["a", "b"])?;
/// assert_eq!(result.as_str(), r#"["a","b"]"#);
/// assert_eq!(result.decode::<Vec<String>>()?, ["a", "b"]);
/// # Ok::<(), ratchet::BoxError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Encodes a value as JSON.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `field` if the value does not serialize.
    pub fn encode<T: Serialize + ?Sized>(
        field: &'static str,
        value: &T,
    ) -> Result<Self, InvalidInput> {
        serde_json::to_string(value)
            .map(|text| Self(text.into()))
            .map_err(|error| InvalidInput::new(field, format!("does not serialize: {error}")))
    }

    /// Creates a document from `text`, after checking that `text` is valid JSON.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `field` if the text is not JSON.
    pub fn parse(field: &'static str, text: &str) -> Result<Self, InvalidInput> {
        serde_json::from_str::<&RawValue>(text)
            .map(|raw| Self(raw.get().into()))
            .map_err(|error| InvalidInput::new(field, format!("is not JSON: {error}")))
    }

    /// Creates a document from a text that a store saved, without checking the text. If it is not
    /// valid JSON, [`decode`](Self::decode) fails later.
    #[must_use]
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Creates the document `null`.
    #[must_use]
    pub fn null() -> Self {
        Self("null".into())
    }

    /// Decodes the document into a `T`.
    ///
    /// # Errors
    /// Returns serde's error if the text is not the JSON of a `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Returns the JSON text of the document.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the document is `null`. The output `()` of a body encodes to this document.
    #[must_use]
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }

    /// Checks that the document has at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `field` with both sizes if the document is larger.
    pub fn check_size(&self, field: &'static str, limit: usize) -> Result<(), InvalidInput> {
        if self.0.len() > limit {
            let bytes = self.0.len();
            return Err(InvalidInput::new(
                field,
                format!("has {bytes} bytes; at most {limit} are allowed"),
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

/// The serialized form of a document: a string with its text. `Json` itself does not implement
/// `Serialize`, because a caller could then pass a document as a payload, which would become a
/// string.
pub(crate) mod text {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Json;

    pub(crate) fn serialize<S: Serializer>(json: &Json, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&json.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Json, D::Error> {
        String::deserialize(from).map(Json::from_stored)
    }
}

/// The serialized form of an optional document: a string with its text, or nothing.
pub(crate) mod optional_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Json;

    #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(crate) fn serialize<S: Serializer>(json: &Option<Json>, to: S) -> Result<S::Ok, S::Error> {
        json.as_ref().map(Json::as_str).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Json>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.map(Json::from_stored))
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

    #[test]
    fn what_does_not_fit_is_told_without_the_content() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only decoded")]
        struct Card {
            number: u64,
            kind: Kind,
            date: std::net::Ipv4Addr,
        }
        #[derive(Debug, serde::Deserialize)]
        enum Kind {
            Debit,
        }
        for (text, told) in [
            (
                r#"{"number": "4111, expected 4111 at line 4111"}"#,
                "invalid type, expected u64, at line 1 column 45",
            ),
            (
                r#"{"kind": "4111"}"#,
                "unknown variant, expected `Debit`, at line 1 column 15",
            ),
            (
                r#"{"4111": 1}"#,
                "unknown field, expected one of `number`, `kind`, `date`, at line 1 column 7",
            ),
            (
                r#"{"date": "4111"}"#,
                "a value of the wrong type or form at line 1 column 15",
            ),
            (
                r#"{"number": 1}"#,
                "missing field `kind` at line 1 column 13",
            ),
            (
                "4111 4111",
                "invalid type, expected struct Card, at line 1 column 4",
            ),
            ("{4111", "invalid JSON at line 1 column 2"),
        ] {
            let error = Json::from_stored(text).decode::<Card>().unwrap_err();
            assert_eq!(misfit(&error), told, "{error}");
        }
    }
}
