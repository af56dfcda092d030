#![doc = include_str!("../README.md")]

#[cfg(feature = "config")]
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

/// Ratchet on SQLite.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use ratchet_store_sqlite::*;
}

/// Ratchet on PostgreSQL.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use ratchet_store_postgres::*;
}

/// Ratchet on SQL Server.
#[cfg(feature = "sqlserver")]
pub mod sqlserver {
    pub use ratchet_store_sqlserver::*;
}

/// Ratchet on MongoDB.
#[cfg(feature = "mongo")]
pub mod mongo {
    pub use ratchet_store_mongo::*;
}
