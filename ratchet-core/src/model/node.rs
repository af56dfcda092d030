//! Nodes: their heartbeats, the store's replies, the stored records, and the pass over these
//! records.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::{ClaimToken, NodeId};
use crate::model::{ClockTrust, Guard, NodeTotals, PoolProfile};
use crate::name::Name;
use crate::route::Route;
use crate::schedule::ZoneData;
use crate::time::{self, Timestamp, duration_millis, to_millis, whole_millis};

/// The status of a node.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::NodeStatus;
///
/// for node in client.nodes().await? {
///     if node.status == NodeStatus::Active {
///         let load = &node.load;
///         println!("{} {}: {} of {}", node.label, node.node, load.running, load.capacity);
///         println!("  takes the kinds {:?}", node.profile.kinds);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// The node is starting and does not claim jobs yet.
    Joining = 0,
    /// The node claims jobs.
    Active = 1,
    /// The node finishes its jobs and claims no new ones.
    Draining = 2,
    /// The node has shut down. Also the status of a node that fell silent or was replaced while it
    /// was draining.
    Left = 3,
    /// The node was silent for too long, was replaced by a newer node with its label, or was
    /// declared dead by another process.
    Dead = 4,
}

impl NodeStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [
        Self::Joining,
        Self::Active,
        Self::Draining,
        Self::Left,
        Self::Dead,
    ];

    /// Returns the number that stores save for the status.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the status with this stored number.
    ///
    /// # Errors
    /// [`InvalidInput`] if no status has this number.
    pub fn from_code(code: i64) -> Result<Self, InvalidInput> {
        usize::try_from(code)
            .ok()
            .and_then(|code| Self::ALL.get(code).copied())
            .ok_or_else(|| InvalidInput::new("status", format!("{code} is not a node status")))
    }

    /// Returns whether the node is live: joining, active or draining. The cluster reclaims the
    /// claims of a node that is not live.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Joining | Self::Active | Self::Draining)
    }

    /// Returns the status that a node with this status gets when it falls silent, or when a newer
    /// node with its label replaces it: `Left` if it was draining or had left, otherwise `Dead`.
    #[must_use]
    pub const fn when_lost(self) -> Self {
        match self {
            Self::Draining | Self::Left => Self::Left,
            _ => Self::Dead,
        }
    }

    /// Returns the new stored status after a heartbeat in which the node reports the status `said`.
    /// `self` is the stored status before the heartbeat.
    ///
    /// `Left` and `Dead` are final: the stored status stays, and the reply shows it to the node. A
    /// node that was asked to drain stays `Draining` until it reports that it has left.
    #[must_use]
    pub fn after_heartbeat(self, said: Self) -> Self {
        match self {
            Self::Left | Self::Dead => self,
            Self::Draining if said.is_live() => self,
            Self::Joining | Self::Active | Self::Draining => said,
        }
    }
}

/// How busy a node is.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::NodeStatus;
///
/// for node in client.nodes().await? {
///     if node.status == NodeStatus::Active {
///         let load = &node.load;
///         println!("{} {}: {} of {}", node.label, node.node, load.running, load.capacity);
///         println!("  takes the kinds {:?}", node.profile.kinds);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeLoad {
    /// The number of job bodies that are running.
    pub running: u32,
    /// The maximum number of job bodies that run at once.
    pub capacity: u32,
    /// The number of open connections to the database; `None` if the store does not report it.
    pub connections: Option<u32>,
    /// The processor time that the process has used since its previous heartbeat, in percent of one
    /// processor; `None` if unknown.
    pub cpu_percent: Option<u32>,
    /// The memory that the process uses, in bytes; `None` if unknown.
    pub memory_bytes: Option<u64>,
    /// The totals of the node since it was built; `None` for a node of an earlier version.
    pub totals: Option<NodeTotals>,
    /// The number of claims that the node does not hold, although the store listed them under the
    /// node at the last two heartbeats. The jobs of these claims do not run. `None` for a node of
    /// an earlier version, which does not report this number.
    pub unheld_claims: Option<u32>,
}

impl NodeLoad {
    /// Creates the load of a node that runs `running` of at most `capacity` bodies. The other
    /// fields are `None`.
    #[must_use]
    pub const fn new(running: u32, capacity: u32) -> Self {
        Self {
            running,
            capacity,
            connections: None,
            cpu_percent: None,
            memory_bytes: None,
            totals: None,
            unheld_claims: None,
        }
    }
}

/// The work that a node accepts: its roles, its capabilities, the kinds of jobs that it runs, and
/// its pools.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::NodeStatus;
///
/// for node in client.nodes().await? {
///     if node.status == NodeStatus::Active {
///         let load = &node.load;
///         println!("{} {}: {} of {}", node.label, node.node, load.running, load.capacity);
///         println!("  takes the kinds {:?}", node.profile.kinds);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeProfile {
    /// The roles of the node: `worker` if it runs jobs, and the roles in which it may lead.
    pub roles: Vec<Name>,
    /// The capabilities that jobs on the node may require.
    pub capabilities: Vec<Name>,
    /// The kinds whose jobs the node runs, with their aliases; empty if it runs none. `None` for a
    /// node of an earlier version, which does not report them.
    pub kinds: Option<Vec<Name>>,
    /// The time-zone data with which the node computes the slots of recurring jobs. `None` for a
    /// node of an earlier version, which does not report it.
    pub zone_data: Option<ZoneData>,
    /// The pools that currently claim jobs. Empty if the node runs no kinds, and while it is the
    /// passive node of an active-passive group. `None` for a node of an earlier version, which does
    /// not report them.
    pub pools: Option<Vec<PoolProfile>>,
    /// The kinds whose [circuit breaker](crate::CircuitBreaker) is open or half-open on this node,
    /// in order.
    pub open_breakers: Vec<Name>,
}

impl NodeProfile {
    /// Creates a profile with these roles and capabilities. The other fields are `None`.
    #[must_use]
    pub const fn new(roles: Vec<Name>, capabilities: Vec<Name>) -> Self {
        Self {
            roles,
            capabilities,
            kinds: None,
            zone_data: None,
            pools: None,
            open_breakers: Vec::new(),
        }
    }

    /// Sets the kinds whose jobs the node runs.
    #[must_use]
    pub fn kinds(mut self, kinds: Vec<Name>) -> Self {
        self.kinds = Some(kinds);
        self
    }

    /// Returns whether the node reports that it runs jobs of the route's kind and has the
    /// capability that the route requires.
    #[must_use]
    pub fn takes(&self, route: &Route) -> bool {
        let runs = self.kinds.as_ref();
        runs.is_some_and(|kinds| kinds.contains(&route.kind))
            && route
                .capability
                .as_ref()
                .is_none_or(|required| self.capabilities.contains(required))
    }
}

/// The heartbeat of a node. It shows that the node is alive, and reports its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// The label of the node, a name for operators. When a node joins, the store marks every other
    /// live node with the same label dead, or left if it was draining. So after a process restarts,
    /// the claims of its old node are reclaimed at once, and not only after its old node counts as
    /// silent.
    pub label: Name,
    /// The status of the node, as the node reports it.
    pub status: NodeStatus,
    /// The maximum time until the next heartbeat. A silent node counts as dead after three
    /// intervals at the earliest.
    pub interval: Duration,
    /// How busy the node is.
    pub load: NodeLoad,
    /// The work that the node accepts.
    pub profile: NodeProfile,
}

impl Heartbeat {
    /// Creates a heartbeat with an empty load and an empty profile. The interval is rounded up to
    /// whole milliseconds.
    #[must_use]
    pub fn new(node: NodeId, label: Name, status: NodeStatus, interval: Duration) -> Self {
        Self {
            node,
            label,
            status,
            interval: whole_millis(interval),
            load: NodeLoad::default(),
            profile: NodeProfile::default(),
        }
    }

    /// Sets the work that the node accepts.
    #[must_use]
    pub fn profile(mut self, profile: NodeProfile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets how busy the node is.
    #[must_use]
    pub const fn load(mut self, load: NodeLoad) -> Self {
        self.load = load;
        self
    }
}

/// The reply to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeartbeatReply {
    /// The time of this heartbeat, by the database's clock.
    pub database_time: Timestamp,
    /// The stored status of the node. It differs from the reported status if an operator has asked
    /// the node to drain, or if the node was marked dead or left.
    pub status: NodeStatus,
    /// When the node was last seen before this heartbeat, according to its row; `None` if it had no
    /// row. If this is earlier than the `database_time` of the previous reply, or `None` despite a
    /// previous reply, the database went back to an earlier state.
    pub previous: Option<Timestamp>,
    /// The claims that the store lists under this node, in order of their tokens.
    pub claims: Vec<OwnedClaim>,
    /// Whether this node is the only live node.
    pub alone: bool,
}

impl HeartbeatReply {
    /// Creates a reply from its parts.
    #[must_use]
    pub const fn new(
        database_time: Timestamp,
        status: NodeStatus,
        previous: Option<Timestamp>,
        claims: Vec<OwnedClaim>,
        alone: bool,
    ) -> Self {
        Self {
            database_time,
            status,
            previous,
            claims,
            alone,
        }
    }

    /// Returns the tokens of the claims for whose jobs a client or an operator has requested
    /// cancellation, in order.
    #[must_use]
    pub fn cancel_requested(&self) -> Vec<ClaimToken> {
        let requested = self.claims.iter().filter(|claim| claim.cancel_requested);
        requested.map(|claim| claim.token).collect()
    }
}

/// A running claim, as the store lists it under its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OwnedClaim {
    /// The token of the claim.
    pub token: ClaimToken,
    /// Whether a client or an operator has requested the cancellation of the job.
    pub cancel_requested: bool,
}

impl OwnedClaim {
    /// Creates a listed claim from its parts.
    #[must_use]
    pub const fn new(token: ClaimToken, cancel_requested: bool) -> Self {
        Self {
            token,
            cancel_requested,
        }
    }
}

/// A stored node. All times are of the database's clock.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::NodeStatus;
///
/// for node in client.nodes().await? {
///     if node.status == NodeStatus::Active {
///         let load = &node.load;
///         println!("{} {}: {} of {}", node.label, node.node, load.running, load.capacity);
///         println!("  takes the kinds {:?}", node.profile.kinds);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeRecord {
    /// The node.
    pub node: NodeId,
    /// The label of the node, a name for operators.
    pub label: Name,
    /// The status of the node.
    pub status: NodeStatus,
    /// How busy the node is, according to its last heartbeat.
    pub load: NodeLoad,
    /// The work that the node accepts, according to its last heartbeat.
    pub profile: NodeProfile,
    /// The maximum time until the node's next heartbeat, according to its last heartbeat.
    pub interval: Duration,
    /// When the store received the node's first heartbeat.
    pub started_at: Timestamp,
    /// When the store received the node's last heartbeat.
    pub last_seen: Timestamp,
}

impl NodeRecord {
    /// The default of the minimum silence after which a node counts as dead: 15 s.
    pub const DEAD_AFTER: Duration = Duration::from_secs(15);

    /// Creates the record of a node after its first heartbeat at `now`.
    #[must_use]
    pub fn joined(heartbeat: &Heartbeat, now: Timestamp) -> Self {
        Self {
            node: heartbeat.node,
            label: heartbeat.label.clone(),
            status: heartbeat.status,
            load: heartbeat.load,
            profile: heartbeat.profile.clone(),
            interval: heartbeat.interval,
            started_at: now,
            last_seen: now,
        }
    }

    /// Updates the record with a heartbeat of this node at `now`. `[node.heartbeat]`
    pub fn beat(&mut self, heartbeat: &Heartbeat, now: Timestamp) {
        self.status = self.status.after_heartbeat(heartbeat.status);
        self.label = heartbeat.label.clone();
        self.interval = heartbeat.interval;
        self.load = heartbeat.load;
        self.profile = heartbeat.profile.clone();
        self.last_seen = now;
    }

    /// Returns whether a new node replaces this node. `first` is the first heartbeat of the new
    /// node. It replaces this node if the new node is joining, both nodes have the same label, and
    /// this node is live. `[node.label]`
    #[must_use]
    pub fn is_displaced_by(&self, first: &Heartbeat) -> bool {
        let joins = first.status == NodeStatus::Joining;
        joins && self.label == first.label && self.status.is_live()
    }

    /// Marks the node dead, or left if it was draining. An ended node keeps its status.
    pub const fn lose(&mut self) {
        self.status = self.status.when_lost();
    }

    /// Sets the status at the request of another process. Returns `false` and changes nothing if
    /// the node is not live or already has this status. `[node.status]`
    pub fn set_status(&mut self, status: NodeStatus) -> bool {
        let changes = self.status.is_live() && self.status != status;
        if changes {
            self.status = status;
        }
        changes
    }

    /// Returns how long a node with this heartbeat interval may be silent before it counts as dead:
    /// `dead_after` or three intervals, whichever is longer.
    #[must_use]
    pub fn patience(interval: Duration, dead_after: Duration) -> Duration {
        dead_after.max(interval.saturating_mul(3))
    }

    /// Returns whether, at `now`, the node has been silent for longer than
    /// [`patience`](Self::patience).
    #[must_use]
    pub fn is_silent(&self, dead_after: Duration, now: Timestamp) -> bool {
        self.is_silent_by(dead_after, &ClockTrust::FULL, to_millis(now))
    }

    /// Does the same as [`is_silent`](Self::is_silent), but corrects the silence by the clock steps
    /// in `clock`. `now` is in milliseconds since 1970.
    pub(crate) fn is_silent_by(&self, dead_after: Duration, clock: &ClockTrust, now: i64) -> bool {
        let patience = duration_millis(Self::patience(self.interval, dead_after));
        let seen = to_millis(self.last_seen);
        seen.saturating_add(patience) < clock.now_for(seen, now)
    }
}

/// A pass over the stored nodes. It marks silent nodes dead, or left if they were draining. It also
/// deletes nodes that ended long ago.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeSweep {
    /// The minimum silence after which a node is marked dead; see [`NodeRecord::patience`].
    pub dead_after: Duration,
    /// The time after its last heartbeat at which an ended node (dead or left) is deleted.
    pub forget_after: Duration,
    /// The tenure of the caller. The pass takes effect only while the tenure lasts. `None` if the
    /// pass requires no tenure.
    pub guard: Option<Guard>,
    /// The known steps of the database's clock.
    pub clock: ClockTrust,
}

impl NodeSweep {
    /// Creates a pass with these durations, by the database's clock, and without a guard.
    #[must_use]
    pub const fn new(dead_after: Duration, forget_after: Duration) -> Self {
        Self {
            dead_after,
            forget_after,
            guard: None,
            clock: ClockTrust::FULL,
        }
    }

    /// Sets [`clock`](Self::clock).
    #[must_use]
    pub fn clock(mut self, clock: ClockTrust) -> Self {
        self.clock = clock;
        self
    }

    /// Returns whether the pass marks this node dead, or left, at `now`: the node is live and
    /// silent, and the clock has not stepped again.
    #[must_use]
    pub fn marks_dead(&self, node: &NodeRecord, now: Timestamp) -> bool {
        let now = to_millis(now);
        node.status.is_live()
            && self.clock.allows(now)
            && node.is_silent_by(self.dead_after, &self.clock, now)
    }

    /// Returns whether the pass deletes this node at `now`, provided that the node owns no claims.
    /// The node must have ended before, or be in `died`, the nodes that this pass marked dead or
    /// left. In addition, its last heartbeat must be more than `forget_after` ago.
    #[must_use]
    pub fn forgets(&self, node: &NodeRecord, died: &[NodeId], now: Timestamp) -> bool {
        let ended = !node.status.is_live() || died.contains(&node.node);
        ended && time::add(node.last_seen, self.forget_after) < now
    }

    /// Returns whether a pass at `now` marks this node dead or left, or may delete it.
    pub(crate) fn changes(&self, node: &NodeRecord, now: Timestamp) -> bool {
        self.marks_dead(node, now) || self.forgets(node, &[], now)
    }

    /// Lets the pass take effect only while this tenure lasts.
    #[must_use]
    pub fn guarded(mut self, guard: Option<Guard>) -> Self {
        self.guard = guard;
        self
    }
}

/// The result of a pass over the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweptNodes {
    /// The nodes that this pass marked dead or left, in order of their ids.
    pub died: Vec<NodeId>,
    /// The number of nodes that the pass deleted. Some of them may also be in `died`.
    pub forgotten: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    #[test]
    fn a_stable_slow_node_is_not_dead_before_three_intervals() {
        let second = Duration::from_secs(1);
        let beat = Heartbeat::new(
            NodeId::new(),
            Name::new("label", "n").unwrap(),
            NodeStatus::Active,
            30 * second,
        );
        let node = NodeRecord::joined(&beat, from_millis(0));
        assert!(!node.is_silent(15 * second, from_millis(90_000)));
        assert!(node.is_silent(15 * second, from_millis(90_001)));
    }

    #[test]
    fn a_pass_forgets_nodes_whose_end_is_old_also_those_that_it_marked_dead() {
        let second = Duration::from_secs(1);
        let node = |status| {
            let label = Name::new("label", "n").unwrap();
            let beat = Heartbeat::new(NodeId::new(), label, status, second);
            NodeRecord::joined(&beat, from_millis(0))
        };
        let sweep = NodeSweep::new(15 * second, 60 * second);
        let (old, older) = (from_millis(60_000), from_millis(60_001));
        for status in [NodeStatus::Left, NodeStatus::Dead] {
            assert!(!sweep.forgets(&node(status), &[], old), "{status:?}");
            assert!(sweep.forgets(&node(status), &[], older), "{status:?}");
        }
        let silent = node(NodeStatus::Active);
        assert!(!sweep.forgets(&silent, &[], older));
        assert!(!sweep.forgets(&silent, &[NodeId::new()], older));
        assert!(sweep.forgets(&silent, &[silent.node], older));
    }

    #[test]
    fn ends_are_final_and_ordered_drains_hold() {
        use NodeStatus::{Active, Dead, Draining, Joining, Left};
        assert_eq!(Joining.after_heartbeat(Active), Active);
        assert_eq!(Draining.after_heartbeat(Active), Draining);
        assert_eq!(Draining.after_heartbeat(Left), Left);
        assert_eq!(Dead.after_heartbeat(Active), Dead);
        assert_eq!(Left.after_heartbeat(Active), Left);
    }
}
