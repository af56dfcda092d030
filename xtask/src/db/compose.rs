//! Servers from the containers in compose.yaml.

use std::process::Command;

use anyhow::{Result, ensure};

use super::{Control, Server, free_port, on_path, quoted};
use crate::process;

/// The newest PostgreSQL in compose.yaml.
const SERVICE: &str = "postgres-18";
/// The variable that sets its port in compose.yaml.
const PORT: &str = "RATCHET_POSTGRES_18_PORT";

pub(super) fn start() -> Result<Server> {
    start_service(SERVICE, PORT, |port| {
        format!("postgres://postgres:ratchet@127.0.0.1:{port}/postgres")
    })
}

/// Starts the container of a service under a separate name, so that a running container of the
/// service is not affected. `port_variable` sets its port, and `url` returns its URL for that port.
pub(super) fn start_service(
    service: &str,
    port_variable: &str,
    url: impl FnOnce(u16) -> String,
) -> Result<Server> {
    ensure!(
        on_path("docker").is_some(),
        "the program `docker` is not on the PATH"
    );
    ensure!(
        process::works(Command::new("docker").arg("info")),
        "no Docker engine is running"
    );
    ensure!(
        process::works(Command::new("docker").args(["compose", "version"])),
        "the program `docker` has no command `compose`"
    );
    let (port, file) = (free_port()?, process::root().join("compose.yaml"));
    let project = format!("ratchet-xtask-{service}-{}", std::process::id());
    let compose = format!(
        "{port_variable}={port} docker compose -p {project} -f {}",
        quoted(file)
    );
    let control = Control {
        stop: format!("{compose} kill {service}"),
        start: format!("{compose} up --detach --wait {service}"),
        remove: format!("{compose} down --volumes"),
    };
    Server::start(
        url(port),
        format!("a container of the service {service}"),
        control,
    )
}
