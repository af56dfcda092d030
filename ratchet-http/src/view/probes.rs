use ratchet_core::Fence;
use schemars::JsonSchema;
use serde::Serialize;

/// Response of `/health`. The response shows that the process is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Health {
    /// Status of the process, which is always `ok`.
    pub status: &'static str,
    /// Version of Ratchet.
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

/// Response of `/ready`: whether this process is ready for work and traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Readiness {
    /// Whether the process is ready.
    pub status: Ready,
    /// Reasons why the process is not ready. Missing if the process is ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<NotReady>,
}

impl Readiness {
    /// Creates the response. The process is ready if `reasons` is empty.
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

/// Whether a process is ready, as reported in a [`Readiness`].
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
    /// The node was built, but is not running: no call of its method `run_until` is in progress.
    NotRunning,
    /// The node has not joined the cluster yet.
    Joining,
    /// The node is draining: it finishes its running jobs and claims no more jobs.
    Draining,
    /// The node has shut down gracefully.
    Left,
    /// The node stopped without a graceful shutdown, or another node with the same label displaced
    /// the node.
    Dead,
    /// The database does not respond.
    Database,
    /// Jobs are due that no node in the cluster can run. This has been the case for at least 30 s.
    Stranded,
    /// Jobs are due, and no node in the cluster is live. The overview reports the same in
    /// `nothing_runs`.
    NothingRuns,
}

/// Response of `/leader`: whether the node of this process is the leader of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Leading {
    /// Name of the role.
    pub role: String,
    /// Whether the node is the leader of the role, as far as the node knows.
    pub is_leader: bool,
    /// Fencing token of the node's term as leader. Missing if the node is not the leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

impl Leading {
    /// Creates the response. `term` is the node's term as leader of the role, or `None` if the node
    /// is not the leader.
    #[must_use]
    pub fn new(role: &str, term: Option<Fence>) -> Self {
        Self {
            role: role.to_owned(),
            is_leader: term.is_some(),
            term: term.map(|term| term.0),
        }
    }
}
