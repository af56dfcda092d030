use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::NodeId;
use crate::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, SweptNodes,
};
use crate::store::Changed;
use crate::time::Timestamp;

/// Nodes and their heartbeats, and the database's clock.
///
/// A store keeps these calls working when its connections are all busy with jobs.
#[async_trait]
pub trait NodeStore: Debug + Send + Sync {
    /// Records a sign of life; the first one registers the node.
    ///
    /// # Contract
    /// - **[node.heartbeat]** The row has the given label, interval, load and profile, the status
    ///   [`NodeStatus::after_heartbeat`] and the database's time as `last_seen`.
    /// - **[node.kinds]** The row says which kinds the node runs exactly as the heartbeat does; to
    ///   say nothing is not to run none.
    /// - **[node.totals]** The row has the totals of the last heartbeat, or none if that had none.
    /// - **[node.zone_data]** The row has the zone data of the last heartbeat, or none if that had
    ///   none: [`Heartbeat::notes`] and [`NodeRecord::read_notes`] keep it in one text with the
    ///   totals.
    /// - **[node.reply]** The answer has the database's time and the stored status.
    /// - **[node.previous]** The answer says what `last_seen` of the row was before this heartbeat,
    ///   or none if there was no row.
    /// - **[node.claims]** The answer lists every claim of this node in order of their tokens: the
    ///   `Running` jobs that it owns, found by an index on the node. A claim that another call is
    ///   writing at that moment may be missing; the next answer has it.
    /// - **[node.cancel]** Each listed claim carries whether an operator or a client wants its job
    ///   cancelled.
    /// - **[node.others]** The answer says how many other nodes are live, and when the newest of
    ///   them began.
    /// - **[node.label]** The first heartbeat of a node, if it says `Joining`, ends every other
    ///   live node with its label, as [`NodeStatus::when_lost`] says. A node that is forgotten and
    ///   wakes up displaces no other.
    ///
    /// # Errors
    /// A failure of the store.
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply>;

    /// Sets a node's status from elsewhere: `Draining` to ask it to finish, `Dead` to give it up.
    ///
    /// # Contract
    /// - **[node.status]** The node learns it from its next heartbeat. `Unchanged` if the node is
    ///   unknown, has ended, or has that status.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed>;

    /// Lists the nodes, the newest first.
    ///
    /// # Contract
    /// - **[node.list]** Every node that was not forgotten, by `started_at` descending, then id.
    ///
    /// # Errors
    /// A failure of the store.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;

    /// Marks silent nodes dead and forgets the long ended.
    ///
    /// # Contract
    /// - **[node.silent]** A live node becomes `Dead`, or `Left` if it was draining
    ///   ([`NodeStatus::when_lost`]), exactly when [`NodeSweep::marks_dead`] says so: when
    ///   [`NodeRecord::is_silent`], on a clock that never stepped. The answer lists the nodes that
    ///   this pass marked, in order of their ids.
    /// - **[node.step]** A node that was heard before a step of the clock, as [`NodeSweep::clock`]
    ///   names it, is silent from the step on only. If the clock shows more than its `latest`, no
    ///   node is silent.
    /// - **[node.forget]** A `Left` or `Dead` node is deleted when its last heartbeat is older than
    ///   `forget_after` ([`NodeSweep::forgets`]), but not while it owns claims. If that holds for a
    ///   node that this pass marks dead, this pass deletes it, too: it is listed in `died` and
    ///   counted in `forgotten`.
    ///
    /// # Errors
    /// A failure of the store.
    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>>;

    /// Reads the database's clock.
    ///
    /// # Contract
    /// - **[time.read]** Two calls one after the other never go back, and agree with the times the
    ///   store writes between them.
    ///
    /// # Errors
    /// A failure of the store.
    async fn database_time(&self) -> Result<Timestamp>;
}
