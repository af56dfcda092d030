//! The context of every command: output, configuration and database.

use ratchet::{Client, ConnectError, Ratchet};
use ratchet_config::{Config, ConfigError, Loader, StoreConfig};

use crate::args::Global;
use crate::exit::Failure;
use crate::output::Output;

/// The output and the global options, which every command receives.
pub(crate) struct App {
    pub(crate) out: Output,
    global: Global,
}

impl App {
    pub(crate) fn new(global: Global) -> Self {
        let out = Output::new(global.json, global.color);
        Self { out, global }
    }

    /// Returns a loader of the configuration. The loader reads the configuration file and the
    /// environment. Options on the command line override both.
    fn loader(&self) -> Loader {
        let mut loader = Config::loader();
        if let Some(file) = &self.global.config {
            loader = loader.file(file);
        }
        if let Some(url) = &self.global.url {
            loader = loader.set("store.url", url.as_str(), "--url");
        }
        loader
    }

    /// Loads and checks the configuration, including the settings that are specific to one backend.
    /// Does not connect to the database.
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        let config = self.loader().load()?;
        ratchet::configured::check(&config)?;
        Ok(config)
    }

    /// Loads the configuration, or fails if it is invalid.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        self.config_with(&[])
    }

    /// Loads the configuration, and overrides settings with more options from the command line.
    /// Each item of `more` contains the key of a setting, its value, and the name of the option.
    pub(crate) fn config_with(&self, more: &[(&str, String, &str)]) -> Result<Config, Failure> {
        let set = |loader: Loader, (key, value, option): &(&str, String, &str)| {
            loader.set(key, value.as_str(), *option)
        };
        let loaded = more.iter().fold(self.loader(), set).load();
        loaded.map_err(|error| {
            Failure::configuration(error.to_string())
                .remedy("`ratchet config sample` lists all settings.")
        })
    }

    /// Returns the settings of the store, or fails if no database is configured.
    pub(crate) fn database(&self) -> Result<StoreConfig, Failure> {
        let store = self.config()?.store;
        named(store)
    }

    /// Connects to the configured database. Fails if its schema is not up to date, because only
    /// `ratchet migrate` changes a schema.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        connect(self.database()?).await
    }
}

/// Connects to the database in `store` without changing its schema. Fails if `store` has no URL.
pub(crate) async fn connect(store: StoreConfig) -> Result<Client, Failure> {
    let store = named(store)?;
    Ok(open(&store).await?)
}

/// Connects to the database at the URL in `store`, without changing its schema.
pub(crate) async fn open(store: &StoreConfig) -> Result<Client, ConnectError> {
    let mut store = store.clone();
    store.migrate = false;
    // Boxed because the futures of the drivers are large.
    let store = Box::pin(ratchet::connect_configured(&store)).await?;
    Ok(Ratchet::client(store))
}

fn named(store: StoreConfig) -> Result<StoreConfig, Failure> {
    if store.url.is_some() {
        return Ok(store);
    }
    Err(Failure::configuration("no database is configured")
        .remedy("Give --url, set RATCHET_STORE__URL, or set store.url in ratchet.toml."))
}
