//! Finds the SQL Server that the environment names. Never starts a server: no package for
//! installing one is available, and each user must accept the vendor's licence before running the
//! container.

use std::env;

use anyhow::{Result, bail};

use super::Server;

/// The variable that names the server for the tests.
pub(crate) const URL: &str = "RATCHET_TEST_SQLSERVER_URL";

/// Returns the server that the environment names.
///
/// # Errors
/// If the environment names no server.
pub(crate) fn provide() -> Result<Server> {
    match env::var(URL) {
        Ok(url) => Ok(Server::named(url)),
        Err(_) => bail!("{URL} is not set; compose.yaml has a service that starts a SQL Server"),
    }
}
