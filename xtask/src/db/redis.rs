//! Finds or starts Redis, for the example of a custom coordinator.

use anyhow::{Context, Result};

use super::{Control, Server, free_port, on_path, quoted};

/// The variable that names the server for the tests.
pub(crate) const URL: &str = "RATCHET_TEST_REDIS_URL";

/// Returns the server that the variable names, or starts one that stores nothing.
///
/// # Errors
/// If the variable is not set and no server can be started, with the reason.
pub(crate) fn provide() -> Result<Server> {
    std::env::var(URL).map_or_else(|_| own(), |url| Ok(Server::named(url)))
}

fn own() -> Result<Server> {
    let program = on_path("redis-server").context("redis-server is not installed")?;
    let port = free_port()?;
    let directory = std::env::temp_dir();
    let pid = quoted(directory.join(format!("ratchet-redis-{port}.pid")));
    let stop = format!("kill $(cat {pid})");
    let control = Control {
        start: format!(
            "{} --bind 127.0.0.1 --port {port} --save '' --appendonly no --daemonize yes \
             --dir {} --pidfile {pid} >/dev/null",
            quoted(program),
            quoted(directory)
        ),
        remove: stop.clone(),
        stop,
    };
    let url = format!("redis://127.0.0.1:{port}/");
    Server::start(url, "a Redis started for this run".to_owned(), control)
}
