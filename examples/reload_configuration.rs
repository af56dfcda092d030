//! A configuration that every node reloads when it changes.
//!
//! The configuration is a file here; it could also be in a table or a bucket. After a program has
//! changed the file, the program bumps the version of the configuration. Every node watches the
//! version, and reads the file again when the version changes. If the wakeup for a new version is
//! lost, the nodes notice the version up to a second later.
//!
//! ```text
//! cargo run --example reload_configuration
//! ```

#![expect(clippy::print_stdout, reason = "an example")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ratchet::{Client, Ratchet};
use tokio::sync::watch;

/// Reads the configuration file whenever its version changes, and sends the text to `current`.
async fn follow(client: Client, file: &Path, current: watch::Sender<String>) -> Result<()> {
    let mut versions = client.watch("greeting")?;
    loop {
        let version = versions.changed().await;
        // Reads the file after the version. If the file changes after this read, the version
        // changes too, and the loop reads the file again.
        let text = tokio::fs::read_to_string(file).await?;
        println!("version {version}: {text}");
        current.send_replace(text);
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let folder = tempfile::tempdir()?;
    let (file, database) = (
        folder.path().join("greeting"),
        folder.path().join("jobs.db"),
    );
    tokio::fs::write(&file, "Hello").await?;
    let url = format!("sqlite://{}", database.display());

    let mut nodes = Vec::new();
    for _ in 0..3 {
        // Each client has a separate store, as separate processes would have.
        let client = Ratchet::client(ratchet::connect(&url).await?);
        let (sender, receiver) = watch::channel(String::new());
        let file = file.clone();
        tokio::spawn(async move { follow(client, &file, sender).await });
        nodes.push(receiver);
    }
    let operator = Ratchet::client(ratchet::connect(&url).await?);
    for greeting in ["Good morning", "Good evening"] {
        tokio::fs::write(&file, greeting).await?;
        operator.bump("greeting").await?;
        for node in &mut nodes {
            let converged = node.wait_for(|current| current == greeting);
            tokio::time::timeout(Duration::from_secs(10), converged)
                .await
                .context("a node did not reload the configuration within 10 s")??;
        }
    }
    let all: Vec<String> = nodes.iter().map(|node| node.borrow().clone()).collect();
    ensure!(all.iter().all(|current| current == "Good evening"));
    println!("all {} nodes have the new configuration", all.len());
    Ok(())
}
