//! A batch of jobs, one for each row of a CSV file. The jobs are enqueued in chunks. A report runs
//! when all jobs have ended, and an alarm runs as soon as too many rows were refused.
//!
//! ```sh
//! cargo run --release --example batch_import -- people.csv import.db
//! ```
//!
//! Without a file, the program creates one with 5,000 rows, some of which are invalid. A row needs
//! a `name` and an `email`.
//!
//! If the program is killed and started again with the same file and database, it continues the
//! batch, and stores no row twice. It keeps the id of the batch in a file next to the database.
//! Without a database argument, the program starts from the beginning.
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ratchet::{
    BatchCondition, BatchId, Client, Job, JobContext, JobError, JobFilter, JobResult, JobState,
    NewJob, PageRequest, Parent, Ratchet,
};
use serde::{Deserialize, Serialize};

/// Number of jobs that one call enqueues.
const CHUNK: usize = 500;
/// Number of refused rows at which the program sends an alarm, even if the import still runs.
const TOO_MANY: u64 = 20;

/// A job that imports one row of the CSV file.
#[derive(Serialize, Deserialize)]
struct Import {
    line: u64,
    name: String,
    email: String,
}

impl Job for Import {
    const KIND: &'static str = "import";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        let (user, host) = self.email.split_once('@').unwrap_or_default();
        if self.name.is_empty() || user.is_empty() || !host.contains('.') {
            let problem = format!(
                "line {}: `{}` is not an e-mail address",
                self.line, self.email
            );
            return Err(JobError::discard(problem));
        }
        Ok(())
    }
}

/// A job that reports the result of the import.
#[derive(Serialize, Deserialize)]
struct Report {
    batch: String,
}

impl Job for Report {
    const KIND: &'static str = "report";
    type Output = String;

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        let batch: BatchId = self
            .batch
            .parse()
            .map_err(|_| JobError::discard("no batch"))?;
        let stands = ctx.client().batch(batch).await?;
        let stands = stands.ok_or_else(|| JobError::discard("the batch was purged"))?;
        let (good, bad) = (stands.succeeded, stands.failures());
        Ok(format!("{good} rows imported, {bad} rows refused"))
    }
}

/// A job that sends an alarm.
#[derive(Serialize, Deserialize)]
struct Alarm;

impl Job for Alarm {
    const KIND: &'static str = "alarm";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        println!("  alarm: {TOO_MANY} rows were refused");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let folder = tempfile::tempdir()?;
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let file = match arguments.next() {
        Some(file) => file,
        None => sample(folder.path())?,
    };
    let database = arguments.next();
    let database = database.unwrap_or_else(|| folder.path().join("import.db"));
    let url = format!("sqlite://{}", database.display());
    let node = Ratchet::builder(ratchet::connect(&url).await?)
        .register::<(Import, Report, Alarm)>()
        .build()?;
    let client = node.client().clone();

    // The file with the id of the batch is written before the first job is stored, and removed when
    // the import is complete.
    let kept = database.with_extension("batch");
    let batch = kept_id(&kept)?;
    client.open_batch(batch).await?;
    let report = Report {
        batch: batch.to_string(),
    };
    let once = |what: &str| format!("{batch} {what}");
    let report = report.into_job().after_batch(batch, BatchCondition::Ended);
    let report = report.idempotency_key(&once("report"));
    let too_many = BatchCondition::FailuresReach(TOO_MANY);
    let alarm = Alarm.into_job().after_batch(batch, too_many);
    let alarm = alarm.idempotency_key(&once("alarm"));
    let callbacks = client.enqueue_all(&[report, alarm]).await?;
    let report_id = callbacks.first().context("no answer")?.id();

    // The node works on the first rows while the last are still being read.
    let import = async {
        let rows = stream(&client, batch, &file).await?;
        client.close_batch(batch).await?;
        println!("  all {rows} rows of {} are stored", file.display());
        watch(&client, batch).await?;
        until_ended(&client, report_id).await
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ran, imported) = tokio::join!(node.run_until(stopped), async {
        let imported = import.await;
        drop(stop);
        imported
    });
    ran?;
    imported?;

    std::fs::remove_file(&kept)?;
    let report = client
        .job(report_id)
        .await?
        .context("the report is not stored")?;
    println!(
        "  {}",
        report.result.context("the report has no result")?.as_str()
    );
    let refused = JobFilter::all().batch(batch).state(JobState::Failed);
    for job in client.list(&refused, &PageRequest::first(3)).await?.jobs {
        println!("  {}", job.last_error.unwrap_or_default());
    }
    if let Some(workflows) = client.store().workflows() {
        let waited = workflows
            .children_of(Parent::Batch(batch), 10, None)
            .await?;
        println!("  {} jobs waited for the batch", waited.len());
    }
    Ok(())
}

/// Returns the id of the batch in progress, which `file` contains. If `file` cannot be read,
/// creates a new id and writes it to `file`.
fn kept_id(file: &Path) -> anyhow::Result<BatchId> {
    if let Ok(text) = std::fs::read_to_string(file) {
        return text
            .parse()
            .with_context(|| format!("the file {} does not contain a batch id", file.display()));
    }
    let batch = BatchId::new();
    // Renaming makes the file appear completely or not at all.
    let new = file.with_extension("batch-new");
    std::fs::write(&new, batch.to_string())?;
    std::fs::rename(&new, file)?;
    Ok(batch)
}

/// Enqueues a job for every row of the file, in chunks of [`CHUNK`] jobs. Returns the number of
/// rows.
async fn stream(client: &Client, batch: BatchId, file: &Path) -> anyhow::Result<u64> {
    let mut reader =
        csv::Reader::from_path(file).with_context(|| format!("cannot read {}", file.display()))?;
    let headers = reader.headers()?.clone();
    let place = |name: &str| headers.iter().position(|header| header == name);
    let (Some(name), Some(email)) = (place("name"), place("email")) else {
        anyhow::bail!(
            "the file {} needs a column `name` and a column `email`",
            file.display()
        );
    };
    let mut chunk: Vec<NewJob> = Vec::with_capacity(CHUNK);
    let mut rows = 0;
    for row in reader.records() {
        let row = row?;
        let text = |place: usize| row.get(place).unwrap_or_default().trim().to_owned();
        let line = row.position().map_or(0, csv::Position::line);
        let import = Import {
            line,
            name: text(name),
            email: text(email),
        };
        // If the file is read again after a crash, the key prevents storing a row twice.
        let once = format!("{batch} {line}");
        chunk.push(import.into_job().in_batch(batch).idempotency_key(&once));
        rows += 1;
        if chunk.len() == CHUNK {
            client.enqueue_all(&chunk).await?;
            chunk.clear();
        }
    }
    client.enqueue_all(&chunk).await?;
    Ok(rows)
}

/// Prints the progress of the batch until the batch has ended.
async fn watch(client: &Client, batch: BatchId) -> anyhow::Result<()> {
    loop {
        let stands = client.batch(batch).await?.context("the batch was purged")?;
        println!("  {:3} % of {} rows", stands.percent(), stands.total);
        if stands.ended_at.is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn until_ended(client: &Client, job: ratchet::JobId) -> anyhow::Result<()> {
    while client
        .job(job)
        .await?
        .is_none_or(|job| !job.state.is_terminal())
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Creates a CSV file with sample rows, some of which are invalid. Returns the path of the file.
fn sample(folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("people.csv");
    let mut writer = csv::Writer::from_path(&path)?;
    writer.write_record(["name", "email", "remark"])?;
    for number in 0..5_000 {
        let name = format!("Person, the {number}th");
        let email = match number % 97 {
            0 => String::new(),
            1 => "somewhere".to_owned(),
            _ => format!("person{number}@example.org"),
        };
        writer.write_record([&name, &email, "says \"hello\""])?;
    }
    writer.flush()?;
    Ok(path)
}
