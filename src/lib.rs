#![doc = include_str!("../README.md")]

mod backends;
#[cfg(feature = "config")]
#[macro_use]
pub mod configured;
mod connect;

#[cfg(feature = "config")]
pub use configured::{Migration, connect_configured, migrations, pending_migrations};
pub use connect::{ConnectError, connect};
pub use ratchet_core::*;

/// Settings from `ratchet.toml` and the environment.
#[cfg(feature = "config")]
pub mod config {
    pub use ratchet_config::*;
}

/// Ratchet over HTTP: probes, the cluster, jobs, metrics and a dashboard.
#[cfg(feature = "http")]
pub mod http {
    pub use ratchet_http::*;
}

// The backends. Their table is in `backends`.
#[cfg(feature = "mongo")]
pub mod mongo;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlserver")]
pub mod sqlserver;
