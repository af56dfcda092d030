//! A node that is configured by `ratchet.toml` and by environment variables.
//!
//! ```text
//! RATCHET_STORE__URL=sqlite://jobs.db cargo run --example configured --features config
//! RATCHET_CLUSTER__TTL=1s cargo run --example configured --features config   # fails
//! ```
//!
//! Without a configuration, the node keeps its jobs in memory.
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::sync::Arc;

use ratchet::config::Config;
use ratchet::{Job, JobContext, JobResult, Ratchet, Requires};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Job for Greet {
    const KIND: &'static str = "greet";
    type Output = String;

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Notify>>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        println!("Hello, {}!", self.name);
        ctx.state::<Arc<Notify>>().notify_one();
        Ok(self.name)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let mut config = Config::load(None)?;
    if config.store.url.is_none() {
        config = Config::loader()
            .set("store.url", "memory:", "the example")
            .load()?;
    }
    println!("{}", config.redacted());

    let store = ratchet::connect_configured(&config.store).await?;
    let greeted = Arc::new(Notify::new());
    let builder = Ratchet::builder(store)
        .register::<Greet>()
        .state(Arc::clone(&greeted));
    // The configuration is applied last, so that it takes precedence over the program's values.
    let node = config.apply(builder).build();
    let node = node.map_err(|error| config.explain(&error))?;

    let name = "world".to_owned();
    node.enqueue(Greet { name }.into_job()).await?;
    node.run_until(greeted.notified()).await?;
    Ok(())
}
