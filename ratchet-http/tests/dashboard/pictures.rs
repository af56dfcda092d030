//! Takes the screenshots for the documentation. Three nodes first run the jobs of an example shop
//! for a few minutes.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ratchet_core::schedule::Overlap;
use ratchet_core::time::monotonic;
use ratchet_core::{
    Client, Job, JobContext, JobError, JobId, JobResult, JobState, NewJob, Priority, Ratchet,
    Recurring, RetryPolicy, Workflow,
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::stage::Stage;

/// The environment variable that names the directory for the screenshots.
pub(crate) const DIRECTORY: &str = "RATCHET_DASHBOARD_PICTURES";
/// How long the nodes run before the screenshots are taken.
const OPEN: Duration = Duration::from_secs(290);
const STEP: Duration = Duration::from_millis(250);

macro_rules! kinds {
    ($($name:ident $kind:literal $millis:literal;)*) => {
        $(
            #[derive(Serialize, Deserialize)]
            struct $name {
                number: u64,
            }

            impl Job for $name {
                const KIND: &'static str = $kind;
                type Output = ();

                async fn run(self, ctx: JobContext) -> JobResult<()> {
                    work(self.number, $millis, &ctx).await
                }
            }
        )*
    };
}

kinds! {
    Resize "image.resize" 140;
    Mail "mail.send" 60;
    Reserve "stock.reserve" 30;
    Charge "payment.charge" 90;
    Receive "order.receive" 20;
    Ship "parcel.label" 40;
    Refund "payment.refund" 40;
    Rollup "metrics.rollup" 900;
    Reindex "search.reindex" 400_000;
}

/// Runs for about `millis` milliseconds. Some attempts fail, and some jobs become dead letters.
async fn work(number: u64, millis: u64, ctx: &JobContext) -> JobResult<()> {
    let time = Duration::from_millis(millis / 2 + (number * 7919) % millis);
    if time > Duration::from_secs(60) {
        for percent in 1..=100 {
            ctx.progress(
                percent,
                format!("{} of 41,000 documents", u32::from(percent) * 410),
            );
            sleep(time / 100).await;
        }
    }
    sleep(time).await;
    match number % 401 {
        11..=13 if ctx.attempt() < 2 => Err("mx.example.net answered 451: try again later".into()),
        77 => Err(JobError::discard(
            "mx.example.net answered 550: no such user\nRCPT TO:<a.lovelace@example.net>",
        )),
        200 if ctx.kind().as_str() == "image.resize" => Err(JobError::discard(
            "14,022 × 9,113 pixels, 100 megapixels are allowed",
        )),
        _ => Ok(()),
    }
}

/// A job that fails twice with a plausible error, and then runs for a long time.
#[derive(Serialize, Deserialize)]
struct Invoice {
    order: u64,
    customer: String,
    lines: Vec<String>,
}

impl Job for Invoice {
    const KIND: &'static str = "invoice.render";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        sleep(Duration::from_millis(2_300)).await;
        if ctx.attempt() < 3 {
            return Err("the tax service answered 503 Service Unavailable: retry after 5 s".into());
        }
        ctx.save_checkpoint(&serde_json::json!({ "page": 9 }))
            .await?;
        ctx.progress(64, "page 9 of 14");
        ctx.cancelled().await;
        Err(JobError::cancel())
    }
}

pub(crate) async fn take(stage: &mut Stage) -> Result<()> {
    let directory = PathBuf::from(env::var_os(DIRECTORY).context("no directory")?);
    std::fs::create_dir_all(&directory)?;
    for (label, bodies) in [("worker-1", 16), ("worker-2", 24), ("worker-3", 24)] {
        let node = Ratchet::builder(Arc::clone(&stage.store))
            .label(label)
            .register::<Resize>()
            .register::<Mail>()
            .register::<Reserve>()
            .register::<Charge>()
            .register::<Receive>()
            .register::<Ship>()
            .register::<Refund>()
            .register::<Rollup>()
            .register::<Reindex>()
            .register::<Invoice>()
            .heartbeat_interval(Duration::from_secs(1))
            .poll_interval(Duration::from_millis(20), Duration::from_millis(200))
            .drain_grace(Duration::from_secs(1))
            .concurrency(bodies)
            .build()?;
        stage.run(node).await?;
    }
    let client = stage.client.clone();
    client.set_permits("smtp", 8).await?;
    let rollup = Recurring::every(Duration::from_secs(15)).overlap(Overlap::Skip);
    client
        .recurring()
        .put(
            rollup
                .job(Rollup { number: 1 }.into_job())
                .named("metrics-rollup"),
        )
        .await?;
    let nightly = Recurring::cron("0 3 * * *").zone("Europe/Berlin");
    client
        .recurring()
        .put(
            nightly
                .job(Reindex { number: 1 }.into_job())
                .named("nightly-reindex"),
        )
        .await?;
    client
        .enqueue(
            Reindex { number: 20 }
                .into_job()
                .queue("search")
                .tag("tenant-12"),
        )
        .await?;
    // The server counts pending jobs only while a client requests the counts, so open a page that
    // requests them.
    stage.visit("#/overview").await?;

    let opened = monotonic();
    let mut number = 0;
    let mut invoice = None;
    while opened.elapsed() < OPEN {
        let second = opened.elapsed().as_secs_f64();
        // The load alternates between low and high, with one peak.
        let rush = if (140.0..165.0).contains(&second) {
            45.0
        } else {
            0.0
        };
        let many = 22.0 + 9.0 * (second / 31.0).sin() + 3.0 * (second / 2.3).sin() + rush;
        let mut jobs = Vec::new();
        while f64::from(u32::try_from(jobs.len())?) < many {
            number += 1;
            jobs.push(some_job(number));
        }
        client.enqueue_all(&jobs).await?;
        if second > 240.0 {
            client
                .enqueue(
                    NewJob::new("report.yearly", &2026)
                        .queue("reports")
                        .idempotency_key("2026"),
                )
                .await?;
        }
        if invoice.is_none() && second > 30.0 {
            invoice = Some(order(&client).await?);
        }
        sleep(STEP).await;
    }
    let invoice = invoice.context("no invoice")?;
    stage.until_state(invoice, JobState::Running).await?;
    pictures(stage, &directory, invoice).await
}

fn some_job(number: u64) -> NewJob {
    let mail = RetryPolicy::fixed(4, Duration::from_secs(2));
    match number % 10 {
        0..=3 => Mail { number }
            .into_job()
            .queue("mail")
            .retry(mail)
            .permit("smtp"),
        4..=6 => Resize { number }.into_job().queue("images").tag("eu"),
        7 => Ship { number }
            .into_job()
            .queue("orders")
            .lane(&format!("warehouse-{}", number % 3)),
        8 => Charge { number }
            .into_job()
            .queue("orders")
            .priority(Priority::High),
        _ => Resize { number }
            .into_job()
            .queue("images")
            .delay(Duration::from_secs(30)),
    }
}

/// Submits an order as a workflow, and returns the id of its invoice job.
async fn order(client: &Client) -> Result<JobId> {
    let flow = Workflow::new();
    let number = 4_711;
    let receive = flow.add(Receive { number }.into_job().queue("orders"));
    let reserve = flow
        .add(Reserve { number }.into_job().queue("orders"))
        .after(&receive);
    let charge = flow
        .add(
            Charge { number }
                .into_job()
                .queue("orders")
                .priority(Priority::High),
        )
        .after(&receive);
    let lines = ["2 × ratchet wrench", "1 × torque meter"]
        .map(ToOwned::to_owned)
        .to_vec();
    let invoice = Invoice {
        order: number,
        customer: "acme".to_owned(),
        lines,
    }
    .into_job()
    .queue("orders");
    let invoice = invoice
        .retry(RetryPolicy::fixed(5, Duration::from_secs(8)))
        .tag("tenant-12")
        .timeout(Duration::from_secs(600));
    let invoice = flow.add(invoice).after_all([&reserve, &charge]);
    flow.add(Refund { number }.into_job().queue("orders"))
        .after_failure(&charge);
    let label = flow
        .add(Ship { number }.into_job().queue("orders"))
        .after(&reserve);
    flow.add(Mail { number }.into_job().queue("mail"))
        .after_all([&invoice, &label]);
    let id = invoice.id();
    client.submit(flow).await?;
    Ok(id)
}

async fn pictures(stage: &Stage, directory: &std::path::Path, invoice: JobId) -> Result<()> {
    let job = format!("jobs/{invoice}");
    let pages = [
        ("overview-light", "overview", "light", (1280, 1000)),
        ("overview-dark", "overview", "dark", (1280, 1000)),
        (
            "jobs",
            "jobs?state=running,blocked,failed",
            "light",
            (1280, 860),
        ),
        ("job", &job, "light", (1280, 1000)),
        ("queues", "queues", "light", (1280, 420)),
        ("recurring", "recurring", "light", (1280, 420)),
        ("cluster", "cluster", "dark", (1280, 720)),
        ("phone-overview", "overview", "light", (390, 844)),
        ("phone-jobs", "jobs", "dark", (390, 844)),
    ];
    for (name, place, scheme, (width, height)) in pages {
        stage.page.scheme(scheme).await?;
        stage.page.size(width, height, width < 800).await?;
        stage.visit(&format!("#/{place}")).await?;
        if place == "overview" {
            stage.page.click(".head .choice button").await?;
        }
        stage.page.until("!document.querySelector('main .loading') && document.querySelector('main .panel, main .tile')").await?;
        stage
            .page
            .until("document.querySelector('.link').dataset.state === 'live'")
            .await?;
        stage.page.settle().await?;
        stage
            .page
            .picture(&directory.join(format!("{name}.png")))
            .await?;
    }
    Ok(())
}
