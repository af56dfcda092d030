use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::NodeId;
use crate::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, SweptNodes,
};
use crate::store::Changed;
use crate::time::Timestamp;

/// Stores nodes and their heartbeats, and reads the database's clock.
///
/// These calls must also work while all connections of the store are busy with calls for jobs.
#[async_trait]
pub trait NodeStore: Debug + Send + Sync {
    /// Records a heartbeat. The first heartbeat of a node registers the node.
    ///
    /// # Contract
    /// - **[node.heartbeat]** The node's row has the label, interval, load and profile of the
    ///   heartbeat, the status that [`NodeStatus::after_heartbeat`] returns, and the database's
    ///   time as `last_seen`.
    /// - **[node.kinds]** The row has the same list of kinds as the heartbeat. An empty list means
    ///   that the node runs no kinds. `None` is different: it means that the heartbeat did not
    ///   report the kinds.
    /// - **[node.totals]** The row has the totals of the last heartbeat, or none if that heartbeat
    ///   had none.
    /// - **[node.zone_data]** The row has the zone data of the last heartbeat, or none if that
    ///   heartbeat had none. Stores keep the zone data and the totals together in one text.
    ///   [`Heartbeat::notes`] writes this text, and [`NodeRecord::read_notes`] reads it.
    /// - **[node.reply]** The answer contains the database's time and the stored status.
    /// - **[node.previous]** The answer contains the `last_seen` that the row had before this
    ///   heartbeat, or `None` if there was no row.
    /// - **[node.claims]** The answer lists every claim of this node, in the order of the tokens.
    ///   These are the `Running` jobs that the node owns. The store finds them by an index on the
    ///   node. A claim that another call is writing at that moment may be missing. The next answer
    ///   then contains this claim.
    /// - **[node.cancel]** Each listed claim says whether an operator or a client has requested the
    ///   cancellation of its job.
    /// - **[node.alone]** The answer says whether no other node is live.
    /// - **[node.label]** If the first heartbeat of a node has the status `Joining`, it ends every
    ///   other live node with the same label. These nodes get the status that
    ///   [`NodeStatus::when_lost`] returns. If a node sends a heartbeat after its row was deleted,
    ///   it does not end other nodes.
    ///
    /// # Errors
    /// A failure of the store.
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply>;

    /// Changes the status of a node at the request of another process. `Draining` asks the node to
    /// drain. `Dead` declares the node dead.
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
    /// - **[node.list]** The list has every node whose row was not deleted, ordered by `started_at`
    ///   descending, then by id.
    ///
    /// # Errors
    /// A failure of the store.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;

    /// Marks silent nodes dead, and deletes nodes that ended long ago.
    ///
    /// # Contract
    /// - **[node.silent]** A live node becomes `Dead`, or `Left` if it was draining
    ///   ([`NodeStatus::when_lost`]), exactly if [`NodeSweep::marks_dead`] returns true for it. If
    ///   the clock never stepped, this means that the node is silent ([`NodeRecord::is_silent`]).
    ///   The answer lists the nodes that this pass marked, in the order of their ids.
    /// - **[node.step]** For each step forward of the database's clock that [`NodeSweep::clock`]
    ///   lists, the pass subtracts the size of the step from the silence of nodes that were last
    ///   seen before the step. If the database's clock is later than `clock` allows, no node counts
    ///   as silent.
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
    /// - **[time.read]** Of two calls made one after the other, the second call never returns an
    ///   earlier time than the first. A time that the store writes between the two calls is at
    ///   least the first and at most the second of the returned times.
    ///
    /// # Errors
    /// A failure of the store.
    async fn database_time(&self) -> Result<Timestamp>;
}
