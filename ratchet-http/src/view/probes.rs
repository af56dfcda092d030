use ratchet_core::Fence;
use schemars::JsonSchema;
use serde::Serialize;

/// The answer of a live process.
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

/// Whether a node should be sent work or traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Readiness {
    /// Whether it should.
    pub status: Ready,
    /// The reasons; absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<NotReady>,
}

impl Readiness {
    /// Ready if there is nothing in the way.
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

/// See [`Readiness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// It is.
    Ready,
    /// It is not.
    NotReady,
}

/// Why a node is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotReady {
    /// Nothing runs the node.
    NotRunning,
    /// It has not joined the cluster yet.
    Joining,
    /// It finishes what it has.
    Draining,
    /// It has left.
    Left,
    /// It was replaced, or was stopped without leaving.
    Dead,
    /// The database does not answer.
    Database,
    /// Jobs are due, and have been for a while, that no node in the cluster can run.
    Stranded,
    /// Jobs are due, and no node in the cluster is live: `nothing_runs` of the overview.
    NothingRuns,
}

/// Whether a node leads in a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Leading {
    /// The role.
    pub role: String,
    /// Whether it leads, as far as it can know.
    pub is_leader: bool,
    /// Its term; absent unless it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

impl Leading {
    /// That it leads in this term, or not.
    #[must_use]
    pub fn new(role: &str, term: Option<Fence>) -> Self {
        Self {
            role: role.to_owned(),
            is_leader: term.is_some(),
            term: term.map(|term| term.0),
        }
    }
}
