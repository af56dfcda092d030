//! SQL Server: only the one that is named. No package that could be installed here has one, and a
//! container of it means accepting the vendor's licence, which each user must do.

use std::env;

use anyhow::{Result, bail};

use super::Server;

/// The variable that names the server for the tests.
pub(crate) const URL: &str = "RATCHET_TEST_SQLSERVER_URL";

/// The server that the environment names.
///
/// # Errors
/// That there is none.
pub(crate) fn provide() -> Result<Server> {
    match env::var(URL) {
        Ok(url) => Ok(Server::named(url)),
        Err(_) => bail!("no SQL Server: {URL} is not set; compose.yaml has one"),
    }
}
