//! The probes for load balancers and process supervisors, which every client may call. They use the
//! results of background reads. Only `/ready` waits for such a read, if the last read is old.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ratchet_core::cluster::Leadership;
use ratchet_core::model::NodeStatus;
use ratchet_core::{Name, Node};

use super::table::{Route, get};
use crate::api::Api;
use crate::extract::Path;
use crate::view::{Health, Leading, NotReady, Readiness, Ready};

/// The role that `/leader` reports on. If the node must lead in another role to run jobs, `/leader`
/// reports on that role instead.
const MAINTENANCE: &str = "maintenance";

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/health", health)
            .open()
            .says("Reports that the process is alive; never queries the database")
            .ok::<Health>("The process is alive"),
        get("/ready", ready)
            .open()
            .says("Reports whether this process should get work and traffic")
            .ok::<Readiness>("The process is ready")
            .answers::<Readiness>(
                StatusCode::SERVICE_UNAVAILABLE,
                "The process is not ready; the body lists the reasons",
            ),
        get("/leader", leader)
            .open()
            .says(
                "Reports whether this node leads in the role that it needs to run jobs, or in \
                 maintenance if it needs none",
            )
            .ok::<Leading>("The node leads")
            .answers::<Leading>(StatusCode::SERVICE_UNAVAILABLE, "The node does not lead"),
        get("/leader/{role}", leader_in)
            .open()
            .part::<String>("role")
            .says("Reports whether this node leads in a role")
            .ok::<Leading>("The node leads")
            .answers::<Leading>(StatusCode::SERVICE_UNAVAILABLE, "The node does not lead"),
    ]
}

async fn health() -> Json<Health> {
    Json(Health::default())
}

async fn ready(State(api): State<Api>) -> Response {
    let readiness = readiness(&api).await;
    let status = match readiness.status {
        Ready::Ready => StatusCode::OK,
        Ready::NotReady => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(readiness)).into_response()
}

/// Returns whether the process is ready. If the process is not ready, the result contains the
/// reasons.
async fn readiness(api: &Api) -> Readiness {
    let mut reasons = Vec::new();
    if let Some(node) = api.node() {
        reasons.extend(match node.status() {
            NodeStatus::Left => Some(NotReady::Left),
            NodeStatus::Dead => Some(NotReady::Dead),
            _ if !node.is_running() => Some(NotReady::NotRunning),
            NodeStatus::Joining => Some(NotReady::Joining),
            NodeStatus::Draining => Some(NotReady::Draining),
            NodeStatus::Active => None,
        });
    }
    let fitness = api.sampler().fitness().await;
    if !fitness.database {
        reasons.push(NotReady::Database);
    }
    if fitness.stranded && api.minds_stranded() {
        reasons.push(NotReady::Stranded);
    }
    if fitness.nothing_runs && api.minds_stranded() {
        reasons.push(NotReady::NothingRuns);
    }
    Readiness::new(reasons)
}

async fn leader(State(api): State<Api>) -> Response {
    answer(leading(&api, own_role(&api)))
}

async fn leader_in(State(api): State<Api>, Path(role): Path<String>) -> Response {
    answer(leading(&api, &role))
}

fn answer(leading: Leading) -> Response {
    let status = if leading.is_leader {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(leading)).into_response()
}

/// Returns the role in which the node must lead to run jobs. If the node needs no role for this,
/// the function returns the role for maintenance.
pub(super) fn own_role(api: &Api) -> &str {
    let gate = api.node().and_then(Node::gate);
    gate.map_or(MAINTENANCE, Name::as_str)
}

/// Returns whether this node leads in a role, according to the node's own knowledge.
pub(super) fn leading(api: &Api, role: &str) -> Leading {
    let leadership = api.node().and_then(|node| node.leadership(role));
    Leading::new(role, leadership.as_ref().and_then(Leadership::term))
}
