//! PostgreSQL from the containers that compose.yaml describes.

use std::process::Command;

use anyhow::{Result, ensure};

use super::{Control, Server, free_port, on_path, quoted};
use crate::process;

/// The newest version that compose.yaml has.
const SERVICE: &str = "postgres-18";
/// The variable with which compose.yaml lets us choose its port.
const PORT: &str = "RATCHET_POSTGRES_18_PORT";

/// Starts the container under a name of its own, so that another one that runs is left alone.
pub(super) fn start() -> Result<Server> {
    ensure!(on_path("docker").is_some(), "there is no docker");
    ensure!(
        process::works(Command::new("docker").arg("info")),
        "no Docker engine answers"
    );
    ensure!(
        process::works(Command::new("docker").args(["compose", "version"])),
        "docker has no compose"
    );
    let (port, file) = (free_port()?, process::root().join("compose.yaml"));
    let project = format!("ratchet-xtask-{}", std::process::id());
    let compose = format!(
        "{PORT}={port} docker compose -p {project} -f {}",
        quoted(file)
    );
    let control = Control {
        stop: format!("{compose} kill {SERVICE}"),
        start: format!("{compose} up --detach --wait {SERVICE}"),
        remove: format!("{compose} down --volumes"),
    };
    let url = format!("postgres://postgres:ratchet@127.0.0.1:{port}/postgres");
    Server::start(
        url,
        format!("a container of the service {SERVICE}"),
        control,
    )
}
