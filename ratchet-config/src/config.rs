use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::load::{Entry, Loader};
use crate::origin::Origin;
use crate::problem::{ConfigError, Problem};
use crate::sections::{
    ClusterConfig, HttpConfig, NodeConfig, PollConfig, StoreConfig, WorkerConfig,
};

/// Key of the setting that holds the database's URL.
const URL: &str = "store.url";

/// A checked configuration, as [`Loader`](crate::Loader) returns it.
///
/// Load a configuration with [`Config::load`] or with a loader. Do not use `Deserialize`: it checks
/// no values and ignores unknown keys. To set a value in the program, give it to the loader. If the
/// program assigns a field directly, [`redacted`](Self::redacted) and similar methods do not show
/// the new value.
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
    /// The database, and how Ratchet connects to it.
    pub store: StoreConfig,
    /// The identity of the node and its part in the cluster.
    pub node: NodeConfig,
    /// How nodes detect that another node is dead, and how they elect a leader.
    pub cluster: ClusterConfig,
    /// Which jobs the node runs, and how many of them at the same time.
    pub worker: WorkerConfig,
    /// Number of permits for each resource, by the resource's name.
    pub permits: BTreeMap<String, u32>,
    /// How often the node polls the database.
    pub poll: PollConfig,
    /// Settings of `ratchet serve`, the HTTP server.
    pub http: HttpConfig,
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
    /// All values that the file, the environment or the program sets, by key.
    #[serde(skip)]
    pub(crate) set: BTreeMap<String, Entry>,
}

impl Config {
    /// Reads a configuration file and the environment variables.
    ///
    /// If `path` is given, reads that file. Otherwise reads the file that the variable
    /// `RATCHET_CONFIG` names. If neither is given, reads `ratchet.toml` in the current directory,
    /// if that file exists.
    ///
    /// # Errors
    /// Fails with a [`ConfigError`] that lists every problem.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let loader = Self::loader();
        match path {
            Some(path) => loader.file(path).load(),
            None => loader.load(),
        }
    }

    /// Creates a loader. Use a loader if the program adds its own settings.
    pub fn loader() -> Loader {
        Loader::default()
    }

    /// Returns the path of the configuration file, or `None` if no file was read.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the origin of a key's value. An example of a key is `cluster.ttl`.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        let set = self.set.get(key);
        set.map_or(Origin::Default, |entry| entry.origin.clone())
    }

    /// Returns the text of `ratchet.sample.toml`. In this text, each setting is a comment that
    /// shows its default or an example.
    #[must_use]
    pub fn sample() -> String {
        crate::sample::sample()
    }

    /// Creates the error for values that another component, such as a backend, refuses. Each item
    /// of `refused` contains a key and a description of the problem with its value.
    pub fn refused(&self, refused: impl IntoIterator<Item = (String, String)>) -> ConfigError {
        let problems = refused.into_iter().map(|(key, rule)| Problem {
            places: vec![self.place(&key)],
            rule,
        });
        ConfigError::new(self.file.clone(), problems.collect())
    }

    /// Returns one store configuration for each store setting that is set, together with the key of
    /// the setting.
    ///
    /// Each configuration contains only the URL and this one setting. The configuration for the URL
    /// comes first and contains only the URL. A backend reports only its first problem, so a caller
    /// that checks all these configurations finds every problem.
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

    /// Creates the configuration from these entries.
    pub(crate) fn from_entries<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut root = toml::Table::new();
        for Entry { path, value, .. } in entries {
            let table = path[..path.len() - 1]
                .iter()
                .fold(&mut root, |table, part| {
                    let next = table.entry(part.as_str());
                    let next = next.or_insert_with(|| toml::Table::new().into());
                    next.as_table_mut()
                        .expect("a key should never have the name of a section")
                });
            table.insert(path[path.len() - 1].clone(), value.clone());
        }
        match root.try_into() {
            Ok(config) => config,
            Err(error) => unreachable!(
                "every value is checked when it is read, but this one is \
                 refused: {error}"
            ),
        }
    }
}
