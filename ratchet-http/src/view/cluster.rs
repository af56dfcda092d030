use std::collections::BTreeMap;

use ratchet_core::model::{self, NodeRecord, NodeTotals};
use ratchet_core::schedule;
use ratchet_core::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Leading, millis};

/// The nodes and the leaders.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cluster {
    /// A page of the known nodes, including those that have ended, sorted by id.
    pub nodes: Vec<Node>,
    /// One entry for each role.
    pub leaders: Vec<Leader>,
    /// The value of `after` for the next page; null on the last page.
    pub next: Option<String>,
}

/// A node of the cluster, as of its last heartbeat.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Node {
    /// The id of the node, which is new at each start.
    pub id: String,
    /// The label of the node.
    pub label: String,
    /// The stored status of the node. The node itself, an operator, the leader, or a newer node
    /// with the same label may have set it.
    pub status: NodeStatus,
    /// Whether the node is live: it has not ended and has not been silent for too long.
    pub live: bool,
    /// When the node sent its first heartbeat.
    pub started_at: At,
    /// When the node sent its last heartbeat.
    pub last_seen_at: At,
    /// The current interval between heartbeats of the node, in milliseconds.
    pub heartbeat_ms: u64,
    /// The number of bodies that are running on the node.
    pub running: u32,
    /// The maximum number of bodies that the node runs at once.
    pub capacity: u32,
    /// The CPU usage of the node's process, in percent of one processor.
    pub cpu_percent: Option<u32>,
    /// The memory usage of the node's process, in bytes.
    pub memory_bytes: Option<u64>,
    /// The number of the node's open connections to the database.
    pub connections: Option<u32>,
    /// The roles in which the node may lead.
    pub roles: Vec<String>,
    /// The capabilities that jobs on this node may require.
    pub capabilities: Vec<String>,
    /// The kinds for which the node has handlers; null if the node runs an older version, which
    /// does not report its kinds.
    pub kinds: Option<Vec<String>>,
    /// The roles in which the node leads.
    pub leads: Vec<String>,
    /// How far the node's clock is ahead of the database's clock, in milliseconds. It is null for
    /// all nodes except the node of the process that responds.
    pub clock_skew_ms: Option<i64>,
    /// The totals since the node was built; null if the node runs an older version, which does not
    /// report totals.
    pub totals: Option<Totals>,
    /// The kinds whose circuit breaker is open or half-open on the node, so that it claims no jobs
    /// of these kinds, or only one at a time.
    pub open_breakers: Vec<String>,
    /// The time-zone data that the node uses for recurring jobs; null if the node runs an older
    /// version, which does not report this data.
    pub zone_data: Option<ZoneData>,
}

/// Returns whether a node is live at the time `now` of the database's clock. A live node has not
/// ended and is not silent.
#[must_use]
pub fn is_live(node: &NodeRecord, now: Timestamp) -> bool {
    node.status.is_live() && !node.is_silent(NodeRecord::DEAD_AFTER, now)
}

/// Creates views of nodes, which an application can serialize in its own responses.
///
/// ```
/// # async fn example(client: &ratchet_core::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_http::view::Node;
///
/// let now = client.database_time().await?;
/// for record in client.nodes().await? {
///     println!("{}", serde_json::to_string(&Node::new(&record, now))?);
/// }
/// # Ok(()) }
/// ```
impl Node {
    /// Creates the view of a node at the time `now` of the database's clock.
    ///
    /// `leads` is empty and `clock_skew_ms` is `None`, because the record does not contain these
    /// values.
    #[must_use]
    pub fn new(node: &NodeRecord, now: Timestamp) -> Self {
        let names = |names: &[ratchet_core::Name]| names.iter().map(ToString::to_string).collect();
        Self {
            id: node.node.to_string(),
            label: node.label.to_string(),
            status: node.status.into(),
            live: is_live(node, now),
            started_at: At(node.started_at),
            last_seen_at: At(node.last_seen),
            heartbeat_ms: millis(node.interval),
            running: node.load.running,
            capacity: node.load.capacity,
            cpu_percent: node.load.cpu_percent,
            memory_bytes: node.load.memory_bytes,
            connections: node.load.connections,
            roles: names(&node.profile.roles),
            capabilities: names(&node.profile.capabilities),
            kinds: node.profile.kinds.as_deref().map(names),
            leads: Vec::new(),
            clock_skew_ms: None,
            totals: node.load.totals.map(Totals::from),
            open_breakers: names(&node.profile.open_breakers),
            zone_data: node.profile.zone_data.clone().map(ZoneData::from),
        }
    }
}

/// The time-zone data of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ZoneData {
    /// The directory from which the data was read, or `built-in`.
    pub source: String,
    /// The release of the IANA database; null if the directory does not contain its release.
    pub version: Option<String>,
}

impl From<schedule::ZoneData> for ZoneData {
    fn from(data: schedule::ZoneData) -> Self {
        let schedule::ZoneData {
            source, version, ..
        } = data;
        Self { source, version }
    }
}

/// The status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// The node is starting and does not claim jobs yet.
    Joining,
    /// The node claims jobs.
    Active,
    /// The node finishes its running jobs and claims no more.
    Draining,
    /// The node has shut down gracefully.
    Left,
    /// The node was silent for too long, or a newer node with the same label replaced it.
    Dead,
}

impl From<model::NodeStatus> for NodeStatus {
    fn from(status: model::NodeStatus) -> Self {
        match status {
            model::NodeStatus::Joining => Self::Joining,
            model::NodeStatus::Active => Self::Active,
            model::NodeStatus::Draining => Self::Draining,
            model::NodeStatus::Left => Self::Left,
            model::NodeStatus::Dead => Self::Dead,
        }
    }
}

/// The totals of a node since it was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Totals {
    /// The number of bodies that began.
    pub begun: u64,
    /// The total time from due time to claim of all jobs whose bodies began, in milliseconds.
    pub waited_ms: u64,
    /// The number of bodies that succeeded.
    pub succeeded: u64,
    /// The number of jobs that became dead letters.
    pub failed: u64,
    /// The number of failed attempts that were followed by another attempt of the job.
    pub retried: u64,
}

impl From<NodeTotals> for Totals {
    fn from(totals: NodeTotals) -> Self {
        Self {
            begun: totals.begun,
            waited_ms: totals.waited_ms,
            succeeded: totals.succeeded,
            failed: totals.failed,
            retried: totals.retried,
        }
    }
}

/// The leader of a role.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Leader {
    /// The name of the role.
    pub role: String,
    /// The id of the node that leads in the role; null if no node leads.
    pub node: Option<String>,
    /// The label of the leader; null if no node leads, or if the label is not known.
    pub label: Option<String>,
    /// The number of the current term, or of the last term if no node leads.
    pub term: u64,
    /// Time until the lease of the leader expires if it is not renewed, in milliseconds; null if no
    /// node leads.
    pub expires_in_ms: Option<u64>,
}

impl Leader {
    /// Creates the view of a role's leader.
    #[must_use]
    pub const fn new(
        role: String,
        node: Option<String>,
        label: Option<String>,
        term: u64,
        expires_in_ms: Option<u64>,
    ) -> Self {
        Self {
            role,
            node,
            label,
            term,
            expires_in_ms,
        }
    }
}

/// The status of the process that responds. It comes from the memory of this process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Status {
    /// The node of the process that responds; null if the process has no node.
    pub node: Option<OwnNode>,
    /// Whether the node of this process is the primary, a standby or the only node.
    pub role: Role,
    /// Whether other nodes are live, according to the last read.
    pub clustered: bool,
    /// Whether the node of this process leads, with one entry for each role in which the node may
    /// lead.
    pub leadership: Vec<Leading>,
    /// The versions of the namespaces that the API is configured to show, from the last read.
    pub versions: BTreeMap<String, u64>,
    /// The name of the storage backend.
    pub backend: &'static str,
    /// The version of the database.
    pub backend_version: String,
    /// The version of Ratchet.
    pub version: &'static str,
    /// Whether this API accepts writes at all.
    pub writes: bool,
    /// The maximum number of items on a page of a listing.
    pub page: usize,
}

/// The node of the process that responds. Its data comes from the memory of this process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OwnNode {
    /// The id of the node, which is new at each start.
    pub id: String,
    /// The label of the node.
    pub label: String,
    /// The status of the node.
    pub status: NodeStatus,
    /// The number of bodies that are running on the node.
    pub running: usize,
    /// The maximum number of bodies that the node runs at once.
    pub capacity: usize,
    /// The circuit breakers of the node, sorted by kind.
    pub breakers: Vec<Breaker>,
}

/// A circuit breaker of a node. While it is open, the node claims no jobs of the kind.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Breaker {
    /// The kind.
    pub kind: String,
    /// The state of the breaker.
    pub state: BreakerState,
    /// Number of attempts in the window. 0 unless the breaker is closed.
    pub attempts: u32,
    /// Number of these attempts that failed.
    pub failures: u32,
    /// Time until the next probe, in milliseconds. Null unless the breaker is open.
    pub probe_in_ms: Option<u64>,
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// The node runs jobs of the kind.
    Closed,
    /// The node claims no jobs of the kind.
    Open,
    /// The next job of the kind is a probe, or a probe is running.
    HalfOpen,
}

impl From<&ratchet_core::BreakerInfo> for Breaker {
    fn from(breaker: &ratchet_core::BreakerInfo) -> Self {
        Self {
            kind: breaker.kind.to_string(),
            state: match breaker.state {
                ratchet_core::BreakerState::Closed => BreakerState::Closed,
                ratchet_core::BreakerState::Open => BreakerState::Open,
                ratchet_core::BreakerState::HalfOpen => BreakerState::HalfOpen,
            },
            attempts: breaker.attempts,
            failures: breaker.failures,
            probe_in_ms: breaker.probe_in.map(millis),
        }
    }
}

impl From<&ratchet_core::Node> for OwnNode {
    fn from(node: &ratchet_core::Node) -> Self {
        Self {
            id: node.id().to_string(),
            label: node.label().to_string(),
            status: node.status().into(),
            running: node.running(),
            capacity: node.capacity(),
            breakers: node.breakers().iter().map(Into::into).collect(),
        }
    }
}

/// Whether the node of a process is the primary, a standby or the only node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The node leads in the role that it needs to run jobs. If the node needs no role, it leads in
    /// the role for maintenance.
    Primary,
    /// The node does not lead in the role that it would need to be `primary`.
    Standby,
    /// The node needs no role to run jobs, and no other node is live.
    SingleNode,
    /// The process has no node. It only serves the HTTP interface.
    NoNode,
}
