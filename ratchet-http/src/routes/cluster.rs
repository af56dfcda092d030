//! The routes of the cluster: the status of this process, and the list of all nodes and leaders.

use axum::Json;
use axum::extract::State;
use ratchet_core::NodeId;
use ratchet_core::model::NodeRecord;

use super::inputs::{self, AfterId};
use super::probes::{leading, own_role};
use super::table::{Route, get};
use crate::api::Api;
use crate::extract::Query;
use crate::problem::{Code, Problem};
use crate::view::{Cluster, Node, Role, Status};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/cluster/status", status)
            .says("Returns the status of this process, without a query of the database.")
            .ok::<Status>("The node, its roles, and the state of the cluster as last read."),
        get("/cluster/nodes", nodes)
            .says("Returns a page of the nodes, and all leaders, read at most a few seconds ago.")
            .query::<AfterId>()
            .ok::<Cluster>("The page of nodes, including ended ones, and one entry for each role.")
            .refuses(&[Code::Unavailable]),
    ]
}

async fn status(State(api): State<Api>) -> Json<Status> {
    let info = api.client().store().info();
    api.sampler().ask();
    let read = api.sampler().last_cluster();
    let node = api.node();
    let own = node.map(ratchet_core::Node::id);
    let others = |cluster: &crate::sampler::Cluster| {
        let mut live = cluster.live();
        live.any(|record| Some(record.node) != own)
    };
    let clustered = read.as_deref().is_some_and(others);
    let role = match node {
        None => Role::NoNode,
        Some(node) if !clustered && node.gate().is_none() => Role::SingleNode,
        Some(_) if leading(&api, own_role(&api)).is_leader => Role::Primary,
        Some(_) => Role::Standby,
    };
    let roles = node.map(ratchet_core::Node::roles).unwrap_or_default();
    let namespaces = api.namespaces().iter().map(ToString::to_string);
    Json(Status {
        node: node.map(Into::into),
        role,
        clustered,
        leadership: roles
            .iter()
            .map(|role| leading(&api, role.as_str()))
            .collect(),
        versions: match &read {
            Some(read) => namespaces.zip(read.versions.iter().copied()).collect(),
            None => std::collections::BTreeMap::new(),
        },
        backend: info.backend,
        backend_version: info.version,
        version: env!("CARGO_PKG_VERSION"),
        writes: api.writes(),
        page: api.limits().page,
    })
}

async fn nodes(
    State(api): State<Api>,
    Query(query): Query<AfterId>,
) -> Result<Json<Cluster>, Problem> {
    let after: Option<NodeId> = inputs::optional_id("after", query.after.as_deref())?;
    let limit = inputs::page_from_memory(&api, query.limit)?;
    let read = api.sampler().cluster().await?;
    let leaders = read.leaders();
    let own = api.node().map(|node| (node.id(), node.stats()));
    let records = read.nodes.iter();
    let mut records: Vec<&NodeRecord> = records
        .filter(|record| after.is_none_or(|after| record.node > after))
        .collect();
    records.sort_by_key(|record| record.node);
    let next = inputs::first_page(&mut records, limit, |record| record.node.to_string());
    let nodes = records.into_iter().map(|record| {
        let mut node = Node::new(record, read.at);
        let led = leaders
            .iter()
            .filter(|leader| leader.node.as_ref() == Some(&node.id));
        node.leads = led.map(|leader| leader.role.clone()).collect();
        let own = own.filter(|(id, _)| *id == record.node);
        node.clock_skew_ms = own.map(|(_, stats)| stats.clock_skew_millis);
        node
    });
    Ok(Json(Cluster {
        nodes: nodes.collect(),
        leaders,
        next,
    }))
}
