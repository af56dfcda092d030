//! From the file, the environment and the program to a configuration.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::SECTIONS;
use crate::config::Config;
use crate::file::{self, Entry, unseen};
use crate::origin::Origin;
use crate::problem::{ConfigError, Place, Problem};
use crate::rules;
use crate::sample::keys;
use crate::section::{Key, variable};
use crate::value::Raw;
use crate::variables::{self, FILE_VARIABLE};

/// The file that is read if no other is named and it is there.
pub const FILE: &str = "ratchet.toml";

/// Reads a configuration; see [`Config::loader`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is read before load"]
pub struct Loader {
    file: Option<PathBuf>,
    text: Option<(PathBuf, String)>,
    variables: Option<Vec<(OsString, OsString)>>,
    arguments: Vec<Entry>,
}

impl Loader {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Reads this file, which must be there, whatever `RATCHET_CONFIG` says.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Takes this text for the file of this name, and reads none.
    pub fn text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        self.text = Some((name.into(), text.into()));
        self
    }

    /// Takes these variables instead of those of the process.
    pub fn variables<N: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables.into_iter();
        self.variables = Some(variables.map(|(n, v)| (n.into(), v.into())).collect());
        self
    }

    /// Sets a key, as `store.url`, whatever file and variables say. The value is written as in a
    /// variable; `by` is where it came from, for people: `--url`.
    pub fn set(mut self, key: &str, value: impl Into<String>, by: impl Into<String>) -> Self {
        self.arguments.push(Entry {
            path: key.split('.').map(str::to_owned).collect(),
            raw: Raw::Text(value.into()),
            origin: Origin::Argument(by.into()),
        });
        self
    }

    /// Reads everything and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong: files that cannot be read, keys that do not
    /// exist, values that cannot be read or that clash.
    pub fn load(self) -> Result<Config, ConfigError> {
        let variables = self
            .variables
            .unwrap_or_else(|| std::env::vars_os().collect());
        let mut reading = Reading::default();
        match self.text {
            Some((name, text)) => reading.take_file(&name, &text),
            None => reading.find_file(self.file, &variables),
        }
        let (entries, problems) = variables::read(variables);
        reading.problems.extend(problems);
        reading.take_all(entries);
        reading.take_all(self.arguments);
        reading.finish()
    }
}

/// What was read so far.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) config: Config,
    pub(crate) problems: Vec<Problem>,
    /// The keys whose values could not be read: what the engine says of them means nothing.
    pub(crate) unread: Vec<String>,
}

impl Reading {
    fn find_file(&mut self, named: Option<PathBuf>, variables: &[(OsString, OsString)]) {
        let variable = variables.iter().find(|(name, _)| name == FILE_VARIABLE);
        let named = named.map(|path| (path, None)).or_else(|| {
            let (_, path) = variable?;
            Some((PathBuf::from(path), Some(FILE_VARIABLE)))
        });
        let (path, by) = named.clone().unwrap_or((PathBuf::from(FILE), None));
        match fs::read_to_string(&path) {
            Ok(text) => self.take_file(&path, &text),
            Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => {}
            Err(error) => {
                let by = by.map_or(String::new(), |name| format!(" ({name})"));
                self.config.file = Some(path.clone());
                self.problems.push(Problem {
                    places: Vec::new(),
                    rule: format!("{}{by} cannot be read: {error}", path.display()),
                });
            }
        }
    }

    fn take_file(&mut self, path: &Path, text: &str) {
        self.config.file = Some(path.to_owned());
        let (entries, problems) = file::read(path, text);
        self.problems.extend(problems);
        self.take_all(entries);
    }

    fn take_all(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.take(entry);
        }
    }

    fn take(&mut self, entry: Entry) {
        let Entry { path, raw, origin } = entry;
        let path = self.known_pool(path);
        let key = path.join(".");
        let known = |section: &mut Config| section.section_mut(&path).is_some();
        if raw == Raw::Other("a table") && known(&mut self.config) {
            return;
        }
        if raw == Raw::Broken {
            return self.unread.push(key);
        }
        let Some((name, above)) = path.split_last() else {
            return;
        };
        let section = self.config.section_mut(above);
        let Some(section) = section else {
            return self.refuse_unknown(key, origin);
        };
        let secret = section.keys().iter().find(|key| key.name == name);
        let secret = secret.is_some_and(|key| key.secret);
        match section.set(name, &raw) {
            None => self.refuse_unknown(key, origin),
            Some(Ok(())) => {
                self.config.origins.insert(key, origin);
            }
            Some(Err(rule)) => {
                self.unread.push(key.clone());
                self.problems.push(Problem {
                    places: vec![Place {
                        key,
                        value: (!secret).then(|| raw.show()),
                        origin,
                    }],
                    rule,
                });
            }
        }
    }

    /// With the name that a pool has in the file, since variables have no small letters and few
    /// signs.
    fn known_pool(&self, mut path: Vec<String>) -> Vec<String> {
        let plain = |name: &str| {
            let lower = name.to_ascii_lowercase();
            lower.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
        };
        if let [worker, pools, name, _] = &mut path[..]
            && worker == "worker"
            && pools == "pools"
            && let pools = &self.config.worker.pools
            && !pools.contains_key(name)
            && let Some(known) = pools.keys().find(|known| plain(known) == plain(name))
        {
            known.clone_into(name);
        }
        path
    }

    /// A key that does not exist. Its value is shown to nobody: it may be a password under a
    /// misspelt name.
    fn refuse_unknown(&mut self, key: String, origin: Origin) {
        let near = nearest(&key);
        let written = |path: &str| match origin {
            Origin::Variable(_) => variable(path),
            _ => path.to_owned(),
        };
        let what = match &origin {
            Origin::Variable(_) => "variable",
            _ => "key",
        };
        let rule = match near {
            Some(near) => format!("is no known {what}; is `{}` meant?", written(&near)),
            None => format!(
                "is no known {what}; the sections are {}",
                SECTIONS.join(", ")
            ),
        };
        self.problems.push(Problem {
            places: vec![unseen(key, origin)],
            rule,
        });
    }

    fn finish(mut self) -> Result<Config, ConfigError> {
        rules::check(&mut self);
        match self.problems.is_empty() {
            true => Ok(self.config),
            false => Err(ConfigError::new(self.config.file, self.problems)),
        }
    }

    /// The value of a key, with where it came from, as it may be shown.
    pub(crate) fn place(&self, key: &str) -> Place {
        self.config.place(key)
    }
}

/// The key or the section that is most like this one, if one is like it.
fn nearest(key: &str) -> Option<String> {
    const LIKE: f64 = 0.8;
    let known = keys().map(Key::path);
    let rated = known.map(|known| (strsim::jaro_winkler(key, &known), known));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= LIKE)
        .map(|(_, known)| known)
}
