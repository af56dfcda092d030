use ratchet_core::Fence;
use schemars::JsonSchema;
use serde::Serialize;

/// The response of `/health`: the process is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Health {
    /// Always `ok`.
    pub status: &'static str,
    /// The version of Ratchet.
    pub version: &'static str,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            status: "ok",
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The response of `/ready`: whether this process should get work and traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Readiness {
    /// Whether the process is ready.
    pub status: Ready,
    /// The reasons why it is not ready; missing if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<NotReady>,
}

impl Readiness {
    /// Creates the response: ready if there are no reasons against it.
    #[must_use]
    pub const fn new(reasons: Vec<NotReady>) -> Self {
        let status = if reasons.is_empty() {
            Ready::Ready
        } else {
            Ready::NotReady
        };
        Self { status, reasons }
    }
}

/// The status in a [`Readiness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// The process is ready.
    Ready,
    /// The process is not ready.
    NotReady,
}

/// A reason why a process is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotReady {
    /// The node was built, but its future is not running.
    NotRunning,
    /// The node has not joined the cluster yet.
    Joining,
    /// The node finishes its running jobs and claims no more.
    Draining,
    /// The node has shut down gracefully.
    Left,
    /// The node was displaced by another node with its label, or stopped without a graceful
    /// shutdown.
    Dead,
    /// The database does not respond.
    Database,
    /// For at least 30 s, jobs have been due that no node in the cluster can run.
    Stranded,
    /// Jobs are due, and no node in the cluster is live, as in `nothing_runs` of the overview.
    NothingRuns,
}

/// The response of `/leader`: whether the node of this process leads in a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Leading {
    /// The role.
    pub role: String,
    /// Whether the node leads, as far as the node itself can know.
    pub is_leader: bool,
    /// The term of the node; missing unless it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

impl Leading {
    /// Creates the response: the node leads in this term, or does not lead if `term` is `None`.
    #[must_use]
    pub fn new(role: &str, term: Option<Fence>) -> Self {
        Self {
            role: role.to_owned(),
            is_leader: term.is_some(),
            term: term.map(|term| term.0),
        }
    }
}
