//! The content of objects: a checksum, a header, and text. An object that was cut off or changed is
//! detected.

use bytes::Bytes;
use ratchet_core::memory::Command;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::bucket::{Bucket, Found};
use crate::error::{Failure, Result};

/// The format of all objects, and the rules by which commands change the data. A process refuses
/// objects of any other format: it could read them wrongly, or get other data than the others.
///
/// Increase it with every change of `ratchet_core::memory` after which the same commands may give
/// other data or other answers.
pub(crate) const FORMAT: u32 = 4;

/// The header of an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) format: u32,
    /// The version of the program that put the object, for operators.
    pub(crate) program: String,
    /// The number of the segment; or that of the last segment in a snapshot.
    pub(crate) number: u64,
    /// Identifies the segment, also among several that were put under its number.
    pub(crate) id: Uuid,
    /// The id of the segment before this one. Nil in the first segment, and in other objects.
    pub(crate) previous: Uuid,
    /// The time of the commands, in milliseconds since 1970; or that of the last one in a snapshot.
    pub(crate) at: i64,
}

impl Header {
    pub(crate) fn new(number: u64, id: Uuid, at: i64) -> Self {
        Self {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            number,
            id,
            previous: Uuid::nil(),
            at,
        }
    }

    /// Returns the header of a segment that follows the segment with this id.
    pub(crate) const fn after(mut self, previous: Uuid) -> Self {
        self.previous = previous;
        self
    }
}

/// Encodes an object with these lines.
pub(crate) fn encode<'a>(
    header: &Header,
    lines: impl IntoIterator<Item = &'a str>,
) -> Result<Bytes> {
    let mut text =
        serde_json::to_string(header).map_err(|error| Failure::unencodable("a header", &error))?;
    for line in lines {
        text.push('\n');
        text.push_str(line);
    }
    Ok(sealed(&text).into())
}

/// Returns the text with its checksum before it.
pub(crate) fn sealed(text: &str) -> String {
    let mut object = checksum(text);
    object.push('\n');
    object.push_str(text);
    object
}

/// Decodes an object. Returns its header and the text after it.
pub(crate) fn decode(found: &Found) -> Result<(Header, &str)> {
    let name = found.name.as_ref();
    let parts = parts(found).filter(|(sum, text)| *sum == checksum(text));
    let Some((_, text)) = parts else {
        return Err(Failure::corrupt(
            name,
            "is damaged: its checksum does not fit its content",
        ));
    };
    let (header, body) = text.split_once('\n').unwrap_or((text, ""));
    let header = decode_header(name, header)?;
    if let Some(number) = Bucket::number(&found.name)
        && number != header.number
    {
        let problem = format!(
            "has the content of segment {}; was it copied or renamed?",
            header.number
        );
        return Err(Failure::corrupt(name, &problem));
    }
    Ok((header, body))
}

/// Decodes the header of an object, even if the text after it is damaged.
pub(crate) fn header(found: &Found) -> Result<Header> {
    decode(found).map(|(header, _)| header).or_else(|failure| {
        let header = parts(found).and_then(|(_, text)| text.lines().next());
        header
            .and_then(|header| decode_header(found.name.as_ref(), header).ok())
            .ok_or(failure)
    })
}

/// Returns the checksum of an object, and the text after it.
fn parts(found: &Found) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(&found.bytes).ok()?;
    text.split_once('\n')
}

fn decode_header(name: &str, header: &str) -> Result<Header> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let unreadable = |error: serde_json::Error| {
        Failure::undecodable(name, &format!("has a header that cannot be read: {error}"))
    };
    // Reads the format first, because a header of another format may have other fields.
    let Format { format } = serde_json::from_str(header).map_err(unreadable)?;
    if format != FORMAT {
        return Err(Failure::other_format(name, format, FORMAT));
    }
    serde_json::from_str(header).map_err(unreadable)
}

/// A segment that was read.
pub(crate) struct Segment {
    pub(crate) header: Header,
    pub(crate) commands: Vec<Command<'static>>,
}

impl Segment {
    pub(crate) fn decode(found: &Found) -> Result<Self> {
        let (header, body) = decode(found)?;
        let lines = body.lines().map(|line| {
            serde_json::from_str(line).map_err(|error| {
                let problem = format!("contains a command that cannot be decoded: {error}");
                Failure::undecodable(found.name.as_ref(), &problem)
            })
        });
        let commands = lines.collect::<Result<_>>()?;
        Ok(Self { header, commands })
    }
}

fn checksum(text: &str) -> String {
    use std::fmt::Write;
    let mut hex = String::with_capacity(64 + 1 + text.len());
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
