//! The route that drains a node.

use axum::Json;
use axum::extract::State;
use ratchet_core::NodeId;
use ratchet_core::store::Changed as StoreChanged;

use super::inputs::{self, Id};
use super::table::{Route, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract::{NoBody, Path};
use crate::problem::{Code, Problem};
use crate::view::Changed;

pub(super) fn routes() -> Vec<Route> {
    vec![
        post(
            "/api/nodes/{id}/drain",
            Access::Write(Action::DrainNode),
            drain,
        )
        .says(
            "Asks a node to drain: from its next heartbeat on, the node claims no more jobs and \
             finishes the jobs that it has claimed",
        )
        .part::<Id>("id")
        .ok::<Changed>("The node is draining; `changed` is false if it was draining already")
        .refuses(&[Code::NotFound, Code::Conflict, Code::Unavailable]),
    ]
}

async fn drain(
    State(api): State<Api>,
    Path(id): Path<String>,
    _: NoBody,
) -> Result<Json<Changed>, Problem> {
    let id: NodeId = inputs::id("id", &id)?;
    let changed = api.client().drain_node(id).await?;
    if changed == StoreChanged::Unchanged {
        let nodes = api.client().nodes().await?;
        let node = nodes.iter().find(|node| node.node == id);
        let node = node.ok_or_else(|| Problem::not_found("no node has this id"))?;
        if !node.status.is_live() {
            return Err(Problem::new(Code::Conflict, "the node has ended"));
        }
    }
    Ok(Json(changed.into()))
}
