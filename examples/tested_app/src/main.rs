//! Signs one address up and runs the newsletter until Ctrl-C.
//!
//! ```sh
//! cargo run -p tested-app-example -- ada@example.org
//! ```
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use anyhow::Context;
use ratchet::Job;
use tested_app_example::jobs::{Office, SignUp};
use tested_app_example::{DeadLetters, node};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let address = std::env::args().nth(1).context("which address?")?;
    let (office, dead_letters) = (Office::default(), DeadLetters::default());
    let file = std::env::temp_dir().join("newsletter.db");
    let store = ratchet::connect(&format!("sqlite://{}", file.display())).await?;
    let node = node(store, office.clone(), dead_letters.clone()).build()?;
    node.enqueue(SignUp { address }.into_job()).await?;
    node.run().await?;
    println!(
        "sent {:?}, {} dead letters",
        office.books().sent,
        dead_letters.count()
    );
    Ok(())
}
