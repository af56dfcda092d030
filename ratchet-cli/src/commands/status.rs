//! `ratchet status`: prints a summary of the cluster.

use std::time::Duration;

use ratchet_http::view;
use serde::Serialize;

use super::{nodes, queues};
use crate::app::App;
use crate::exit::Failure;
use crate::output::{BAD, BOLD, Cell, GOOD, Table, WARN, clean, instant, paint, since};

#[derive(Serialize)]
struct Status {
    backend: &'static str,
    version: String,
    at: view::At,
    live_nodes: usize,
    running: u64,
    capacity: u64,
    #[serde(flatten)]
    cluster: view::Cluster,
    #[serde(flatten)]
    queues: view::Queues,
    /// How long the oldest due job has been due, in milliseconds. Jobs of paused queues and kinds
    /// do not count.
    oldest_due_ms: Option<u64>,
    stranded: Vec<view::StrandedRoute>,
}

pub(super) async fn run(app: &mut App) -> Result<(), Failure> {
    let client = app.client().await?;
    let info = client.store().info();
    let now = client.database_time().await?;
    let due = client.due_routes().await?;
    let oldest = due
        .iter()
        .filter(|due| !due.is_paused())
        .map(|due| due.overdue)
        .max();
    let mut cluster = nodes::cluster(&client, now).await?;
    cluster.nodes.retain(|node| node.live);
    let status = Status {
        backend: info.backend,
        version: info.version,
        at: now.into(),
        live_nodes: cluster.nodes.len(),
        running: cluster
            .nodes
            .iter()
            .map(|node| u64::from(node.running))
            .sum(),
        capacity: cluster
            .nodes
            .iter()
            .map(|node| u64::from(node.capacity))
            .sum(),
        cluster,
        queues: queues::queues(&client).await?,
        oldest_due_ms: oldest.map(view::millis),
        stranded: client
            .stranded()
            .await?
            .iter()
            .map(view::StrandedRoute::from)
            .collect(),
    };
    match app.out.is_json() {
        true => app.out.document(&status),
        false => show(app, &status),
    }
}

fn show(app: &mut App, status: &Status) -> Result<(), Failure> {
    let nodes = match status.live_nodes {
        0 => Cell::styled("none: nothing runs", WARN),
        live => format!(
            "{live} live, {} of {} slots in use",
            status.running, status.capacity
        )
        .into(),
    };
    let oldest = status.oldest_due_ms.map(Duration::from_millis);
    let oldest = oldest.map_or_else(
        || Cell::styled("nothing waits", GOOD),
        |late| format!("{} ago", since(late)).into(),
    );
    app.out.fields([
        (
            "database",
            format!("{} {}", status.backend, status.version).into(),
        ),
        ("its time", instant(status.at.0).into()),
        ("nodes", nodes),
        ("oldest due", oldest),
        ("leaders", leaders(&status.cluster.leaders).into()),
    ])?;
    for route in &status.stranded {
        let late = since(Duration::from_millis(route.overdue_ms));
        let text = format!(
            "stranded: no live node has a handler of `{}` (queue {}, due {late} ago)",
            route.kind, route.queue
        );
        app.out.line(paint(BAD, clean(&text)))?;
    }
    app.out.line("")?;
    app.out.line(paint(BOLD, "Queues"))?;
    let none = "none: nothing was ever enqueued";
    app.out.table(&queues::table(&status.queues.queues), none)?;
    if !status.cluster.nodes.is_empty() {
        app.out.line("")?;
        app.out.line(paint(BOLD, "Nodes"))?;
        let table: Table = nodes::table(&status.cluster.nodes, status.at.0);
        app.out.table(&table, "")?;
    }
    Ok(())
}

fn leaders(leaders: &[view::Leader]) -> String {
    let one = |leader: &view::Leader| {
        let who = leader.label.as_deref().or(leader.node.as_deref());
        format!("{}: {}", leader.role, who.unwrap_or("none"))
    };
    match leaders.is_empty() {
        true => "no role has had a leader".to_owned(),
        false => leaders.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}
