//! `ratchet queues`: lists, pauses and resumes queues.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet::{Changed, Client, JobState, Name, PauseScope};
use ratchet_http::view;

use super::pauses;
use crate::app::App;
use crate::args::QueuesCommand;
use crate::exit::Failure;
use crate::output::{BAD, Cell, DIM, GOOD, Table, WARN, number, since};

pub(super) async fn run(app: &mut App, command: Option<QueuesCommand>) -> Result<(), Failure> {
    let client = app.client().await?;
    match command {
        None | Some(QueuesCommand::List) => {
            let queues = queues(&client).await?;
            if app.out.is_json() {
                return app.out.document(&queues);
            }
            app.out.table(
                &table(&queues.queues),
                "no queues: nothing was ever enqueued",
            )
        }
        Some(QueuesCommand::Pause { queue, why, new }) => {
            if !new {
                let remedy = "`ratchet queues list` lists the queues; --new pauses one before its \
                              first job.";
                exists(&client, &queue, remedy).await?;
            }
            pauses::pause(app, &client, PauseScope::queue(queue)?, why).await
        }
        Some(QueuesCommand::Resume { queue }) => {
            let scope = PauseScope::queue(&queue)?;
            let changed = client.end_pause(&scope).await?;
            if changed == Changed::Unchanged {
                exists(&client, &queue, "`ratchet queues list` lists the queues.").await?;
            }
            pauses::done(app, changed, "The queue was not paused.")
        }
    }
}

/// Fails if the queue is unknown, because its name is then probably mistyped. The error contains
/// the text `remedy`.
async fn exists(client: &Client, queue: &str, remedy: &str) -> Result<(), Failure> {
    let queues = client.queues().await?;
    if queues.iter().any(|known| known.name.as_str() == queue) {
        return Ok(());
    }
    let unknown = format!(
        "there is no queue `{queue}`: no job is stored in it, and it is not \
         paused"
    );
    Err(Failure::not_found(unknown).remedy(remedy))
}

/// Reads the queues. For each queue, returns the number of jobs by state, and the time for which
/// its oldest due job has been due.
pub(super) async fn queues(client: &Client) -> Result<view::Queues, Failure> {
    let at = client.database_time().await?;
    let mut overdue: BTreeMap<Name, Duration> = BTreeMap::new();
    for due in client.due_routes().await? {
        let longest = overdue.entry(due.route.queue).or_default();
        *longest = due.overdue.max(*longest);
    }
    let queue = |queue: ratchet::QueueInfo| {
        let late = overdue.get(&queue.name).copied().map(view::millis);
        view::Queue::new(
            queue.name.to_string(),
            queue.paused,
            Some((&queue.counts).into()),
            late,
        )
    };
    let queues = client.queues().await?.into_iter().map(queue).collect();
    let at = Some(at.into());
    Ok(view::Queues {
        queues,
        counts_at: at,
        due_at: at,
        next: None,
    })
}

pub(super) fn table(queues: &[view::Queue]) -> Table {
    let mut table = Table::new([
        "QUEUE",
        "",
        ">PENDING",
        ">BLOCKED",
        ">PAUSED",
        ">RUNNING",
        ">SUCCEEDED",
        ">FAILED",
        ">CANCELLED",
        ">OLDEST DUE",
    ]);
    for queue in queues {
        let count = |state: JobState| {
            let count = queue.count(state.into()).unwrap_or(0);
            let style = match state {
                _ if count == 0 => DIM,
                JobState::Failed => BAD,
                JobState::Running => GOOD,
                _ => anstyle::Style::new(),
            };
            Cell::styled(number(count), style)
        };
        let paused = if queue.paused { "paused" } else { "" };
        let late = queue.overdue_ms.map(Duration::from_millis);
        table.row([
            queue.name.as_str().into(),
            Cell::styled(paused, WARN),
            count(JobState::Pending),
            count(JobState::Blocked),
            count(JobState::Paused),
            count(JobState::Running),
            count(JobState::Succeeded),
            count(JobState::Failed),
            count(JobState::Cancelled),
            late.map_or(String::new(), since).into(),
        ]);
    }
    table
}
