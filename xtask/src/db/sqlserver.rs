//! Finds the SQL Server that the environment names. Starts none: no package that could be installed
//! here has one, and running its container means accepting the vendor's licence, which each user
//! must do.

use std::env;

use anyhow::{Result, bail};

use super::Server;

/// The variable that names the server for the tests.
pub(crate) const URL: &str = "RATCHET_TEST_SQLSERVER_URL";

/// Returns the server that the environment names.
///
/// # Errors
/// If the environment names none.
pub(crate) fn provide() -> Result<Server> {
    match env::var(URL) {
        Ok(url) => Ok(Server::named(url)),
        Err(_) => bail!("{URL} is not set; compose.yaml has a SQL Server to start"),
    }
}
