//! What every command has: its output, the configuration, the database.

use ratchet::{Client, ConnectError, Ratchet};
use ratchet_config::{Config, ConfigError, Loader, StoreConfig};

use crate::args::Global;
use crate::exit::Failure;
use crate::output::Output;

/// The context of a command.
pub(crate) struct App {
    pub(crate) out: Output,
    global: Global,
}

impl App {
    pub(crate) fn new(global: Global) -> Self {
        let out = Output::new(global.json, global.color);
        Self { out, global }
    }

    /// The configuration: the file, the environment, and the command line over both.
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

    /// The configuration, checked as far as that can be done without the database: the settings of
    /// the store too, by the rules of its backend.
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        let config = self.loader().load()?;
        ratchet::configured::check(&config)?;
        Ok(config)
    }

    /// The configuration, which must be sound.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        self.config_with(&[])
    }

    /// The configuration with more of the command line: keys, values, and the options they are of.
    pub(crate) fn config_with(&self, more: &[(&str, String, &str)]) -> Result<Config, Failure> {
        let set = |loader: Loader, (key, value, option): &(&str, String, &str)| {
            loader.set(key, value.as_str(), *option)
        };
        let loaded = more.iter().fold(self.loader(), set).load();
        loaded.map_err(|error| {
            Failure::configuration(error.to_string())
                .remedy("`ratchet config sample` shows what can be set.")
        })
    }

    /// The location of the database.
    pub(crate) fn database(&self) -> Result<StoreConfig, Failure> {
        let store = self.config()?.store;
        named(store)
    }

    /// The jobs of the database, whose schema must be up to date: only `migrate` changes it.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        connect(self.database()?).await
    }
}

/// The jobs of this database, as it is.
pub(crate) async fn connect(store: StoreConfig) -> Result<Client, Failure> {
    let store = named(store)?;
    Ok(open(&store).await?)
}

/// Opens a database without changing its schema.
pub(crate) async fn open(store: &StoreConfig) -> Result<Client, ConnectError> {
    let mut store = store.clone();
    store.migrate = false;
    // What the drivers need to connect is large.
    let store = Box::pin(ratchet::connect_configured(&store)).await?;
    Ok(Ratchet::client(store))
}

fn named(store: StoreConfig) -> Result<StoreConfig, Failure> {
    if store.url.is_some() {
        return Ok(store);
    }
    Err(Failure::configuration("no database is named")
        .remedy("Give --url, set RATCHET_STORE__URL, or set store.url in ratchet.toml."))
}
