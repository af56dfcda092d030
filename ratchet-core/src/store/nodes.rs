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
/// These calls must keep working when all connections of the store are busy with jobs.
#[async_trait]
pub trait NodeStore: Debug + Send + Sync {
    /// Records a heartbeat; the first one of a node registers it.
    ///
    /// # Contract
    /// - **[node.heartbeat]** The row has the label, interval, load and profile of the heartbeat,
    ///   the status that [`NodeStatus::after_heartbeat`] returns, and the database's time as
    ///   `last_seen`.
    /// - **[node.kinds]** The row names the kinds that the node runs exactly as the heartbeat does.
    ///   A heartbeat that names no kinds (`None`) is different from one with an empty list, which
    ///   says that the node runs none.
    /// - **[node.totals]** The row has the totals of the last heartbeat, or none if that heartbeat
    ///   had none.
    /// - **[node.zone_data]** The row has the zone data of the last heartbeat, or none if that
    ///   heartbeat had none. Stores keep the zone data in one text with the totals, which
    ///   [`Heartbeat::notes`] writes and [`NodeRecord::read_notes`] reads.
    /// - **[node.reply]** The answer contains the database's time and the stored status.
    /// - **[node.previous]** The answer contains the `last_seen` that the row had before this
    ///   heartbeat, or `None` if there was no row.
    /// - **[node.claims]** The answer lists every claim of this node, that is the `Running` jobs
    ///   that it owns, in the order of their tokens. The store finds them by an index on the node.
    ///   A claim that another call is writing at that moment may be missing; the next answer has
    ///   it.
    /// - **[node.cancel]** Each listed claim says whether an operator or a client has requested the
    ///   cancellation of its job.
    /// - **[node.alone]** The answer says whether no other node is live.
    /// - **[node.label]** If the first heartbeat of a node has the status `Joining`, it ends every
    ///   other live node with the same label, as [`NodeStatus::when_lost`] says. A node that wakes
    ///   up after it was forgotten ends no other node.
    ///
    /// # Errors
    /// A failure of the store.
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply>;

    /// Sets the status of a node from outside: `Draining` to ask it to finish, `Dead` to give it
    /// up.
    ///
    /// # Contract
    /// - **[node.status]** The node learns its new status from its next heartbeat. The call returns
    ///   `Unchanged` if the node is unknown, has ended, or already has this status.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed>;

    /// Lists the nodes, the newest first.
    ///
    /// # Contract
    /// - **[node.list]** The list has every node that was not forgotten, ordered by `started_at`
    ///   descending, then by id.
    ///
    /// # Errors
    /// A failure of the store.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;

    /// Marks silent nodes dead, and deletes nodes that ended long ago.
    ///
    /// # Contract
    /// - **[node.silent]** A live node becomes `Dead`, or `Left` if it was draining
    ///   ([`NodeStatus::when_lost`]), exactly when [`NodeSweep::marks_dead`] says so. On a clock
    ///   that never stepped, this is when the node is silent ([`NodeRecord::is_silent`]). The
    ///   answer lists the nodes that this pass marked, in the order of their ids.
    /// - **[node.step]** The pass subtracts the size of a step of the clock forward
    ///   ([`NodeSweep::clock`]) from the silence of a node that was last seen before the step. If
    ///   the clock shows more than its `latest`, no node is silent.
    /// - **[node.forget]** A `Left` or `Dead` node that owns no claims is deleted when its last
    ///   heartbeat is older than `forget_after` ([`NodeSweep::forgets`]). This also holds for a
    ///   node that this pass marks dead: it is then listed in `died` and counted in `forgotten`.
    ///
    /// # Errors
    /// A failure of the store.
    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>>;

    /// Reads the database's clock.
    ///
    /// # Contract
    /// - **[time.read]** Of two calls made one after the other, the later one never returns an
    ///   earlier time. Both agree with the times that the store writes between them.
    ///
    /// # Errors
    /// A failure of the store.
    async fn database_time(&self) -> Result<Timestamp>;
}
