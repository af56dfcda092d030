//! Ratchet on object storage.

pub use ratchet_store_object::*;

#[cfg(feature = "config")]
use {
    crate::{ConnectError, configured},
    ratchet_config::StoreConfig,
};

/// Returns a builder for object storage with the settings of a configuration.
///
/// # Errors
/// [`ConnectError::NoUrl`] if the configuration has no URL.
#[cfg(feature = "config")]
pub fn configured(config: &StoreConfig) -> Result<Builder, ConnectError> {
    let own = &config.object;
    let mut builder = ObjectStore::builder(configured::url(config)?).migrate(config.migrate);
    set!(builder, config, deadline);
    set!(
        builder,
        own,
        retention,
        request_life,
        snapshot_every,
        puts_per_minute
    );
    Ok(builder)
}

/// Converts a migration step to a script. A bucket has no migrations.
#[cfg(feature = "config")]
pub(crate) fn step(migration: Migration) -> configured::Migration {
    match migration {}
}
