//! [`NodeStore`] on MongoDB, through the client for heartbeats and locks.

use async_trait::async_trait;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, SweptNodes,
};
use ratchet_core::store::{Changed, NodeStore};
use ratchet_core::time::{Timestamp, from_millis, to_millis};
use ratchet_core::{JobState, NodeId, Result};

use crate::clock::Now;
use crate::connection::{Side, Tx};
use crate::error::{Failure, Result as Inner};
use crate::pipelines::{code, literal};
use crate::row;
use crate::store::MongoStore;

#[async_trait]
impl NodeStore for MongoStore {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        self.call("heartbeat", || self.record(heartbeat)).await
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        self.call("set_node_status", || async {
            let side = self.live();
            let mut others = live_statuses();
            others.retain(|other| *other != i32::from(status.code()));
            let live = doc! { "_id": row::id(node), "status": { "$in": others } };
            let set = doc! { "$set": { "status": i32::from(status.code()) } };
            let set = side.plain().update_one(&side.nodes, live, set).await?;
            Ok(Changed::when(set > 0))
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.call("nodes", || async {
            let side = self.live();
            let (nodes, _) = self.all_nodes(&mut side.plain(), side).await?;
            Ok(nodes)
        })
        .await
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        // If the reply to a completed sweep was lost, a repetition would not report which nodes
        // died.
        self.call_once("sweep_nodes", || self.sweep(sweep)).await
    }

    async fn database_time(&self) -> Result<Timestamp> {
        self.call("database_time", || async {
            Ok(from_millis(self.millis(self.live()).await?))
        })
        .await
    }
}

fn live_statuses() -> Vec<i32> {
    let live = NodeStatus::ALL
        .into_iter()
        .filter(|status| status.is_live());
    live.map(|status| i32::from(status.code())).collect()
}

/// Returns an expression for the status of a node after a heartbeat that reports the status `said`.
/// The expression looks up the stored status in a table, which the core computes.
fn after_heartbeat(said: NodeStatus) -> Document {
    let after = NodeStatus::ALL.map(|stored| i32::from(stored.after_heartbeat(said).code()));
    doc! { "$arrayElemAt": [after.to_vec(), "$status"] }
}

/// Returns the update for a live node that stopped its heartbeats, or that another node displaced.
/// The update sets the status that the core defines for a lost node.
fn ended() -> Vec<Document> {
    let ended = NodeStatus::ALL.map(|stored| i32::from(stored.when_lost().code()));
    let status = doc! { "$arrayElemAt": [ended.to_vec(), "$status"] };
    vec![doc! { "$set": { "status": status } }]
}

impl MongoStore {
    async fn record(&self, heartbeat: &Heartbeat) -> Inner<HeartbeatReply> {
        let side = self.live();
        let now = self.now(side).await?;
        let mut node = self.beat(&mut side.plain(), heartbeat, now).await?;
        if node.is_none() {
            let mut tx = self.begin(side).await?;
            let joined = self.join(&mut tx, heartbeat, now).await;
            node = Some(tx.finish(joined).await?);
        }
        let node = node.ok_or_else(|| Failure::contention("a concurrent call deleted the node"))?;
        self.reply(heartbeat.node, &node).await
    }

    /// Stores a heartbeat of a registered node, and returns the node's document. Returns `None` if
    /// the node is not registered. [node.heartbeat]
    async fn beat(
        &self,
        on: &mut Tx<'_>,
        heartbeat: &Heartbeat,
        now: Now,
    ) -> Inner<Option<RawDocumentBuf>> {
        let mut set: Document = row::node_words(heartbeat)
            .into_iter()
            .map(|(field, value)| (field, plain(value)))
            .collect();
        set.insert("status", after_heartbeat(heartbeat.status));
        set.insert("previous", "$last_seen");
        set.insert("last_seen", now.expression());
        let this = doc! { "_id": row::id(heartbeat.node) };
        on.change(&self.live().nodes, this, vec![doc! { "$set": set }], false)
            .await
    }

    /// Registers a node. If several nodes join with the same label, only the last of them stays
    /// live.
    ///
    /// Each label has a document that numbers the joins. On a server with transactions, concurrent
    /// joins conflict in this document. On a server without transactions, each node stores its
    /// entry first, and then checks whether another node has joined with the label since.
    /// [node.label]
    async fn join(
        &self,
        tx: &mut Tx<'_>,
        heartbeat: &Heartbeat,
        now: Now,
    ) -> Inner<RawDocumentBuf> {
        let side = self.live();
        let label = heartbeat.label.as_str();
        let joins = heartbeat.status == NodeStatus::Joining;
        let mut set: Document = row::node_words(heartbeat)
            .into_iter()
            .map(|(field, value)| (field, plain(value)))
            .collect();
        set.insert("status", i32::from(heartbeat.status.code()));
        set.insert("started_at", now.expression());
        set.insert("last_seen", now.expression());
        let mut number = 0;
        if joins {
            let meet = doc! { "$inc": { "joined": 1_i64 } };
            let met = tx
                .change(&side.labels, doc! { "_id": label }, meet, true)
                .await?;
            let met =
                met.ok_or_else(|| Failure::contention("a concurrent call deleted the label"))?;
            number = row::int(&met, "joined")?;
            set.insert("joined", number);
        }
        let this = doc! { "_id": row::id(heartbeat.node) };
        // This is an upsert, because an insert cannot evaluate the time. If the entry already
        // exists, an earlier heartbeat of the same node has written it.
        let new = tx
            .change(&side.nodes, this.clone(), vec![doc! { "$set": set }], true)
            .await?;
        let new = new.ok_or_else(|| Failure::contention("a concurrent call deleted the node"))?;
        if !joins {
            return Ok(new);
        }
        let earlier = doc! {
            "label": label,
            "status": { "$in": live_statuses() },
            "_id": { "$ne": row::id(heartbeat.node) },
            // Also matches nodes without a number, which never reported `Joining`.
            "joined": { "$not": { "$gt": number } },
        };
        tx.update_many(&side.nodes, earlier, ended()).await?;
        let last = tx.find_one(&side.labels, doc! { "_id": label }).await?;
        let last = last.map(|last| row::int(&last, "joined")).transpose()?;
        if last > Some(number)
            && let Some(displaced) = tx.change(&side.nodes, this, ended(), false).await?
        {
            return Ok(displaced);
        }
        Ok(new)
    }

    /// Returns the reply to a heartbeat: the node's status, its claims, and whether no other node
    /// is live. [node.reply] [node.previous] [node.claims] [node.cancel] [node.alone]
    async fn reply(&self, node: NodeId, stored: &RawDocumentBuf) -> Inner<HeartbeatReply> {
        let side = self.live();
        let mut on = side.plain();
        let status = NodeStatus::from_code(row::int(stored, "status")?)?;
        let now = from_millis(row::int(stored, "last_seen")?);
        let previous = row::optional_int(stored, "previous")?.map(from_millis);
        let owned = doc! { "node": row::id(node), "state": code(JobState::Running) };
        let options = FindOptions::builder()
            .projection(doc! { "claim_seq": 1, "node": 1, "claimed_at": 1, "cancel_requested": 1 })
            .sort(doc! { "_id": 1 })
            .build();
        let mut claims = Vec::new();
        for row in on.find(&side.jobs, owned, options).await? {
            match row::owned_claim(&row) {
                Ok(claim) => claims.push(claim),
                Err(error) => tracing::warn!(%error, "skipped a claim of this node that cannot be \
                    read"),
            }
        }
        let live = doc! {
            "_id": { "$ne": row::id(node) },
            "status": { "$in": live_statuses() },
        };
        // After a deploy, the oldest nodes are those that have ended. So this reads the nodes in
        // the order of their random ids, until one is live.
        let first = FindOptions::builder()
            .projection(doc! { "_id": 1 })
            .sort(doc! { "_id": 1 })
            .limit(1)
            .build();
        let alone = on.find(&side.nodes, live, first).await?.is_empty();
        Ok(HeartbeatReply::new(now, status, previous, claims, alone))
    }

    /// Returns every node that can be read, newest first. Also returns the number of all stored
    /// nodes, including those that cannot be read.
    pub(crate) async fn all_nodes(
        &self,
        on: &mut Tx<'_>,
        side: &Side,
    ) -> Inner<(Vec<NodeRecord>, usize)> {
        let rows = on
            .find(&side.nodes, doc! {}, FindOptions::default())
            .await?;
        let mut nodes = Vec::with_capacity(rows.len());
        for row in &rows {
            match row::node_record(row) {
                Ok(node) => nodes.push(node),
                Err(error) => tracing::warn!(%error, "skipped a stored node that cannot be read"),
            }
        }
        nodes.sort_by_key(|node| (std::cmp::Reverse(node.started_at), node.node));
        Ok((nodes, rows.len()))
    }

    async fn sweep(&self, sweep: &NodeSweep) -> Inner<Guarded<SweptNodes>> {
        let side = self.live();
        // Read the time before the nodes. In the opposite order, time could pass between the two
        // reads, and a node that sends a heartbeat in between could look silent.
        let now = from_millis(self.millis(side).await?);
        let Some(mut guarded) = self.begin_guarded(side, sweep.guard.as_ref()).await? else {
            return Ok(Guarded::Stale);
        };
        let swept = self.sweep_inside(&mut guarded.tx, sweep, now).await;
        guarded.finish(self, swept).await
    }

    async fn sweep_inside(
        &self,
        tx: &mut Tx<'_>,
        sweep: &NodeSweep,
        now: Timestamp,
    ) -> Inner<SweptNodes> {
        let side = self.live();
        let (nodes, _) = self.all_nodes(tx, side).await?;
        let mut swept = SweptNodes::default();
        let unchanged = |node: &NodeRecord, statuses: Vec<i32>| {
            doc! {
                "_id": row::id(node.node),
                "status": { "$in": statuses },
                "last_seen": to_millis(node.last_seen),
            }
        };
        for node in nodes.iter().filter(|node| sweep.marks_dead(node, now)) {
            let silent = unchanged(node, live_statuses());
            let died = tx.update_one(&side.nodes, silent, ended()).await? > 0;
            swept.died.extend(died.then_some(node.node));
        }
        swept.died.sort();
        for node in nodes
            .iter()
            .filter(|node| sweep.forgets(node, &swept.died, now))
        {
            let claims = doc! { "node": row::id(node.node), "state": code(JobState::Running) };
            if tx.find_one(&side.jobs, claims).await?.is_none() {
                let ends = [NodeStatus::Left, NodeStatus::Dead];
                let ended = unchanged(node, ends.map(|end| i32::from(end.code())).to_vec());
                let gone = tx.delete_many(&side.nodes, ended).await?;
                if gone > 0 && self.has_transactions() {
                    self.forget_label(tx, node.label.as_str()).await?;
                }
                swept.forgotten += gone;
            }
        }
        Ok(swept)
    }

    /// Deletes the document of a label if no stored node has this label. A node without a
    /// configured name gets a label that is never used again, so unused documents would accumulate.
    /// If a node joins with the label at the same time, the join and the deletion conflict.
    async fn forget_label(&self, tx: &mut Tx<'_>, label: &str) -> Inner<()> {
        let side = self.live();
        if tx
            .find_one(&side.nodes, doc! { "label": label })
            .await?
            .is_none()
        {
            tx.delete_many(&side.labels, doc! { "_id": label }).await?;
        }
        Ok(())
    }
}

/// Wraps a string, so that the server does not evaluate the string as an expression. Leaves other
/// values unchanged.
fn plain(value: Bson) -> Bson {
    match value {
        Bson::String(text) => literal(&text).into(),
        other => other,
    }
}
