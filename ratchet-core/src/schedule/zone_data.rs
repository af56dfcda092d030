//! The time-zone data of a process, as nodes report it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The time-zone data of a process: its source and its version.
///
/// Ratchet reads the operating system's copy of the IANA database, in the directory that the
/// environment variable `TZDIR` names, or else in `/usr/share/zoneinfo`, `/usr/share/lib/zoneinfo`
/// or `/etc/zoneinfo`. If `TZDIR` is set, no other directory is read. If there is no such data, or
/// a name is missing in it, Ratchet uses the copy that is compiled in. Reading the data needs the
/// Cargo feature `cron`.
///
/// ```
/// use ratchet::ZoneData;
///
/// # #[cfg(feature = "cron")]
/// println!("time zones: {}", ZoneData::in_use());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ZoneData {
    /// The directory of the data, or [`BUILT_IN`](Self::BUILT_IN).
    pub source: String,
    /// The release of the IANA database, such as `2026f`. `None` if the directory has neither of
    /// the files that contain it, `tzdata.zi` and `+VERSION`.
    pub version: Option<String>,
}

impl ZoneData {
    /// The [`source`](Self::source) of the compiled-in data.
    pub const BUILT_IN: &'static str = "built-in";

    /// Creates a description from a source and a version.
    #[must_use]
    pub fn new(source: impl Into<String>, version: Option<String>) -> Self {
        let source = source.into();
        Self { source, version }
    }
}

impl fmt::Display for ZoneData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_deref().unwrap_or("unknown version");
        write!(f, "{version} ({})", self.source)
    }
}
