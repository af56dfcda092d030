//! A node that an operator can observe and control: probes, the cluster, jobs, metrics and the
//! dashboard, on loopback.
//!
//! ```sh
//! cargo run --release --example operated --features prometheus
//! ```
//!
//! Then open <http://127.0.0.1:7077/>. Everyone who can reach the port may read. Actions require a
//! name and a password: `operator` and `operator`.
#![expect(
    clippy::print_stdout,
    reason = "the example prints the address to open"
)]

use std::time::Duration;

use ratchet::http::{Access, Api, Authorizer, Denied, Parts, prometheus, same_secret, serve};
use ratchet::{Job, JobContext, JobResult, Node, Ratchet};
use serde::{Deserialize, Serialize};

/// A job that sends a mail. Some of its attempts fail.
#[derive(Serialize, Deserialize)]
struct Mail {
    to: u32,
}

impl Job for Mail {
    const KIND: &'static str = "mail";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        tokio::time::sleep(Duration::from_millis(u64::from(self.to % 7) * 200)).await;
        if self.to.is_multiple_of(5) && ctx.attempt() < 3 {
            return Err("the recipient's server does not respond".into());
        }
        Ok(())
    }
}

/// Allows every client to read, and only clients with the password to perform actions. The password
/// is part of this source file only because this is an example. A real service would check its
/// sessions, or read its secret from a file.
struct Password;

/// `Authorization` header that a browser sends for the name `operator` and the password `operator`.
const CREDENTIALS: &str = "Basic b3BlcmF0b3I6b3BlcmF0b3I=";

#[async_trait::async_trait]
impl Authorizer for Password {
    async fn authorize(&self, request: &Parts, access: Access) -> Result<(), Denied> {
        let given = request.headers.get("authorization");
        if access == Access::Read || given.is_some_and(|given| same_secret(given, CREDENTIALS)) {
            Ok(())
        } else {
            Err(Denied::unauthorized("Basic realm=\"ratchet\""))
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    // The exporter of metrics must be installed before the node runs.
    let metrics = prometheus::install()?;
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("operated.db").display());
    let store = ratchet::connect(&url).await?;
    let node = Ratchet::builder(store)
        .label("operated")
        .register::<Mail>()
        .build()?;

    let api = Api::builder(node.client().clone())
        .node(&node)
        .authorize(Password)
        .prometheus(metrics)
        .build()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:7077").await?;
    println!("http://{}/", listener.local_addr()?);

    // The API serves requests until the node has stopped, so that `/ready` reports the drain.
    let (left, leaves) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(serve(listener, api, async { drop(leaves.await) }));
    let work = tokio::spawn(work(node.clone()));
    node.run().await?;
    work.abort();
    drop(left);
    Ok(served.await??)
}

/// Enqueues a job every 300 ms, so that the dashboard has activity to show.
async fn work(node: Node) -> anyhow::Result<()> {
    for to in 0.. {
        node.enqueue(Mail { to }.into_job()).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}
