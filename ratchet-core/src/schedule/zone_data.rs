//! The time-zone data of a process, as nodes report it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The time-zone data of a process: its source and its version.
///
/// Ratchet reads the operating system's copy of the IANA database. If the environment variable
/// `TZDIR` is set, Ratchet reads only the directory that the variable names. Otherwise, Ratchet
/// reads the first of `/usr/share/zoneinfo`, `/usr/share/lib/zoneinfo` and `/etc/zoneinfo` that has
/// such data. If there is no such data, or if a zone is missing in the data, Ratchet uses its
/// compiled-in copy. Reading the data needs the Cargo feature `cron`.
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
    /// The release of the IANA database, such as `2026f`. `None` if the directory contains no
    /// release, in neither of the files `tzdata.zi` and `+VERSION`.
    pub version: Option<String>,
}

impl ZoneData {
    /// The value of [`source`](Self::source) for the compiled-in data.
    pub const BUILT_IN: &'static str = "built-in";

    /// Creates a description of time-zone data from a source and a version.
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
