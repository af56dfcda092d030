//! Combines the file, the environment and the program's values into a configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::SECTIONS;
use crate::config::Config;
use crate::file;
use crate::origin::Origin;
use crate::problem::{ConfigError, Place, Problem};
use crate::rules;
use crate::sample::{is_section, keys, row};
use crate::section::{Key, variable};
use crate::value::Raw;
use crate::variables::{self, FILE_VARIABLE};

/// Path of the configuration file that [`Loader::load`] reads if no other file is named. It is no
/// error if this file does not exist.
pub const FILE: &str = "ratchet.toml";

/// A value with the path of its key, such as `["cluster", "ttl"]`. `T` is [`Raw`] before the value
/// is converted, and a TOML value afterwards.
#[derive(Clone)]
pub(crate) struct Entry<T = toml::Value> {
    pub(crate) path: Vec<String>,
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Entry<T> {
    pub(crate) const fn new(path: Vec<String>, value: T, origin: Origin) -> Self {
        Self {
            path,
            value,
            origin,
        }
    }
}

/// Prints the key and the origin. Does not print the value, because it may be secret.
impl<T> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.join("."), self.origin)
    }
}

/// Loads a configuration from a file, environment variables and values of the program.
///
/// ```
/// use ratchet_config::Config;
///
/// let config = Config::loader()
///     .text("ratchet.toml", "[store]\nurl = 'sqlite://jobs.db'\n")
///     .set("store.url", "memory:", "--url")
///     .load()?;
/// assert_eq!(config.origin("store.url").to_string(), "--url");
/// # Ok::<(), ratchet_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "the loader reads no settings before `load` is called"]
pub struct Loader {
    file: Option<PathBuf>,
    text: Option<(PathBuf, String)>,
    variables: Option<Vec<(OsString, OsString)>>,
    arguments: Vec<Entry<Raw>>,
}

impl Loader {
    /// Sets the path of the configuration file. The file must exist. `RATCHET_CONFIG` is then
    /// ignored.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Sets the text of the configuration, so that no file is read. Error messages show `name` as
    /// the name of the file.
    pub fn text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        self.text = Some((name.into(), text.into()));
        self
    }

    /// Sets the environment variables to read, instead of the variables of the process.
    pub fn variables<N: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables.into_iter();
        self.variables = Some(variables.map(|(n, v)| (n.into(), v.into())).collect());
        self
    }

    /// Sets the value of a key such as `store.url`. The value takes precedence over the file and
    /// the environment variables, and has the same format as in a variable. `by` is the origin that
    /// messages show for the value, such as `--url`.
    pub fn set(mut self, key: &str, value: impl Into<String>, by: impl Into<String>) -> Self {
        let path = key.split('.').map(str::to_owned).collect();
        let value = Raw::Text(value.into());
        let by = Origin::Argument(by.into());
        self.arguments.push(Entry::new(path, value, by));
        self
    }

    /// Reads all values and checks them.
    ///
    /// # Errors
    /// Fails with a [`ConfigError`] that lists every problem: files that cannot be read, unknown
    /// keys, and values that are invalid or contradict each other.
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
        for entry in entries.into_iter().chain(self.arguments) {
            reading.take(entry);
        }
        rules::check(&mut reading);
        match reading.problems.is_empty() {
            true => Ok(reading.config),
            false => Err(ConfigError::new(reading.config.file, reading.problems)),
        }
    }
}

/// The values and problems that the loader has found so far.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) config: Config,
    pub(crate) problems: Vec<Problem>,
    /// Keys whose values could not be read. The engine's problems with these keys are not reported.
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
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {}
            Err(error) => {
                let by = by.map_or(String::new(), |name| format!(" ({name})"));
                self.config.file = Some(path.clone());
                let rule = format!("{}{by} cannot be read: {error}", path.display());
                self.refuse(Vec::new(), rule);
            }
        }
    }

    fn take_file(&mut self, path: &Path, text: &str) {
        self.config.file = Some(path.to_owned());
        let (entries, problems) = file::read(path, text);
        self.problems.extend(problems);
        entries.into_iter().for_each(|entry| self.take(entry));
    }

    /// Stores the value of an entry if the key is known and the value is valid. Otherwise records a
    /// problem.
    pub(crate) fn take(&mut self, entry: Entry<Raw>) {
        let Entry {
            path,
            value,
            origin,
        } = entry;
        let path = self.with_known_name(path);
        let key = path.join(".");
        if value == Raw::Broken {
            return self.unread.push(key);
        }
        let is_section = value == Raw::TABLE && is_section(&path);
        // A pool exists as soon as it is named, even if all its settings are wrong.
        let of_section = path.len() - usize::from(!is_section);
        if of_section == 3 && path[..2] == ["worker", "pools"] {
            let pool = Entry::new(
                path[..3].to_vec(),
                toml::Table::new().into(),
                origin.clone(),
            );
            self.config.set.entry(path[..3].join(".")).or_insert(pool);
        }
        if is_section {
            return;
        }
        let Some(row) = row(&path) else {
            return self.refuse_unknown(key, origin);
        };
        match row.kind.read(&value) {
            Ok(value) => {
                let entry = Entry::new(path, value, origin);
                self.config.set.insert(key, entry);
            }
            Err(rule) => {
                self.unread.push(key.clone());
                let value = (!row.secret).then(|| value.show());
                self.refuse(vec![Place { key, value, origin }], rule);
            }
        }
    }

    /// Fills the fields of the configuration from the values that are set.
    pub(crate) fn build(&mut self) {
        let Config { file, set, .. } = std::mem::take(&mut self.config);
        let read = Config::from_entries(set.values());
        self.config = Config { file, set, ..read };
    }

    fn refuse(&mut self, places: Vec<Place>, rule: String) {
        self.problems.push(Problem { places, rule });
    }

    /// Records a problem with the values of these keys. `rule` is the broken rule.
    pub(crate) fn refuse_at(&mut self, keys: &[&str], rule: String) {
        let places = keys.iter().map(|key| self.config.place(key)).collect();
        self.refuse(places, rule);
    }

    /// Replaces the name of a pool or a resource in a variable's path by the spelling in the file.
    /// A variable cannot spell every such name exactly, because its own name has no lowercase
    /// letters and few special characters.
    fn with_known_name(&self, mut path: Vec<String>) -> Vec<String> {
        let plain = |name: &str| {
            let lower = name.to_ascii_lowercase();
            lower.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
        };
        let at = match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["worker", "pools", _, _] => 2,
            ["permits", _] => 1,
            _ => return path,
        };
        let known = self.config.set.values().map(|entry| &entry.path);
        let known = known.filter(|it| it.len() > at && it[..at] == path[..at]);
        let names: Vec<&String> = known.map(|it| &it[at]).collect();
        if !names.contains(&&path[at])
            && let Some(name) = names.iter().find(|name| plain(name) == plain(&path[at]))
        {
            path[at] = (*name).clone();
        }
        path
    }

    /// Records that a key is unknown. Never shows its value, because the key may be the misspelt
    /// name of a secret setting.
    fn refuse_unknown(&mut self, key: String, origin: Origin) {
        let near = nearest(&key);
        let (what, near) = match &origin {
            Origin::Variable(_) => ("variable", near.map(|near| variable(&near))),
            _ => ("key", near),
        };
        let remedy = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the sections are {}", SECTIONS.join(", ")),
        };
        let rule = format!("unknown {what}; {remedy}");
        self.refuse(vec![Place::unseen(key, origin)], rule);
    }
}

/// Returns the known key that is most similar to `key`, or `None` if no key is similar enough.
fn nearest(key: &str) -> Option<String> {
    const LIKE: f64 = 0.8;
    let known = keys().map(Key::path);
    let rated = known.map(|known| (strsim::jaro_winkler(key, &known), known));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= LIKE)
        .map(|(_, known)| known)
}
