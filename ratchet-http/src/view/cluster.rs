use std::collections::BTreeMap;

use ratchet_core::model::{self, NodeRecord, NodeTotals};
use ratchet_core::schedule;
use ratchet_core::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Leading, millis};

/// The nodes and who leads.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cluster {
    /// All nodes that are known, also those that have ended.
    pub nodes: Vec<Node>,
    /// One for each role.
    pub leaders: Vec<Leader>,
}

/// A node.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Node {
    /// Which run of a process.
    pub id: String,
    /// Its label.
    pub label: String,
    /// Its status, as set by itself or by the node that declared it dead.
    pub status: NodeStatus,
    /// Whether it has not ended and is not silent for too long.
    pub live: bool,
    /// When its first heartbeat came.
    pub started_at: At,
    /// When its last heartbeat came.
    pub last_seen_at: At,
    /// How often its heartbeat comes at present.
    pub heartbeat_ms: u64,
    /// Bodies running.
    pub running: u32,
    /// Bodies that may run at once.
    pub capacity: u32,
    /// Processor time of its process, in percent of one processor.
    pub cpu_percent: Option<u32>,
    /// Memory of its process, in bytes.
    pub memory_bytes: Option<u64>,
    /// Its open connections to the database.
    pub connections: Option<u32>,
    /// Its roles.
    pub roles: Vec<String>,
    /// The capabilities that its jobs may require.
    pub capabilities: Vec<String>,
    /// The kinds it has handlers for; null for an older node, which does not say.
    pub kinds: Option<Vec<String>>,
    /// The roles it leads in.
    pub leads: Vec<String>,
    /// How far its clock is ahead of the database's; known of the node that answers only.
    pub clock_skew_ms: Option<i64>,
    /// Its totals since it was built; null for a node of an older version.
    pub totals: Option<Totals>,
    /// The time-zone data that it computes recurring jobs by; null for an older node, which
    /// does not say.
    pub zone_data: Option<ZoneData>,
}

/// Returns whether a node is live at this time of the database: it has not ended and is not silent.
#[must_use]
pub fn is_live(node: &NodeRecord, now: Timestamp) -> bool {
    node.status.is_live() && !node.is_silent(NodeRecord::DEAD_AFTER, now)
}

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
    /// A node, at this time of the database. It leads in nothing.
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
            zone_data: node.profile.zone_data.clone().map(ZoneData::from),
        }
    }
}

/// Time-zone data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ZoneData {
    /// The directory it was read from, or `built-in`.
    pub source: String,
    /// The release of the IANA database; null if the directory does not say.
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

/// The life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// Starting; does not claim yet.
    Joining,
    /// Claiming.
    Active,
    /// Finishing what it has; claims no more.
    Draining,
    /// Ended in order.
    Left,
    /// Silent for too long, or displaced by a newer node with its label.
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
    /// Bodies that began.
    pub begun: u64,
    /// How long those had waited since they were due, added up.
    pub waited_ms: u64,
    /// Bodies that succeeded.
    pub succeeded: u64,
    /// Dead letters.
    pub failed: u64,
    /// Failed attempts that are to be followed by another.
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
    /// The role.
    pub role: String,
    /// The node; null if none leads.
    pub node: Option<String>,
    /// The label of the leader; null if no node leads, or the label is not known.
    pub label: Option<String>,
    /// The present or last term.
    pub term: u64,
    /// How long its lease lasts unless it is renewed.
    pub expires_in_ms: Option<u64>,
}

impl Leader {
    /// The leader of a role.
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

/// A node's own view of itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Status {
    /// The node of the process that answers; null if it has none.
    pub node: Option<OwnNode>,
    /// Its part in the cluster.
    pub role: Role,
    /// Whether other nodes live, as far as was last read.
    pub clustered: bool,
    /// Whether it leads, for each role in which it may.
    pub leadership: Vec<Leading>,
    /// The versions that the API was told to show, as last read, by namespace.
    pub versions: BTreeMap<String, u64>,
    /// The kind of the store.
    pub backend: &'static str,
    /// The version of the database.
    pub backend_version: String,
    /// The version of Ratchet.
    pub version: &'static str,
    /// Whether changes are allowed through this API at all.
    pub writes: bool,
    /// The most items that a page of a listing may have.
    pub page: usize,
}

/// The node of the process that answers, as it knows itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OwnNode {
    /// Which run of a process.
    pub id: String,
    /// Its label.
    pub label: String,
    /// Its status.
    pub status: NodeStatus,
    /// Bodies running.
    pub running: usize,
    /// Bodies that may run at once.
    pub capacity: usize,
}

impl From<&ratchet_core::Node> for OwnNode {
    fn from(node: &ratchet_core::Node) -> Self {
        Self {
            id: node.id().to_string(),
            label: node.label().to_string(),
            status: node.status().into(),
            running: node.running(),
            capacity: node.capacity(),
        }
    }
}

/// The part of a node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It leads: in the role that it waits for to run jobs, or in maintenance if it waits for none.
    Primary,
    /// It does not.
    Standby,
    /// It waits for no role, and there is no other node.
    SingleNode,
    /// The process runs no node: it serves the HTTP interface alone.
    NoNode,
}
