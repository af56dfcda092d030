//! The configuration in effect, for people.

use std::fmt::Write;

use serde::Serialize;

use crate::backend::Backend;
use crate::config::Config;
use crate::problem::Place;
use crate::section::Section;
use crate::value::DatabaseUrl;

/// One setting in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Setting {
    /// The key, as `cluster.ttl`.
    pub key: String,
    /// The value as it would stand in a file, with secrets hidden; none if there is neither a value
    /// nor a default.
    pub value: Option<String>,
    /// Where it came from: `ratchet.toml:12`, a variable, an argument, or `default`.
    pub origin: String,
}

impl Config {
    /// Every setting with its value in effect and where it came from, secrets hidden. Where a program
    /// has set something on its builder, that is in effect in place of a default.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        let sections = self.sections_of_interest();
        let rows = sections.iter().flat_map(|(path, section)| {
            let keys = section.keys().iter();
            keys.map(move |key| {
                let default = || key.default.map(str::to_owned);
                let path = format!("{path}.{}", key.name);
                Setting {
                    value: section.show(key.name).or_else(default),
                    origin: self.origin(&path).to_string(),
                    key: path,
                }
            })
        });
        rows.collect()
    }

    /// The configuration in effect as TOML, secrets hidden, with where each value came from; what is
    /// unset is left out.
    #[must_use]
    pub fn redacted(&self) -> String {
        let mut text = String::new();
        for (path, section) in self.sections_of_interest() {
            let set = section.keys().iter().filter_map(|key| {
                let default = || key.default.map(str::to_owned);
                let value = section.show(key.name).or_else(default)?;
                let origin = self.origin(&format!("{path}.{}", key.name));
                Some(format!("{} = {value}  # {origin}\n", key.name))
            });
            let set: String = set.collect();
            if !set.is_empty() {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = write!(text, "{gap}[{path}]\n{set}");
            }
        }
        text
    }

    /// All sections but those of backends that are not used.
    fn sections_of_interest(&self) -> Vec<(String, &dyn Section)> {
        let scheme = self.store.url.as_ref().and_then(DatabaseUrl::scheme);
        let used = scheme.and_then(Backend::of).and_then(|it| it.section);
        let mut sections = self.sections();
        sections.retain(|(path, _)| {
            let of = |key: &String| key.rsplit_once('.').is_some_and(|(of, _)| of == path);
            !path.starts_with("store.") || used == Some(path) || self.origins.keys().any(of)
        });
        sections
    }

    pub(crate) fn place(&self, key: &str) -> Place {
        let found = self.sections().into_iter().find_map(|(path, section)| {
            let name = key.strip_prefix(&path)?.strip_prefix('.')?;
            let row = section.keys().iter().find(|row| row.name == name)?;
            let default = || row.default.map(str::to_owned);
            Some(section.show(name).or_else(default))
        });
        Place {
            key: key.to_owned(),
            value: found.flatten(),
            origin: self.origin(key),
        }
    }
}
