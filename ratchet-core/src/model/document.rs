//! Encodes and decodes the JSON documents that stores keep in rows. Each document contains the
//! version of its format.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::json::Json;

/// The current version of every document format.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a, T> {
    v: u32,
    #[serde(flatten)]
    fields: &'a T,
}

/// Encodes a document, with the version of its format in the field `v`.
pub(crate) fn encode<T: Serialize>(fields: &T) -> Result<String, InvalidInput> {
    let document = Written { v: VERSION, fields };
    Json::encode("document", &document).map(|json| json.as_str().to_owned())
}

/// Decodes a document of this version or of an earlier version.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, InvalidInput> {
    // Reads the version first, because a document of a later version may have other fields.
    let v = version(text)?;
    if v > VERSION {
        return Err(unreadable(&format_args!(
            "the format version {v} is newer than {VERSION}, the newest version that this program \
             reads"
        )));
    }
    serde_json::from_str(text).map_err(|error| unreadable(&error))
}

/// Returns the version of a document. Does not read the rest of a document that begins with its
/// version, as [`encode`] writes it.
fn version(text: &str) -> Result<u32, InvalidInput> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let first = text.strip_prefix("{\"v\":").and_then(|rest| {
        let end = rest.find([',', '}'])?;
        rest[..end].parse().ok()
    });
    if let Some(first) = first {
        return Ok(first);
    }
    let read: Version = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    Ok(read.v)
}

pub(crate) fn unreadable(error: &dyn Display) -> InvalidInput {
    InvalidInput::new("document", format!("cannot be read: {error}"))
}
