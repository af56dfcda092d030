use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::load::{Entry, Loader};
use crate::origin::Origin;
use crate::problem::{ConfigError, Problem};
use crate::sections::{
    ClusterConfig, HttpConfig, NodeConfig, PollConfig, StoreConfig, WorkerConfig,
};

/// The key of the database's URL.
const URL: &str = "store.url";

/// A checked configuration, as [`Loader`](crate::Loader) returns it.
///
/// Load a configuration with [`Config::load`] or the loader, not with `Deserialize`, which checks
/// nothing and ignores unknown keys. A program that supplies values of its own must give them to
/// the loader: [`redacted`](Self::redacted) and similar methods do not show a field that was set
/// directly.
///
/// ```
/// use ratchet_config::Config;
///
/// let text = "[store]\nurl = 'sqlite://jobs.db'\n[worker]\nconcurrency = 8\n";
/// let config = Config::loader().text("ratchet.toml", text).load()?;
/// assert_eq!(config.worker.concurrency, Some(8));
/// assert_eq!(config.http.listen.port(), 8080); // the default
/// println!("{}", config.redacted());
/// # Ok::<(), ratchet_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Config {
    /// The database, and how the store uses it.
    pub store: StoreConfig,
    /// The identity of the node and its part in the cluster.
    pub node: NodeConfig,
    /// How nodes detect each other's death, and how a leader is elected.
    pub cluster: ClusterConfig,
    /// Which jobs the node runs, and how many at once.
    pub worker: WorkerConfig,
    /// How many permits each resource has.
    pub permits: BTreeMap<String, u32>,
    /// How often the node polls the database.
    pub poll: PollConfig,
    /// How `ratchet serve` serves over HTTP.
    pub http: HttpConfig,
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
    /// The keys that are set, with their values.
    #[serde(skip)]
    pub(crate) set: BTreeMap<String, Entry>,
}

impl Config {
    /// Reads a configuration file and the environment. The file is `path`, or the one that
    /// `RATCHET_CONFIG` names, or `ratchet.toml` in the current directory if that exists.
    ///
    /// # Errors
    /// [`ConfigError`] with every problem that was found.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let loader = Self::loader();
        match path {
            Some(path) => loader.file(path).load(),
            None => loader.load(),
        }
    }

    /// Returns a loader, for programs that add their own settings.
    pub fn loader() -> Loader {
        Loader::default()
    }

    /// Returns the path of the file that was read, if any.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the origin of the value of a key such as `cluster.ttl`.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        let set = self.set.get(key);
        set.map_or(Origin::Default, |entry| entry.origin.clone())
    }

    /// Returns the text of `ratchet.sample.toml`: all settings, commented out, with their defaults.
    #[must_use]
    pub fn sample() -> String {
        crate::sample::sample()
    }

    /// Returns the error for values that another component, such as a backend, refuses. Each item
    /// of `refused` is a key and the problem with its value.
    pub fn refused(&self, refused: impl IntoIterator<Item = (String, String)>) -> ConfigError {
        let problems = refused.into_iter().map(|(key, rule)| Problem {
            places: vec![self.place(&key)],
            rule,
        });
        ConfigError::new(self.file.clone(), problems.collect())
    }

    /// Returns the store's configuration once with the URL alone, and once for each other store
    /// setting, with the URL and that setting. Since a backend reports only its first problem,
    /// checking each of these finds all problems. Each configuration comes with the key of its
    /// setting; the one of the URL is first.
    #[must_use]
    pub fn store_alone(&self) -> Vec<(String, StoreConfig)> {
        let set = self.set.keys().filter(|key| key.starts_with("store."));
        let mut alone: Vec<(String, StoreConfig)> = set
            .map(|key| {
                let kept = self.set.iter().filter(|(of, _)| *of == key || *of == URL);
                let config = Self::from_entries(kept.map(|(_, entry)| entry));
                (key.clone(), config.store)
            })
            .collect();
        alone.sort_by_key(|(key, _)| key != URL);
        alone
    }

    /// Returns the configuration that these entries form.
    pub(crate) fn from_entries<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut root = toml::Table::new();
        for Entry { path, value, .. } in entries {
            let table = path[..path.len() - 1]
                .iter()
                .fold(&mut root, |table, part| {
                    let next = table.entry(part.as_str());
                    let next = next.or_insert_with(|| toml::Table::new().into());
                    next.as_table_mut().expect("a key is never a section")
                });
            table.insert(path[path.len() - 1].clone(), value.clone());
        }
        match root.try_into() {
            Ok(config) => config,
            Err(error) => unreachable!("every value was checked when it was read: {error}"),
        }
    }
}
