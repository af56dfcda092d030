//! Runs the shop until SIGTERM or Ctrl-C: HTTP and jobs in one process.
//!
//! `SHOP_DATABASE_URL` is a SQLite path or a PostgreSQL URL, `SHOP_LISTEN` is an address, and
//! `SHOP_GATEWAY_MS` is how long the simulated card gateway takes. The node's settings come from
//! `ratchet.toml` and from variables such as `RATCHET_NODE__LABEL`.

use std::env;
use std::io::{Write, stderr, stdout};
use std::time::Duration;

use anyhow::{Context, Result};
use ratchet::config::Config;
use ratchet::http::{Api, prometheus};
use shop_example::{db::Db, http, jobs::Gateway};

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(stderr)
        .with_ansi(false)
        .init();
    let metrics = prometheus::install()?;
    let url = env::var("SHOP_DATABASE_URL")
        .context("set SHOP_DATABASE_URL to a SQLite path or a PostgreSQL URL")?;
    let listen = env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());
    let latency = env::var("SHOP_GATEWAY_MS")
        .ok()
        .map(|ms| ms.parse())
        .transpose()?
        .unwrap_or(20);

    let db = Db::connect(&url).await?;
    let gateway = Gateway {
        latency: Duration::from_millis(latency),
    };
    let builder = shop_example::node(&db, gateway).owns_store();
    let node = Config::load(None)?.apply(builder).build()?;
    // A charge needs a permit, whose limit the node would store only when it joins the cluster. A
    // request may enqueue a charge in a transaction before that, so store the limit now.
    node.declare_permits().await?;
    let ops = Api::builder(node.client().clone())
        .node(&node)
        .prometheus(metrics)
        .ready_while_stranded()
        .build()?;
    let app = http::router(db, node.client().clone(), &ops);

    let listener = tokio::net::TcpListener::bind(&listen).await?;
    writeln!(stdout(), "listening on {}", listener.local_addr()?)?;

    // The node closes the store when it stops, so the node must run until the last request is
    // answered.
    let mut served = Ok(());
    let signal = ratchet::shutdown_signal();
    let stop = async move {
        signal.await;
        ops.close();
    };
    let serve = axum::serve(listener, app).with_graceful_shutdown(stop);
    node.run_until(async {
        served = serve.await;
    })
    .await?;
    served.context("HTTP")
}
