//! Recurring jobs: two nodes on one database, definitions in code and at run time, and one run for
//! each slot.
//!
//! ```text
//! cargo run --example recurring
//! ```

#![expect(clippy::print_stdout, reason = "an example")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet::{
    Enqueued, Job, JobContext, JobResult, Misfire, Node, Overlap, Ratchet, Recurring, Requires,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const SECOND: Duration = Duration::from_secs(1);

/// Slots for which each report ran, keyed by the name of the report. `None` stands for a run that
/// has no slot, because it was triggered by hand.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<BTreeMap<String, Vec<Option<Timestamp>>>>>);

impl Ran {
    fn of(&self, report: &str) -> Vec<Option<Timestamp>> {
        let all = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        all.get(report).cloned().unwrap_or_default()
    }
}

/// A job that writes a report.
#[derive(Serialize, Deserialize)]
struct Report {
    name: String,
}

impl Job for Report {
    const KIND: &'static str = "report";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        match ctx.slot() {
            Some(slot) => println!("  {:8} of {}", self.name, slot.format("%H:%M:%S%.3f")),
            None => println!("  {:8} without a slot", self.name),
        }
        let ran = ctx.state::<Ran>();
        let mut ran = ran.0.lock().unwrap_or_else(|broken| broken.into_inner());
        ran.entry(self.name).or_default().push(ctx.slot());
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Ran>()
    }
}

fn report(name: &str) -> ratchet::NewJob {
    let name = name.to_owned();
    Report { name }.into_job()
}

/// Builds a node that opens its own store, like a node in another process. All nodes declare the
/// same recurring definitions.
async fn node(url: &str, ran: &Ran) -> Result<Node> {
    let node = Ratchet::builder(ratchet::connect(url).await?)
        .register::<Report>()
        .state(ran.clone())
        // This report runs at three in the morning, Berlin time, also on days on which the clock
        // skips or repeats an hour. After an outage of several days, up to seven missed reports
        // run.
        .recurring(
            Recurring::cron("0 3 * * *")
                .zone("Europe/Berlin")
                .misfire(Misfire::CatchUp(7))
                .job(report("nightly"))
                .named("nightly"),
        )
        // This report runs every second. If a run takes longer than a second, the slots that come
        // due during the run are skipped.
        .recurring(
            Recurring::every(SECOND)
                .overlap(Overlap::Skip)
                .job(report("ticker"))
                .named("ticker"),
        );
    Ok(node.build()?)
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("jobs.db").display());
    let ran = Ran::default();
    let (stop, stopped) = watch::channel(());
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let (node, mut stopped) = (node(&url, &ran).await?, stopped.clone());
        nodes.push(tokio::spawn(async move {
            node.run_until(stopped.changed()).await
        }));
    }
    println!("Two nodes fire the slots of the definitions:");
    wait_for(&ran, "ticker", 3).await?;

    // Any process can create, change and delete definitions at run time.
    let operator = Ratchet::client(ratchet::connect(&url).await?).recurring();
    println!("\nWhat is defined:");
    for record in operator.list(None, 100).await?.definitions {
        let (definition, next) = (&record.definition, record.next_fire);
        let next = next.map_or("never".to_owned(), |next| next.to_rfc3339());
        println!(
            "  {} runs {}, next {next}",
            definition.name(),
            definition.schedule()
        );
    }
    operator.pause("ticker").await?;
    println!("\nThe ticker is paused. A report every two seconds, defined at run time:");
    let every = |interval| {
        Recurring::every(interval)
            .job(report("custom"))
            .named("custom")
    };
    operator.put(every(2 * SECOND)).await?;
    wait_for(&ran, "custom", 2).await?;

    println!("\nThe nightly report, triggered now:");
    let triggered = operator.trigger("nightly").await?;
    ensure!(
        matches!(triggered, Some(Enqueued::Created(_))),
        "{triggered:?}"
    );
    wait_for(&ran, "nightly", 1).await?;

    println!("\nBad input is refused, and nothing is stored:");
    for bad in [
        Recurring::cron("61 * * * *")
            .job(report("bad"))
            .named("bad"),
        Recurring::cron("0 3 * * *")
            .zone("Mars")
            .job(report("bad"))
            .named("bad"),
    ] {
        match operator.put(bad).await {
            Err(error) => println!("  {error}"),
            Ok(outcome) => anyhow::bail!(
                "expected the bad definition to be refused, found it \
                 accepted: {outcome:?}"
            ),
        }
    }
    ensure!(operator.get("bad").await?.is_none());
    operator.delete("custom").await?;

    stop.send_replace(());
    for node in nodes {
        node.await??;
    }
    let mut slots = ran.of("ticker");
    let all = slots.len();
    slots.sort();
    slots.dedup();
    ensure!(
        slots.len() == all,
        "expected every slot to run once, found one that ran twice"
    );
    println!("\nThe ticker ran {all} times, each slot once.");
    Ok(())
}

/// Waits until the report with this name was written `count` times. Fails after 60 seconds.
async fn wait_for(ran: &Ran, report: &str, count: usize) -> Result<()> {
    let written = async {
        while ran.of(report).len() < count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    Ok(tokio::time::timeout(60 * SECOND, written).await?)
}
