//! `ratchet jobs`: lists and shows jobs. The module `bulk` contains the actions.

use std::collections::BTreeMap;

use ratchet::{Client, JobAction, JobFilter, JobId, JobState, NodeRecord, PageRequest, Timestamp};
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

/// Maximum number of jobs that one call reads.
const PAGE: usize = 200;
/// Maximum number of jobs that `ratchet jobs list` shows by default.
const LISTED: usize = 50;

/// The JSON output of `ratchet jobs show`: a job and its attempts.
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
                return Err(Failure::usage("--stream needs --json"));
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
        // The actions handle Ctrl-C themselves: before they end, they print the outcomes so far.
        JobsCommand::Retry { ids } => bulk::act_on(app, &ids, JobAction::Requeue).await,
        JobsCommand::Pause { ids } => bulk::act_on(app, &ids, JobAction::Pause).await,
        JobsCommand::Resume { ids } => bulk::act_on(app, &ids, JobAction::Resume).await,
        JobsCommand::Delete { ids, yes } => bulk::delete_named(app, &ids, yes).await,
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
            .detail(ratchet::Detail::Outline);
        let page = client.list(&self.filter, &page).await?;
        self.after = page.next;
        Ok(view::Jobs::from(&page))
    }

    /// Writes one line of JSON for each job, for at most `limit` jobs.
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

/// Returns the most relevant time of the job as a text: the time when it ended, was claimed, or is
/// due.
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
        .remedy("It may have been deleted or archived.")
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
    let labels = labels(&client).await?;
    app.out.fields(fields(&job, &labels, now))?;
    if history.is_empty() {
        return Ok(());
    }
    app.out.line("")?;
    app.out.line(paint(BOLD, "Attempts"))?;
    let told = job.job.last_error.as_deref();
    app.out.table(&attempts(&history, told, &labels, now), "")
}

/// Returns the label of each node by its id. The map lacks nodes that ended more than a day ago.
async fn labels(client: &Client) -> Result<BTreeMap<String, String>, Failure> {
    let nodes = client.nodes().await?;
    let label = |node: &NodeRecord| (node.node.to_string(), node.label.to_string());
    Ok(nodes.iter().map(label).collect())
}

/// Splits a text, such as a stack trace, into lines. Replaces each tab by spaces.
fn lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| line.replace('\t', "    "))
}

fn fields(
    detail: &view::JobDetail,
    labels: &BTreeMap<String, String>,
    now: Timestamp,
) -> Vec<(&'static str, Cell)> {
    let job = &detail.job;
    let at = |at: view::At| format!("{} ({})", instant(at.0), until(at.0, now));
    let text = |text: &Option<String>| text.clone().map(Cell::from);
    let json = |json: &Option<Box<serde_json::value::RawValue>>| {
        json.as_ref().map(|json| Cell::styled(json.get(), DIM))
    };
    let timeout = detail.timeout_ms.map(std::time::Duration::from_millis);
    let node = job.node.as_ref().map(|id| match labels.get(id) {
        Some(label) => format!("{label} ({id})"),
        None => id.clone(),
    });
    let tags = (!job.tags.is_empty()).then(|| job.tags.join(", "));
    let rows: [(&str, Option<Cell>); 25] = [
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
            job.finished_at.map(|finished| match job.expired {
                true => format!("{}, expired", at(finished)).into(),
                false => at(finished).into(),
            }),
        ),
        ("expires", job.expires_at.map(|expiry| at(expiry).into())),
        ("node", node.map(Cell::from)),
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
        ("fair key", text(&job.fair_key)),
        ("tags", tags.map(Cell::from)),
        ("unique key", text(&job.unique_key)),
        ("timeout", timeout.map(|timeout| since(timeout).into())),
        ("payload", json(&detail.payload)),
        ("checkpoint", json(&detail.checkpoint)),
        ("result", json(&detail.result)),
    ];
    let set = rows
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let error = job.last_error.as_deref().unwrap_or_default();
    let names = std::iter::once("error").chain(std::iter::repeat(""));
    let error = names.zip(lines(error).map(|line| Cell::styled(line, BAD)));
    set.chain(error).collect()
}

/// Returns a table cell with the text that the JSON output uses for an enum value, such as
/// `normal`.
fn word(value: &impl Serialize) -> Cell {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().into()
}

/// Returns the table of a job's attempts. Shows errors in full. Only the error `told` is shortened,
/// because the caller already shows it in full above the table.
fn attempts(
    history: &[view::Attempt],
    told: Option<&str>,
    labels: &BTreeMap<String, String>,
    now: Timestamp,
) -> Table {
    let mut table = Table::new([">CLAIM", "OUTCOME", "ENDED", "RAN", "NODE", "ERROR"]);
    for attempt in history {
        let ran = attempt.ran_for_ms.map(std::time::Duration::from_millis);
        let error = attempt.error.as_deref().unwrap_or_default();
        let mut error = lines(error);
        let first = error.next().unwrap_or_default();
        let (first, rest) = match attempt.error.as_deref() == told {
            true => (short(&first, 80), None),
            false => (first, Some(error)),
        };
        let id = attempt.node.as_deref().unwrap_or_default();
        let node = labels.get(id).map_or(id, String::as_str);
        table.row([
            attempt.seq.into(),
            word(&attempt.outcome),
            ago(attempt.ended_at.0, now).into(),
            ran.map_or(String::new(), since).into(),
            Cell::styled(node, DIM),
            first.into(),
        ]);
        for line in rest.into_iter().flatten() {
            let empty = || Cell::from("");
            table.row([empty(), empty(), empty(), empty(), empty(), line.into()]);
        }
    }
    table
}
