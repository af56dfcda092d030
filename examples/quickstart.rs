//! A first example: durable jobs in an embedded SQLite file, run by one node, in a few seconds.
//!
//! ```sh
//! cargo run --release --example quickstart
//! ```
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::time::Duration;

use ratchet::{
    Client, Enqueued, Job, JobContext, JobFilter, JobOrder, JobResult, JobState, PageRequest,
    Priority, Ratchet, RetryPolicy,
};
use serde::{Deserialize, Serialize};

/// A job that sends a greeting.
#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Job for Greet {
    const KIND: &'static str = "greet";
    type Output = String;

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        println!("  {} priority: hello {}!", ctx.priority(), self.name);
        Ok(format!("greeted {}", self.name))
    }
}

/// A job that fetches a page. Its first attempts fail, until the page answers.
#[derive(Serialize, Deserialize)]
struct Fetch {
    url: String,
    answers_at_attempt: u32,
}

impl Job for Fetch {
    const KIND: &'static str = "fetch";
    type Output = String;

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        if ctx.attempt() < self.answers_at_attempt {
            println!("  attempt {} to fetch {} fails", ctx.attempt(), self.url);
            return Err(format!("{} does not respond", self.url).into());
        }
        println!("  attempt {} to fetch {} succeeds", ctx.attempt(), self.url);
        Ok(format!("fetched {}", self.url))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("quickstart.db").display());
    let store = ratchet::connect(&url).await?;
    let node = Ratchet::builder(store)
        .register::<(Greet, Fetch)>()
        .concurrency(1)
        .prefetch(0)
        .build()?;

    println!("Jobs enqueued before any node runs:");
    let client = node.client().clone();
    let greet = |name: &str, priority| {
        let name = name.to_owned();
        Greet { name }.into_job().priority(priority)
    };
    let retry = RetryPolicy::exponential(3, Duration::from_millis(200), Duration::from_secs(1));
    let fetch = |url: &str, answers_at_attempt| {
        let url = url.to_owned();
        Fetch {
            url,
            answers_at_attempt,
        }
        .into_job()
        .retry(retry)
    };
    let jobs = [
        greet("the late riser", Priority::Lowest),
        greet("everybody", Priority::Normal),
        greet("the boss", Priority::Critical),
        greet("the one who comes in a second", Priority::Critical).delay(Duration::from_secs(1)),
        fetch("https://slow.example", 3),
        fetch("https://gone.example", 99),
        greet("the boss", Priority::Critical).unique_key("greet the boss"),
        greet("the boss", Priority::Critical).unique_key("greet the boss"),
    ];
    for (number, enqueued) in (1..).zip(client.enqueue_all(&jobs).await?) {
        match enqueued {
            Enqueued::Created(id) => println!("  {number}. created {id}"),
            other => {
                let id = other.id();
                println!("  {number}. not stored, because {id} has the same unique key");
            }
        }
    }

    println!("\nA node runs the jobs one at a time, by priority:");
    node.run_until(all_ended(&client)).await?;

    println!("\nThe jobs in the database now:");
    let page = PageRequest::first(100).order(JobOrder::OldestFirst);
    for job in client.list(&JobFilter::all(), &page).await?.jobs {
        let outcome = match (&job.result, &job.last_error) {
            (Some(result), _) => result.as_str(),
            (None, Some(error)) => error,
            (None, None) => "",
        };
        println!(
            "  {:9} {:6} attempts {}  {outcome}",
            job.state, job.spec.route.kind, job.attempts
        );
    }

    let dead = JobFilter::all().state(JobState::Failed);
    let dead = client.list(&dead, &PageRequest::first(10)).await?.jobs;
    println!(
        "\n{} dead letter; `client.requeue(id)` would give the job new attempts.",
        dead.len()
    );
    Ok(())
}

/// Waits until all jobs have ended.
async fn all_ended(client: &Client) {
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let queues = client.queues().await.unwrap_or_default();
        let ended =
            |queue: &ratchet::QueueInfo| queue.counts.keys().all(|state| state.is_terminal());
        if !queues.is_empty() && queues.iter().all(ended) {
            return;
        }
    }
}
