//! A workflow: a diamond with a branch for failures, run for two photos. The second photo cannot be
//! read.
//!
//! ```sh
//! cargo run --example workflow
//! ```
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use ratchet::{
    Client, Job, JobContext, JobError, JobFilter, JobId, JobOrder, JobResult, JobState,
    PageRequest, Ratchet, Workflow,
};
use serde::{Deserialize, Serialize};

/// A job that inspects a photo. Returns the number of its pixels.
#[derive(Serialize, Deserialize)]
struct Inspect {
    photo: String,
}

impl Job for Inspect {
    const KIND: &'static str = "inspect";
    type Output = u64;

    async fn run(self, _: JobContext) -> JobResult<u64> {
        if self.photo.starts_with("broken") {
            return Err(JobError::discard(format!("{} is not a photo", self.photo)));
        }
        Ok(4_000 * 3_000)
    }
}

/// A job that makes a smaller copy of the inspected photo. Returns the number of pixels of the
/// copy.
#[derive(Serialize, Deserialize)]
struct Shrink {
    by: u64,
}

impl Job for Shrink {
    const KIND: &'static str = "shrink";
    type Output = u64;

    async fn run(self, ctx: JobContext) -> JobResult<u64> {
        let [inspect] = &ctx.parents().await?[..] else {
            return Err(JobError::discard(
                "the job has no parent, so there is no photo to shrink",
            ));
        };
        Ok(inspect.result::<u64>()? / self.by)
    }
}

/// A job that publishes all copies of the photo.
#[derive(Serialize, Deserialize)]
struct Publish;

impl Job for Publish {
    const KIND: &'static str = "publish";
    type Output = Vec<u64>;

    async fn run(self, ctx: JobContext) -> JobResult<Vec<u64>> {
        let copies = ctx.parents().await?;
        Ok(copies
            .iter()
            .map(|copy| copy.result())
            .collect::<Result<_, _>>()?)
    }
}

/// A job that notifies the photographer of a failure.
#[derive(Serialize, Deserialize)]
struct Complain;

impl Job for Complain {
    const KIND: &'static str = "complain";
    type Output = String;

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        let parents = ctx.parents().await?;
        let failed = parents.first().and_then(|parent| parent.record.as_ref());
        let why = failed.and_then(|job| job.last_error.clone());
        Ok(format!("sorry: {}", why.unwrap_or_default()))
    }
}

/// A job that removes the uploaded photo, whether or not the workflow succeeded.
#[derive(Serialize, Deserialize)]
struct CleanUp;

impl Job for CleanUp {
    const KIND: &'static str = "clean up";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        Ok(())
    }
}

/// Returns the workflow for one photo, and the id of its last job.
fn steps(photo: &str) -> (Workflow, JobId) {
    let flow = Workflow::new();
    let photo = photo.to_owned();
    let inspect = flow.add(Inspect { photo }.into_job());
    let small = flow.add(Shrink { by: 100 }.into_job()).after(&inspect);
    let large = flow.add(Shrink { by: 4 }.into_job()).after(&inspect);
    let publish = flow.add(Publish.into_job()).after_all([&small, &large]);
    flow.add(Complain.into_job()).after_failure(&inspect);
    let clean_up = flow.add(CleanUp.into_job()).after_end(&publish);
    (flow, clean_up.id())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("workflow.db").display());
    let node = Ratchet::builder(ratchet::connect(&url).await?)
        .register::<(Inspect, Shrink, Publish, Complain, CleanUp)>()
        .build()?;
    let client = node.client().clone();
    let mut last = Vec::new();
    for photo in ["lake.jpg", "broken.jpg"] {
        let (flow, clean_up) = steps(photo);
        client.submit(flow).await?;
        last.push(clean_up);
    }
    node.run_until(all_ended(&client)).await?;
    let page = PageRequest::first(100).order(JobOrder::OldestFirst);
    for job in client.list(&JobFilter::all(), &page).await?.jobs {
        let outcome = match (&job.result, &job.last_error) {
            (Some(result), _) => result.as_str(),
            (None, Some(error)) => error,
            (None, None) => "",
        };
        println!("  {:9} {:8} {outcome}", job.state, job.spec.route.kind);
    }
    for clean_up in last {
        let job = client.job(clean_up).await?;
        anyhow::ensure!(job.is_some_and(|job| job.state == JobState::Succeeded));
    }
    Ok(())
}

/// Waits until all jobs have ended.
async fn all_ended(client: &Client) {
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let queues = client.queues().await.unwrap_or_default();
        let ended =
            |queue: &ratchet::QueueInfo| queue.counts.keys().all(|state| state.is_terminal());
        if !queues.is_empty() && queues.iter().all(ended) {
            return;
        }
    }
}
