//! Shows the configuration in effect.

use std::fmt::Write;

use serde::Serialize;

use crate::backend::Backend;
use crate::config::Config;
use crate::problem::Place;
use crate::sample::{POOL, row, sections};
use crate::section::{ANY, Key};
use crate::value::DatabaseUrl;

/// A setting with the value that is in effect and the value's origin.
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
    /// Key of the setting, such as `cluster.ttl`.
    pub key: String,
    /// Value in the syntax of the file, with secrets hidden. `None` if the setting has no value and
    /// no default.
    pub value: Option<String>,
    /// Origin of the value: a line such as `ratchet.toml:12`, the name of a variable or argument,
    /// or `default`.
    pub origin: String,
}

impl Config {
    /// Returns every setting with the value in effect and its origin. Secrets are hidden. For a
    /// setting that only the program's builder sets, returns the default and not the builder's
    /// value.
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

    /// Returns the configuration in effect as TOML, with the origin of each value in a comment.
    /// Secrets are hidden, and settings that have no value are omitted.
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

    /// Returns the name of a key within its section. For the section `[permits]`, returns the names
    /// of all configured resources.
    fn names_of<'a>(&'a self, key: &'a Key) -> Vec<&'a str> {
        match key.name {
            ANY => self.permits.keys().map(String::as_str).collect(),
            name => vec![name],
        }
    }

    /// Returns the sections to show, with their paths and keys. Omits the section of a backend if
    /// the URL does not use this backend and the section sets nothing.
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

/// Returns a name in the syntax of a TOML key, with quotes if they are necessary.
fn quoted(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => toml::Value::from(name).to_string(),
    }
}
