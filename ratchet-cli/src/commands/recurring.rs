//! `ratchet recurring`: lists, shows, pauses, resumes and triggers recurring definitions.

use ratchet::{Changed, Enqueued, RecurringClient, RecurringRecord, Timestamp};
use ratchet_http::view;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::app::App;
use crate::args::RecurringCommand;
use crate::exit::Failure;
use crate::output::{Cell, DIM, Table, WARN, ago, instant, until};

/// Maximum number of definitions that one call of the store reads.
const PAGE: usize = 200;

/// JSON output of `recurring show`: the definition, and the payload of its jobs if the user gave
/// `--payload`.
#[derive(Serialize)]
struct Detail {
    #[serde(flatten)]
    definition: view::RecurringJob,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

pub(super) async fn run(app: &mut App, command: Option<RecurringCommand>) -> Result<(), Failure> {
    let client = app.client().await?;
    let now = client.database_time().await?;
    let recurring = client.recurring();
    match command {
        None | Some(RecurringCommand::List) => list(app, &recurring, now).await,
        Some(RecurringCommand::Show { name, payload }) => {
            let record = get(&recurring, &name).await?;
            show(app, &record, payload, now)
        }
        Some(RecurringCommand::Pause { name }) => {
            get(&recurring, &name).await?;
            let changed = recurring.pause(&name).await?;
            tell(
                app,
                changed,
                "The definition is paused: no more slots are fired until it is resumed.",
            )
        }
        Some(RecurringCommand::Resume { name }) => {
            get(&recurring, &name).await?;
            let changed = recurring.resume(&name).await?;
            tell(app, changed, "The definition continues with its next slot.")
        }
        Some(RecurringCommand::Trigger { name }) => trigger(app, &recurring, &name).await,
    }
}

fn absent(name: &str) -> Failure {
    Failure::not_found(format!("there is no recurring definition `{name}`"))
        .remedy("`ratchet recurring list` lists the definitions.")
}

async fn get(recurring: &RecurringClient, name: &str) -> Result<RecurringRecord, Failure> {
    recurring.get(name).await?.ok_or_else(|| absent(name))
}

async fn list(app: &mut App, recurring: &RecurringClient, now: Timestamp) -> Result<(), Failure> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = recurring.list(after.as_ref(), PAGE).await?;
        all.extend(page.definitions.iter().map(view::RecurringJob::from));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if app.out.is_json() {
        let next = None;
        return app.out.document(&view::Recurrings {
            recurring: all,
            next,
        });
    }
    let mut table = Table::new(["NAME", "", "SCHEDULE", "NEXT", "LAST", "KIND", "QUEUE"]);
    for one in all {
        let paused = if one.paused { "paused" } else { "" };
        table.row([
            one.name.as_str().into(),
            Cell::styled(paused, WARN),
            schedule(&one).into(),
            one.next_at
                .map_or("none".to_owned(), |at| until(at.0, now))
                .into(),
            one.last_at
                .map_or("never".to_owned(), |at| ago(at.0, now))
                .into(),
            one.kind.into(),
            one.queue.into(),
        ]);
    }
    app.out.table(&table, "no recurring definitions")
}

fn schedule(one: &view::RecurringJob) -> String {
    match &one.zone {
        Some(zone) => format!("{} ({zone})", one.schedule),
        None => one.schedule.clone(),
    }
}

fn show(
    app: &mut App,
    record: &RecurringRecord,
    payload: bool,
    now: Timestamp,
) -> Result<(), Failure> {
    let json = payload.then(|| record.definition.job().payload.as_str().to_owned());
    let definition = view::RecurringJob::from(record);
    if app.out.is_json() {
        let payload = json.and_then(|json| RawValue::from_string(json).ok());
        return app.out.document(&Detail {
            definition,
            payload,
        });
    }
    let one = definition;
    let at = |at: Option<view::At>| match at {
        Some(at) => format!("{} ({})", instant(at.0), until(at.0, now)),
        None => "none".to_owned(),
    };
    let mut fields: Vec<(&str, Cell)> = vec![
        ("name", one.name.as_str().into()),
        ("schedule", schedule(&one).into()),
        ("state", if one.paused { "paused" } else { "on" }.into()),
        ("next slot", at(one.next_at).into()),
        ("last slot", at(one.last_at).into()),
        ("kind", one.kind.as_str().into()),
        ("queue", one.queue.as_str().into()),
        ("misfire", one.misfire.as_str().into()),
        ("overlap", one.overlap.as_str().into()),
        (
            "unique key",
            one.unique_key.as_deref().unwrap_or("none").into(),
        ),
        (
            "declared",
            if one.declared { "by a program" } else { "no" }.into(),
        ),
        ("created", at(Some(one.created_at)).into()),
    ];
    fields.extend(json.map(|json| ("payload", Cell::styled(json, DIM))));
    app.out.fields(fields)
}

fn tell(app: &mut App, changed: Changed, done: &str) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.document(&view::Changed::from(changed));
    }
    app.out.line(match changed {
        Changed::Changed => done,
        Changed::Unchanged => "Nothing to change: the definition is in this state already.",
    })
}

async fn trigger(app: &mut App, recurring: &RecurringClient, name: &str) -> Result<(), Failure> {
    let enqueued = recurring.trigger(name).await;
    let enqueued = enqueued.map_err(Failure::of_unrepeatable)?;
    let enqueued = enqueued.ok_or_else(|| absent(name))?;
    let (job, created) = match enqueued {
        Enqueued::Created(job) => (job.to_string(), true),
        other => (other.id().to_string(), false),
    };
    if app.out.is_json() {
        return app.out.document(&view::Triggered { job, created });
    }
    match created {
        true => app.out.line(format_args!("Enqueued {job}.")),
        false => app.out.line(format_args!(
            "Nothing was enqueued: the earlier job {job} has not ended."
        )),
    }
}
