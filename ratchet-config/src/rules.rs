//! What is checked once everything is read.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ratchet_core::{BuildError, MemoryStore, Ratchet, SettingProblem};

use crate::config::Config;
use crate::load::Reading;
use crate::problem::{ConfigError, Problem};
use crate::secret::Secret;
use crate::value::DatabaseUrl;

pub(crate) fn check(reading: &mut Reading) {
    files(reading);
    backends(reading);
    engine(reading);
}

/// Settings that may stand in a file of their own: read, and refused if they are there twice.
fn files(reading: &mut Reading) {
    let config = &reading.config;
    let pairs = [
        (
            "store.url",
            "store.url_file",
            config.store.url.is_some(),
            config.store.url_file.clone(),
        ),
        (
            "store.postgres.direct_url",
            "store.postgres.direct_url_file",
            config.store.postgres.direct_url.is_some(),
            config.store.postgres.direct_url_file.clone(),
        ),
        (
            "http.token",
            "http.token_file",
            config.http.token.is_some(),
            config.http.token_file.clone(),
        ),
    ];
    for (key, file_key, set, path) in pairs {
        let Some(path) = path else { continue };
        if set {
            twice(reading, [key, file_key]);
            continue;
        }
        match first_line(&path) {
            Ok(text) => {
                let (store, http) = (&mut reading.config.store, &mut reading.config.http);
                match key {
                    "store.url" => store.url = Some(DatabaseUrl::new(text)),
                    "http.token" => http.token = Some(Secret::new(text)),
                    _ => store.postgres.direct_url = Some(DatabaseUrl::new(text)),
                }
                let origin = reading.config.origin(file_key);
                reading.config.origins.insert(key.to_owned(), origin);
            }
            Err(rule) => {
                let places = vec![reading.place(file_key)];
                reading.problems.push(Problem { places, rule });
            }
        }
    }
    let node = &reading.config.node;
    if node.capabilities.is_some() && node.capabilities_file.is_some() {
        twice(reading, ["node.capabilities", "node.capabilities_file"]);
    }
}

fn twice(reading: &mut Reading, keys: [&str; 2]) {
    let places = keys.iter().map(|key| reading.place(key)).collect();
    let rule = "are both set; one of them is meant".to_owned();
    reading.problems.push(Problem { places, rule });
}

/// The first line of a file, without what is not visible at its ends.
fn first_line(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    match text.lines().next().map(str::trim) {
        None | Some("") => Err("has an empty first line".to_owned()),
        Some(line) => Ok(line.to_owned()),
    }
}

/// The sections of the backends, with the schemes whose they are.
const BACKENDS: [(&str, &[&str]); 4] = [
    ("store.sqlite", &["sqlite"]),
    ("store.postgres", &["postgres", "postgresql"]),
    ("store.sqlserver", &["sqlserver", "mssql"]),
    ("store.mongo", &["mongodb", "mongodb+srv"]),
];

/// The section of the backend of a scheme.
pub(crate) fn section_of(scheme: &str) -> Option<&'static str> {
    let own = BACKENDS
        .iter()
        .find(|(_, schemes)| schemes.contains(&scheme));
    own.map(|(section, _)| *section)
}

/// What backends without a server do not have.
const OF_SERVERS: [&str; 2] = ["store.max_connections", "store.application_name"];

/// Settings of another backend than the URL's are refused.
fn backends(reading: &mut Reading) {
    let scheme = reading.config.store.url.as_ref().map(DatabaseUrl::scheme);
    let Some(scheme) = scheme else { return };
    let scheme = scheme.unwrap_or_default();
    let Some(local) = (match scheme.as_str() {
        "memory" | "sqlite" => Some(true),
        other => BACKENDS
            .iter()
            .any(|(_, schemes)| schemes.contains(&other))
            .then_some(false),
    }) else {
        let places = vec![reading.place("store.url")];
        let known: Vec<&str> = BACKENDS
            .iter()
            .flat_map(|(_, schemes)| *schemes)
            .copied()
            .collect();
        let rule = format!(
            "no backend is known for it; the schemes are {}, memory",
            known.join(", ")
        );
        return reading.problems.push(Problem { places, rule });
    };
    let set: Vec<String> = reading.config.origins.keys().cloned().collect();
    for key in set {
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        let other = BACKENDS
            .iter()
            .find(|(of, schemes)| *of == section && !schemes.contains(&scheme.as_str()));
        let rule = match other {
            Some((_, schemes)) => format!("is for {} URLs only", schemes[0]),
            None if local && OF_SERVERS.contains(&key.as_str()) => {
                format!("is for databases with a server; `{scheme}:` has none")
            }
            None => continue,
        };
        let places = vec![reading.place(&key), reading.place("store.url")];
        reading.problems.push(Problem { places, rule });
    }
}

/// What the engine itself says of its settings.
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
    /// What a node was not built for, with the keys, their values and where those came from, as far
    /// as it has to do with settings that can be configured. What the program itself has set on its
    /// builder shows as the default.
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
