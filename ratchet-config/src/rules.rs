//! The checks that run once all values have been read.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ratchet_core::{BuildError, MemoryStore, Ratchet, SettingProblem};

use crate::backend::{BACKENDS, Backend};
use crate::config::Config;
use crate::load::{Entry, Reading};
use crate::problem::{ConfigError, Problem};
use crate::redact::scheme;
use crate::secret::Secret;
use crate::value::Raw;

pub(crate) fn check(reading: &mut Reading) {
    let [url, others @ ..] = FILES;
    file(reading, url);
    elsewhere(reading);
    others.into_iter().for_each(|key| file(reading, key));
    backends(reading);
    reading.build();
    http(reading);
    engine(reading);
}

/// Keys whose value is the path of a file. The first line of the file is the value of another key,
/// whose name lacks `_file`. For [`CAPABILITIES`], the whole file is the value.
const FILES: [&str; 4] = [
    "store.url_file",
    "store.postgres.direct_url_file",
    "http.token_file",
    CAPABILITIES,
];

/// The only key in [`FILES`] whose file this crate does not read. The engine reads it.
const CAPABILITIES: &str = "node.capabilities_file";

/// Chooses between a `_file` key and the key without `_file`. The key whose origin has the higher
/// rank stays, and the other one is removed. If both have the same rank, records a problem.
///
/// If the `_file` key stays, reads the value from its file. Does not read the file of
/// [`CAPABILITIES`].
fn file(reading: &mut Reading, file: &str) {
    let key = file.trim_end_matches("_file");
    let Some(entry) = reading.config.set.get(file).cloned() else {
        return;
    };
    let value = reading.config.origin(key).rank();
    if value == entry.origin.rank() {
        let rule = "are both set; set only one of them".to_owned();
        return reading.refuse_at(&[key, file], rule);
    }
    if value > entry.origin.rank() {
        reading.config.set.remove(file);
        return;
    }
    reading.config.set.remove(key);
    if file == CAPABILITIES {
        return;
    }
    match first_line(Path::new(entry.value.as_str().unwrap_or_default())) {
        Ok(line) => {
            let path = key.split('.').map(str::to_owned).collect();
            reading.take(Entry::new(path, Raw::Text(line), entry.origin));
        }
        Err(rule) => reading.refuse_at(&[file], rule),
    }
}

/// Returns the first line of a file without leading and trailing white space. Fails if that line is
/// empty.
fn first_line(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    match text.lines().next().map(str::trim) {
        None | Some("") => Err("has an empty first line".to_owned()),
        Some(line) => Ok(line.to_owned()),
    }
}

/// Keys that can direct the store to another database than the one in the URL.
const PLACES: [&str; 3] = [
    "store.postgres.direct_url",
    "store.postgres.direct_url_file",
    "store.mongo.database",
];

/// Removes each setting in [`PLACES`] whose origin has a lower rank than the URL's origin. Such a
/// setting was made for a URL that has been replaced. If it stayed, migrations could run in the
/// wrong database.
fn elsewhere(reading: &mut Reading) {
    let url = reading.config.origin("store.url").rank();
    for key in PLACES {
        if reading.config.origin(key).rank() < url {
            reading.config.set.remove(key);
        }
    }
}

/// Keys that apply only to backends with a database server.
const OF_SERVERS: [&str; 2] = ["store.max_connections", "store.application_name"];

/// Records a problem for each setting that does not apply to the backend of the URL. If the
/// setting's origin has a lower rank than the URL's origin, removes the setting instead.
fn backends(reading: &mut Reading) {
    let Some(Entry { value, origin, .. }) = reading.config.set.get("store.url").cloned() else {
        return;
    };
    let scheme = value.as_str().and_then(scheme).unwrap_or_default();
    let Some(backend) = Backend::of(scheme) else {
        let known = Backend::known_schemes();
        let rule = format!("no backend has the scheme of this URL; the known schemes are {known}");
        return reading.refuse_at(&["store.url"], rule);
    };
    let set: Vec<String> = reading.config.set.keys().cloned().collect();
    for key in set {
        let section = key.rsplit_once('.').map(|(section, _)| section);
        let owner = BACKENDS
            .iter()
            .find(|of| of.section.is_some() && of.section == section);
        let rule = match owner {
            Some(owner) if owner != backend => format!("applies to {} URLs only", owner.schemes[0]),
            None if !backend.server && OF_SERVERS.contains(&key.as_str()) => {
                format!("applies only to databases with a server; `{scheme}:` has none")
            }
            _ => continue,
        };
        // The setting was made for a URL that has been replaced by a URL with a higher rank. It
        // does not apply to the new URL's backend.
        if reading.config.origin(&key).rank() < origin.rank() {
            reading.config.set.remove(&key);
        } else {
            reading.refuse_at(&[&key, "store.url"], rule);
        }
    }
}

/// Records a problem for each invalid setting of the HTTP server.
fn http(reading: &mut Reading) {
    let http = &reading.config.http;
    let zero = [
        ("max_body", http.max_body == Some(0)),
        ("max_page", http.max_page == Some(0)),
        ("max_clients", http.max_clients == Some(0)),
        ("max_connections", http.max_connections == Some(0)),
        (
            "max_connections_per_peer",
            http.max_connections_per_peer == Some(0),
        ),
        ("writes_per_second", http.writes_per_second == Some(0)),
        (
            "request_timeout",
            http.request_timeout.is_some_and(|time| time.is_zero()),
        ),
    ];
    let mut refused: Vec<(&str, String)> = (zero.iter())
        .filter(|(_, zero)| *zero)
        .map(|(key, _)| (*key, "must not be zero".to_owned()))
        .collect();
    let most = ratchet_core::limits::MAX_BATCH;
    let page = http.max_page.and_then(|page| usize::try_from(page).ok());
    if page.is_some_and(|page| page > most) {
        let rule = format!("is too large: a store reads at most {most} at a time");
        refused.push(("max_page", rule));
    }
    if let Some(token) = http.token.as_ref().map(Secret::expose) {
        if token.is_empty() {
            refused.push(("token", "is empty".to_owned()));
        } else if token.trim() != token {
            let rule =
                "begins or ends with white space, which an HTTP header cannot carry".to_owned();
            refused.push(("token", rule));
        }
    }
    for host in http.hosts.iter().flatten() {
        if let Err(rule) = ratchet_core::host::check(host) {
            refused.push(("hosts", rule));
        }
    }
    for proxy in http.proxies.iter().flatten() {
        if proxy.parse::<IpAddr>().is_err() {
            let rule = format!("has {proxy:?}, which is not an IP address");
            refused.push(("proxies", rule));
        }
    }
    for (key, rule) in refused {
        reading.refuse_at(&[&format!("http.{key}")], rule);
    }
}

/// Records the problems that the engine finds in the settings.
fn engine(reading: &mut Reading) {
    let builder = Ratchet::builder(Arc::new(MemoryStore::new()));
    let builder = reading.config.apply(builder);
    for refused in builder.check_settings() {
        let keys = reading.config.keys_of(&refused);
        if !keys.iter().any(|key| reading.unread.contains(key)) {
            reading.problems.push(reading.config.explained(&refused));
        }
    }
}

impl Config {
    /// Converts an error of the engine's builder to a configuration error. Each problem then shows
    /// the keys, values and origins of its settings.
    ///
    /// A setting without a key in the configuration is not shown. If the program set a value on its
    /// builder itself, the problem shows the default instead of that value.
    #[must_use]
    pub fn explain(&self, error: &BuildError) -> ConfigError {
        let refused = error.refused().iter();
        let problems = refused.map(|problem| self.explained(problem)).collect();
        ConfigError::new(self.file.clone(), problems)
    }

    fn explained(&self, refused: &SettingProblem) -> Problem {
        let keys = self.keys_of(refused);
        Problem {
            places: keys.iter().map(|key| self.place(key)).collect(),
            rule: refused.to_string(),
        }
    }
}
