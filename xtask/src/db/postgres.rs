//! Finds or starts a PostgreSQL: the server that the environment names, an installed one, one that
//! apt installs, or a container.

use std::env;

use anyhow::{Context, Result, bail};

use super::local::Sandbox;
use super::{Server, compose, local};

/// The variable that names the server for the tests.
pub(crate) const URL: &str = "RATCHET_TEST_POSTGRES_URL";

/// Returns the server that the environment names, or starts one.
///
/// # Errors
/// If the environment names no server and no server can be started. The error contains the reasons.
pub(crate) fn provide() -> Result<Server> {
    match env::var(URL) {
        Ok(url) => Ok(Server::named(url)),
        Err(_) => own(),
    }
}

/// Starts a server, which is stopped when it is dropped.
///
/// # Errors
/// If no server can be started. The error contains the reason for each way that was tried.
pub(crate) fn own() -> Result<Server> {
    let mut reasons = Vec::new();
    for (way, start) in [
        ("installed", local::start as fn() -> Result<Server>),
        ("by apt", local::install_and_start),
        ("in a container", compose::start),
    ] {
        match start().with_context(|| way.to_owned()) {
            Ok(server) => return Ok(server),
            Err(reason) => reasons.push(format!("{reason:#}")),
        }
    }
    bail!("no PostgreSQL: {}", reasons.join("; "))
}

/// Prepares a directory in which tests start their own servers.
///
/// # Errors
/// If PostgreSQL is not installed. A container cannot be used for this.
pub(crate) fn sandbox() -> Result<Sandbox> {
    local::sandbox()
}
