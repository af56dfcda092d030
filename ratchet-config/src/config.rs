use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::load::Loader;
use crate::origin::Origin;
use crate::problem::{ConfigError, Problem};
use crate::section::Section;
use crate::sections::{
    ClusterConfig, HttpConfig, NodeConfig, PollConfig, StoreConfig, WorkerConfig,
};

/// The key of the database.
const URL: &str = "store.url";

/// A checked configuration.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// Where the database is, and how it is used.
    pub store: StoreConfig,
    /// What the node is, and what it takes part in.
    pub node: NodeConfig,
    /// How nodes know of each other, and who leads.
    pub cluster: ClusterConfig,
    /// Which jobs the node runs, and how many at once.
    pub worker: WorkerConfig,
    /// How often the node looks at the database.
    pub poll: PollConfig,
    /// How `ratchet serve` serves over HTTP.
    pub http: HttpConfig,
    pub(crate) file: Option<PathBuf>,
    /// Where the keys came from that were set.
    pub(crate) origins: BTreeMap<String, Origin>,
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
        Loader::new()
    }

    /// The file that was read, if there was one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Where the value of a key such as `cluster.ttl` came from.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// Everything that can be set, commented, with the defaults; what `ratchet.sample.toml` has.
    #[must_use]
    pub fn sample() -> String {
        crate::sample::sample()
    }

    /// The section of a path, as `["store", "postgres"]`; pools are made as they are asked for.
    pub(crate) fn section_mut(&mut self, path: &[String]) -> Option<&mut dyn Section> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        Some(match path[..] {
            ["store"] => &mut self.store,
            ["store", "sqlite"] => &mut self.store.sqlite,
            ["store", "postgres"] => &mut self.store.postgres,
            ["store", "sqlserver"] => &mut self.store.sqlserver,
            ["store", "mongo"] => &mut self.store.mongo,
            ["node"] => &mut self.node,
            ["cluster"] => &mut self.cluster,
            ["cluster", "retention"] => &mut self.cluster.retention,
            ["worker"] => &mut self.worker,
            ["worker", "pools", name] => self.worker.pools.entry(name.to_owned()).or_default(),
            ["poll"] => &mut self.poll,
            ["http"] => &mut self.http,
            _ => return None,
        })
    }

    /// Makes a setting as if it had never been set.
    pub(crate) fn unset(&mut self, key: &str) {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        if let Some((name, above)) = path.split_last()
            && let Some(section) = self.section_mut(above)
        {
            section.unset(name);
        }
        self.origins.remove(key);
    }

    /// What somebody else refuses of this configuration, such as a backend its settings: keys with
    /// what is wrong.
    pub fn refused(&self, refused: impl IntoIterator<Item = (String, String)>) -> ConfigError {
        let problems = refused.into_iter().map(|(key, rule)| Problem {
            places: vec![self.place(&key)],
            rule,
        });
        ConfigError::new(self.file.clone(), problems.collect())
    }

    /// The URL alone, and with each one of the settings of the store that somebody has set: so that
    /// a backend, which tells the first problem, tells them all. By the keys of the settings, the URL
    /// first.
    #[must_use]
    pub fn store_alone(&self) -> Vec<(String, StoreConfig)> {
        let of_store = |key: &&String| key.starts_with("store.");
        let set: Vec<&String> = self.origins.keys().filter(of_store).collect();
        let alone = set.iter().map(|key| {
            let mut config = self.clone();
            for other in set.iter().filter(|other| other != &key && **other != URL) {
                config.unset(other);
            }
            ((*key).clone(), config.store)
        });
        let mut alone: Vec<_> = alone.collect();
        alone.sort_by_key(|(key, _)| key != URL);
        alone
    }

    /// The sections with their paths, in the order of the file.
    pub(crate) fn sections(&self) -> Vec<(String, &dyn Section)> {
        let (store, cluster) = (&self.store, &self.cluster);
        let first: [(&str, &dyn Section); 9] = [
            ("store", store),
            ("store.sqlite", &store.sqlite),
            ("store.postgres", &store.postgres),
            ("store.sqlserver", &store.sqlserver),
            ("store.mongo", &store.mongo),
            ("node", &self.node),
            ("cluster", cluster),
            ("cluster.retention", &cluster.retention),
            ("worker", &self.worker),
        ];
        let pools = self.worker.pools.iter();
        let pools =
            pools.map(|(name, pool)| (format!("worker.pools.{name}"), pool as &dyn Section));
        let last: [(&str, &dyn Section); 2] = [("poll", &self.poll), ("http", &self.http)];
        let own = |(path, section): (&str, _)| (path.to_owned(), section);
        let sections = first.into_iter().map(own).chain(pools);
        sections.chain(last.into_iter().map(own)).collect()
    }
}
