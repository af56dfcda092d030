//! What every command has: its output, the configuration, the database.

use ratchet::{Client, Ratchet};
use ratchet_config::{Config, ConfigError, StoreConfig};

use crate::args::Global;
use crate::exit::Failure;
use crate::output::Output;

/// What a command works with.
pub(crate) struct App {
    pub(crate) out: Output,
    global: Global,
}

impl App {
    pub(crate) fn new(global: Global) -> Self {
        let out = Output::new(global.json, global.color);
        Self { out, global }
    }

    /// The configuration: the file, the environment, and `--url` over both.
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        let mut loader = Config::loader();
        if let Some(file) = &self.global.config {
            loader = loader.file(file);
        }
        if let Some(url) = &self.global.url {
            loader = loader.set("store.url", url.as_str(), "--url");
        }
        loader.load()
    }

    /// The configuration, which must be sound.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        self.load().map_err(|error| {
            Failure::configuration(error.to_string())
                .remedy("`ratchet config sample` shows what can be set.")
        })
    }

    /// Where the database is.
    pub(crate) fn database(&self) -> Result<StoreConfig, Failure> {
        let store = self.config()?.store;
        if store.url.is_none() {
            return Err(Failure::configuration("no database is named")
                .remedy("Give --url, set RATCHET_STORE__URL, or set store.url in ratchet.toml."));
        }
        Ok(store)
    }

    /// The jobs of the database, whose schema must be up to date: only `migrate` changes it.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let mut store = self.database()?;
        store.migrate = false;
        Ok(Ratchet::client(ratchet::connect_configured(&store).await?))
    }
}
