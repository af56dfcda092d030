//! The configuration in effect, for people.

use std::fmt::Write;

use serde::Serialize;

use crate::backend::Backend;
use crate::config::Config;
use crate::problem::Place;
use crate::sample::{POOL, row, sections};
use crate::section::{ANY, Key};
use crate::value::DatabaseUrl;

/// One setting in effect.
///
/// ```
/// use ratchet_config::Config;
///
/// let config = Config::loader().text("ratchet.toml", "[worker]\nconcurrency = 8\n").load()?;
/// for setting in config.settings() {
///     println!("{} = {:?} ({})", setting.key, setting.value, setting.origin);
/// }
/// # let settings = config.settings();
/// # let set = settings.iter().find(|setting| setting.key == "worker.concurrency");
/// # assert_eq!(set.map(|setting| &*setting.origin), Some("ratchet.toml:2"));
/// # Ok::<(), ratchet_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Setting {
    /// The key, as `cluster.ttl`.
    pub key: String,
    /// The value as it is written in a file, with secrets hidden; `None` if there is neither a
    /// value nor a default.
    pub value: Option<String>,
    /// Its origin: `ratchet.toml:12`, a variable, an argument, or `default`.
    pub origin: String,
}

impl Config {
    /// Every setting with its value in effect and where it came from, secrets hidden. Where a
    /// program has set something on its builder, that is in effect in place of a default.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        let sections = self.sections_of_interest().into_iter();
        let places = sections.flat_map(|(path, keys)| {
            let names = keys.iter().flat_map(|key| self.names_of(key));
            names.map(move |name| self.place(&format!("{path}.{name}")))
        });
        let settings = places.map(|Place { key, value, origin }| Setting {
            key,
            value,
            origin: origin.to_string(),
        });
        settings.collect()
    }

    /// The configuration in effect as TOML, secrets hidden, with where each value came from; what
    /// is unset is left out.
    #[must_use]
    pub fn redacted(&self) -> String {
        let mut text = String::new();
        for (path, keys) in self.sections_of_interest() {
            let names = keys.iter().flat_map(|key| self.names_of(key));
            let set = names.filter_map(|name| {
                let place = self.place(&format!("{path}.{name}"));
                let value = place.value?;
                Some(format!("{} = {value}  # {}\n", quoted(name), place.origin))
            });
            let set: String = set.collect();
            if !set.is_empty() {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = write!(text, "{gap}[{path}]\n{set}");
            }
        }
        text
    }

    /// The names that a key has in its section.
    fn names_of<'a>(&'a self, key: &'a Key) -> Vec<&'a str> {
        match key.name {
            ANY => self.permits.keys().map(String::as_str).collect(),
            name => vec![name],
        }
    }

    /// All sections but those of backends that are not used, with their paths.
    fn sections_of_interest(&self) -> Vec<(String, &'static [Key])> {
        let scheme = self.store.url.as_ref().and_then(DatabaseUrl::scheme);
        let used = scheme.and_then(Backend::of).and_then(|it| it.section);
        let is_set = |path: &str| {
            let mut set = self.set.values();
            set.any(|entry| entry.path.len() == 3 && entry.path[..2].join(".") == path)
        };
        let pools = self.worker.pools.keys();
        let pools: Vec<String> = pools.map(|name| format!("worker.pools.{name}")).collect();
        let sections = sections().flat_map(|(path, _, keys)| {
            let paths = match path {
                POOL => pools.clone(),
                path => vec![path.to_owned()],
            };
            paths.into_iter().map(move |path| (path, keys))
        });
        let sections = sections
            .filter(|(path, _)| !path.starts_with("store.") || used == Some(path) || is_set(path));
        sections.collect()
    }

    pub(crate) fn place(&self, key: &str) -> Place {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        let row = row(&path);
        let value = match self.set.get(key) {
            Some(entry) => Some(match row {
                Some(row) => row.kind.show(&entry.value),
                None => entry.value.to_string(),
            }),
            None => row.and_then(|row| row.default.map(str::to_owned)),
        };
        Place {
            key: key.to_owned(),
            value,
            origin: self.origin(key),
        }
    }
}

/// A name as a key of a file.
fn quoted(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => toml::Value::from(name).to_string(),
    }
}
