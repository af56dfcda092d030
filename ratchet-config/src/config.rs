use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::load::{Entry, Loader};
use crate::origin::Origin;
use crate::problem::{ConfigError, Problem};
use crate::sections::{
    ClusterConfig, HttpConfig, NodeConfig, PollConfig, StoreConfig, WorkerConfig,
};

/// The key of the database.
const URL: &str = "store.url";

/// A checked configuration, as [`Loader`](crate::Loader) returns it.
///
/// `Deserialize` alone checks nothing and ignores unknown keys, and a field that the program sets
/// is not shown by the methods that show what is in effect: give the value to the loader.
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
    /// The database and how it is used.
    pub store: StoreConfig,
    /// The identity of the node and its part in the cluster.
    pub node: NodeConfig,
    /// How nodes know of each other, and who leads.
    pub cluster: ClusterConfig,
    /// Which jobs the node runs, and how many at once.
    pub worker: WorkerConfig,
    /// How many permits each resource has.
    pub permits: BTreeMap<String, u32>,
    /// How often the node looks at the database.
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
    /// Reads this file, or the one that `RATCHET_CONFIG` names, or `ratchet.toml` in the current
    /// directory if there is one, and the environment.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let loader = Self::loader();
        match path {
            Some(path) => loader.file(path).load(),
            None => loader.load(),
        }
    }

    /// Begins to read a configuration, for programs that have settings of their own to add.
    pub fn loader() -> Loader {
        Loader::default()
    }

    /// The file that was read, if there was one.
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

    /// Everything that can be set, commented, with the defaults; what `ratchet.sample.toml` has.
    #[must_use]
    pub fn sample() -> String {
        crate::sample::sample()
    }

    /// What another part refuses in this configuration, such as a backend its settings: keys with
    /// what is wrong.
    pub fn refused(&self, refused: impl IntoIterator<Item = (String, String)>) -> ConfigError {
        let problems = refused.into_iter().map(|(key, rule)| Problem {
            places: vec![self.place(&key)],
            rule,
        });
        ConfigError::new(self.file.clone(), problems.collect())
    }

    /// The URL alone, and with each setting of the store that is set: so that
    /// a backend, which tells the first problem, tells them all. By the keys of the settings, the
    /// URL first.
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

    /// The configuration that these entries make.
    pub(crate) fn from_entries<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut root = toml::Table::new();
        for Entry { path, value, .. } in entries {
            let table = path[..path.len() - 1]
                .iter()
                .fold(&mut root, |table, part| {
                    let next = table.entry(part.as_str());
                    let next = next.or_insert_with(|| toml::Table::new().into());
                    next.as_table_mut().expect("a key is no section")
                });
            table.insert(path[path.len() - 1].clone(), value.clone());
        }
        match root.try_into() {
            Ok(config) => config,
            Err(error) => unreachable!("every value was read before: {error}"),
        }
    }
}
