use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use chrono::SecondsFormat;
use ratchet_core::time::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// A point in time, serialized as RFC 3339 in UTC with milliseconds.
///
/// ```
/// use ratchet_http::view::At;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let at = At("2026-01-15T13:00:00+01:00".parse()?);
/// assert_eq!(at.to_string(), "2026-01-15T12:00:00.000Z");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub Timestamp);

impl From<Timestamp> for At {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for At {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "At".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// Returns a duration in whole milliseconds, rounded up.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    ratchet_core::time::duration_millis(duration).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratchet_core::time::from_millis;

    #[test]
    fn times_are_utc_with_milliseconds() {
        let text = |millis| serde_json::to_string(&At(from_millis(millis))).unwrap();
        assert_eq!(text(0), r#""1970-01-01T00:00:00.000Z""#);
        assert_eq!(text(1_763_716_000_120), r#""2025-11-21T09:06:40.120Z""#);
    }
}
