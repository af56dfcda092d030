//! `ratchet jobs`: looking at jobs. What acts on many is in `bulk`.

use ratchet::model::{JobFilter, PageRequest};
use ratchet::time::Timestamp;
use ratchet::{Client, JobId, JobState};
use ratchet_http::view;
use serde::Serialize;

use super::bulk;
use crate::app::App;
use crate::args::{JobsCommand, Order};
use crate::exit::Failure;
use crate::interruptible;
use crate::output::{
    BAD, BOLD, BUSY, Cell, DIM, GOOD, Table, WARN, ago, instant, paint, short, since, until,
};

/// How many jobs are read at once.
const PAGE: usize = 200;
/// How many are listed unless somebody says.
const LISTED: usize = 50;

/// A job and its attempts.
#[derive(Serialize)]
struct Detail {
    #[serde(flatten)]
    job: view::JobDetail,
    history: Vec<view::Attempt>,
}

pub(super) async fn run(app: &mut App, command: JobsCommand) -> Result<(), Failure> {
    match command {
        JobsCommand::List {
            filter,
            limit,
            after,
            order,
            stream,
        } => {
            let filter = filter.read()?;
            if stream && !app.out.is_json() {
                return Err(Failure::usage("--stream is for --json"));
            }
            let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
            let pages = Pages {
                filter,
                order,
                after,
            };
            match stream {
                true => interruptible(pages.stream(app, limit.unwrap_or(usize::MAX))).await,
                false => interruptible(pages.list(app, limit.unwrap_or(LISTED))).await,
            }
        }
        JobsCommand::Show { id, payload } => interruptible(show(app, id, payload)).await,
        // These say what they have done until Ctrl-C.
        JobsCommand::Retry { ids } => bulk::retry(app, &ids).await,
        JobsCommand::Cancel { ids, bulk } => bulk::cancel(app, &ids, bulk).await,
        JobsCommand::Requeue { bulk } => bulk::requeue(app, bulk).await,
        JobsCommand::Purge(purge) => bulk::purge(app, purge).await,
    }
}

struct Pages {
    filter: JobFilter,
    order: Order,
    after: Option<JobId>,
}

impl Pages {
    async fn next(&mut self, client: &Client, limit: usize) -> Result<view::Jobs, Failure> {
        let page = PageRequest::first(limit)
            .order(self.order.read())
            .after(self.after)
            .outlines();
        let page = client.list(&self.filter, &page).await?;
        self.after = page.next;
        Ok(view::Jobs::from(&page))
    }

    /// A line for each job, until there are no more or it is enough.
    async fn stream(mut self, app: &mut App, limit: usize) -> Result<(), Failure> {
        let client = app.client().await?;
        let mut left = limit;
        while left > 0 {
            let page = self.next(&client, PAGE.min(left)).await?;
            left -= page.jobs.len().min(left);
            for job in page.jobs {
                app.out.record(&job)?;
            }
            if self.after.is_none() {
                break;
            }
        }
        Ok(())
    }

    async fn list(mut self, app: &mut App, limit: usize) -> Result<(), Failure> {
        let client = app.client().await?;
        let now = client.database_time().await?;
        let mut listed = view::Jobs {
            jobs: Vec::new(),
            next: None,
        };
        while listed.jobs.len() < limit {
            let page = self
                .next(&client, PAGE.min(limit - listed.jobs.len()))
                .await?;
            listed.jobs.extend(page.jobs);
            listed.next = page.next;
            if listed.next.is_none() {
                break;
            }
        }
        if app.out.is_json() {
            return app.out.document(&listed);
        }
        app.out.table(&table(&listed.jobs, now), "no jobs match")?;
        match listed.next {
            Some(next) => app
                .out
                .line(paint(DIM, format_args!("more: --after {next}"))),
            None => Ok(()),
        }
    }
}

pub(super) fn table(jobs: &[view::Job], now: Timestamp) -> Table {
    let mut table = Table::new(["ID", "KIND", "QUEUE", "STATE", "WHEN", ">ATTEMPTS", "ERROR"]);
    for job in jobs {
        let error = job.last_error.as_deref().unwrap_or_default();
        table.row([
            job.id.as_str().into(),
            job.kind.as_str().into(),
            job.queue.as_str().into(),
            state(job.state.into()),
            when(job, now).into(),
            format!("{}/{}", job.attempts, job.max_attempts).into(),
            Cell::styled(short(error, 60), DIM),
        ]);
    }
    table
}

/// The time that matters most in the job's state.
fn when(job: &view::Job, now: Timestamp) -> String {
    match (job.finished_at, job.claimed_at, job.state) {
        (Some(at), _, _) | (None, Some(at), _) => ago(at.0, now),
        (None, None, view::State::Pending) if job.run_at.0 <= now => {
            format!("due {}", ago(job.run_at.0, now))
        }
        _ => until(job.run_at.0, now),
    }
}

pub(super) fn state(state: JobState) -> Cell {
    let style = match state {
        JobState::Pending => anstyle::Style::new(),
        JobState::Blocked | JobState::Paused => WARN,
        JobState::Running => BUSY,
        JobState::Succeeded => GOOD,
        JobState::Failed => BAD,
        JobState::Cancelled => DIM,
    };
    Cell::styled(state.to_string(), style)
}

pub(super) fn absent(id: JobId) -> Failure {
    Failure::not_found(format!("there is no job {id}"))
        .remedy("It may have been purged, or be in the archive.")
}

async fn show(app: &mut App, id: JobId, payload: bool) -> Result<(), Failure> {
    let client = app.client().await?;
    let now = client.database_time().await?;
    let record = client.job(id).await?.ok_or_else(|| absent(id))?;
    let history = client.history(id).await?;
    let history: Vec<view::Attempt> = history.iter().map(view::Attempt::from).collect();
    let hidden = if payload {
        view::Hidden::No
    } else {
        view::Hidden::Yes
    };
    let job = view::JobDetail::new(&record, hidden);
    if app.out.is_json() {
        return app.out.document(&Detail { job, history });
    }
    app.out.fields(fields(&job, now))?;
    if history.is_empty() {
        return Ok(());
    }
    app.out.line("")?;
    app.out.line(paint(BOLD, "Attempts"))?;
    app.out.table(&attempts(&history, now), "")
}

fn fields(detail: &view::JobDetail, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let job = &detail.job;
    let at = |at: view::At| format!("{} ({})", instant(at.0), until(at.0, now));
    let text = |text: &Option<String>| text.clone().map(Cell::from);
    let json = |json: &Option<Box<serde_json::value::RawValue>>| {
        json.as_ref().map(|json| Cell::styled(json.get(), DIM))
    };
    let timeout = detail.timeout_ms.map(std::time::Duration::from_millis);
    let tags = (!job.tags.is_empty()).then(|| job.tags.join(", "));
    let rows: [(&str, Option<Cell>); 24] = [
        ("id", Some(job.id.as_str().into())),
        ("kind", Some(job.kind.as_str().into())),
        ("queue", Some(job.queue.as_str().into())),
        ("lane", text(&job.lane)),
        ("state", Some(state(job.state.into()))),
        ("priority", Some(word(&job.priority))),
        ("created", Some(at(job.created_at).into())),
        ("due", Some(at(job.run_at).into())),
        ("claimed", job.claimed_at.map(|claimed| at(claimed).into())),
        (
            "finished",
            job.finished_at.map(|finished| at(finished).into()),
        ),
        ("node", text(&job.node)),
        (
            "attempts",
            Some(format!("{} of {}", job.attempts, job.max_attempts).into()),
        ),
        (
            "lost claims",
            (job.crash_count > 0).then(|| job.crash_count.into()),
        ),
        (
            "cancel",
            job.cancel_requested
                .then(|| Cell::styled("requested", WARN)),
        ),
        (
            "progress",
            (job.progress.as_ref())
                .map(|done| format!("{} % {}", done.percent, done.message).into()),
        ),
        ("capability", text(&job.capability)),
        ("permit", text(&job.permit)),
        ("tags", tags.map(Cell::from)),
        ("unique key", text(&job.unique_key)),
        ("timeout", timeout.map(|timeout| since(timeout).into())),
        (
            "error",
            job.last_error
                .as_ref()
                .map(|error| Cell::styled(error, BAD)),
        ),
        ("payload", json(&detail.payload)),
        ("checkpoint", json(&detail.checkpoint)),
        ("result", json(&detail.result)),
    ];
    let set = rows
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    set.collect()
}

/// The word that JSON has for it.
fn word(value: &impl Serialize) -> Cell {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().into()
}

fn attempts(history: &[view::Attempt], now: Timestamp) -> Table {
    let mut table = Table::new([">CLAIM", "OUTCOME", "ENDED", "RAN", "NODE", "ERROR"]);
    for attempt in history {
        let ran = attempt.ran_for_ms.map(std::time::Duration::from_millis);
        let error = attempt.error.as_deref().unwrap_or_default();
        table.row([
            attempt.seq.into(),
            word(&attempt.outcome),
            ago(attempt.ended_at.0, now).into(),
            ran.map_or(String::new(), since).into(),
            Cell::styled(attempt.node.as_deref().unwrap_or_default(), DIM),
            short(error, 80).into(),
        ]);
    }
    table
}
