//! `ratchet nodes`: lists and drains nodes.

use ratchet::{Changed, Client, Leader, NodeId, NodeRecord, Timestamp};
use ratchet_http::view;

use crate::app::App;
use crate::args::NodesCommand;
use crate::exit::Failure;
use crate::output::{BAD, Cell, DIM, GOOD, Table, WARN, ago, bytes};

pub(super) async fn run(app: &mut App, command: NodesCommand) -> Result<(), Failure> {
    match command {
        NodesCommand::List { all } => list(app, all).await,
        NodesCommand::Drain { node } => drain(app, &node).await,
    }
}

async fn list(app: &mut App, all: bool) -> Result<(), Failure> {
    let client = app.client().await?;
    let now = client.database_time().await?;
    let mut cluster = cluster(&client, now).await?;
    if !all {
        cluster.nodes.retain(|node| node.live);
    }
    if app.out.is_json() {
        return app.out.document(&cluster);
    }
    let none = match all {
        true => "no nodes",
        false => "no live nodes; --all lists those that have ended",
    };
    app.out.table(&table(&cluster.nodes, now), none)
}

/// Reads the nodes and the leaders from the database.
pub(super) async fn cluster(client: &Client, now: Timestamp) -> Result<view::Cluster, Failure> {
    let nodes = client.nodes().await?;
    let leaders = client.leaders(&nodes).await?;
    Ok(joined(&nodes, &leaders, now))
}

/// Combines the nodes and the leaders into one view. The view shows for each node the roles in
/// which it leads.
pub(super) fn joined(records: &[NodeRecord], leaders: &[Leader], now: Timestamp) -> view::Cluster {
    let nodes = records.iter().map(|record| {
        let mut node = view::Node::new(record, now);
        let led = leaders
            .iter()
            .filter(|leader| leader.node == Some(record.node));
        node.leads = led.map(|leader| leader.role.to_string()).collect();
        node
    });
    let leaders = leaders.iter().map(|leader| {
        let record = records
            .iter()
            .find(|record| Some(record.node) == leader.node);
        view::Leader::new(
            leader.role.to_string(),
            leader.node.map(|node| node.to_string()),
            record.map(|record| record.label.to_string()),
            leader.term.0,
            leader.remaining.map(view::millis),
        )
    });
    view::Cluster {
        nodes: nodes.collect(),
        leaders: leaders.collect(),
        next: None,
    }
}

pub(super) fn table(nodes: &[view::Node], now: Timestamp) -> Table {
    let mut table = Table::new([
        "LABEL",
        "STATUS",
        ">RUNNING",
        ">CAPACITY",
        ">CPU",
        ">MEMORY",
        "SEEN",
        "STARTED",
        "LEADS",
        "ID",
    ]);
    for node in nodes {
        let percent = node
            .cpu_percent
            .map_or(String::new(), |cpu| format!("{cpu} %"));
        table.row([
            node.label.as_str().into(),
            status(node),
            node.running.into(),
            node.capacity.into(),
            percent.into(),
            node.memory_bytes.map_or(String::new(), bytes).into(),
            ago(node.last_seen_at.0, now).into(),
            ago(node.started_at.0, now).into(),
            node.leads.join(", ").into(),
            Cell::styled(&node.id, DIM),
        ]);
    }
    table
}

fn status(node: &view::Node) -> Cell {
    use view::NodeStatus::{Active, Dead, Draining, Joining, Left};
    match node.status {
        Joining | Active | Draining if !node.live => Cell::styled("silent", BAD),
        Joining => Cell::styled("joining", WARN),
        Active => Cell::styled("active", GOOD),
        Draining => Cell::styled("draining", WARN),
        Left => Cell::styled("left", DIM),
        Dead => Cell::styled("dead", BAD),
    }
}

async fn drain(app: &mut App, name: &str) -> Result<(), Failure> {
    let client = app.client().await?;
    let node = find(&client, name).await?;
    let changed = client.drain_node(node).await?;
    if app.out.is_json() {
        return app.out.document(&view::Changed::from(changed));
    }
    app.out.line(match changed {
        Changed::Changed => "The node will drain from its next heartbeat on.",
        Changed::Unchanged => "The node is draining already.",
    })
}

/// Returns the id of the live node that has `name` as its id or its label.
async fn find(client: &Client, name: &str) -> Result<NodeId, Failure> {
    let nodes = client.nodes().await?;
    let named = |node: &&NodeRecord| node.label.as_str() == name || node.node.to_string() == name;
    let mut found: Vec<_> = nodes.iter().filter(named).collect();
    if found.is_empty() {
        return Err(Failure::not_found(format!("there is no node `{name}`"))
            .remedy("`ratchet nodes list` lists the nodes."));
    }
    found.retain(|node| node.status.is_live());
    match found[..] {
        [node] => Ok(node.node),
        [] => Err(Failure::refused(format!("the node `{name}` has ended"))),
        _ => Err(
            Failure::refused(format!("several live nodes have the label `{name}`"))
                .remedy("Give the id of the node."),
        ),
    }
}
