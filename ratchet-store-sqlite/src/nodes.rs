//! [`NodeStore`] on SQLite.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ratchet_core::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, OwnedClaim, SweptNodes,
};
use ratchet_core::store::{Changed, NodeStore};
use ratchet_core::time::{Timestamp, duration_millis, from_millis};
use ratchet_core::{ClaimToken, Name, NodeId, Result};
use rusqlite::params;

use crate::error::Result as Inner;
use crate::locks::is_tenure;
use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::statements::{Connection, SQL};
use crate::store::SqliteStore;

#[async_trait]
impl NodeStore for SqliteStore {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        let heartbeat = heartbeat.clone();
        self.write_volatile("heartbeat", move |work| record(work, &heartbeat))
            .await
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        self.write("set_node_status", Urgency::Urgent, move |work| {
            let mut statement = work.conn.prepare_cached(&SQL.set_node_status)?;
            let rows = statement.execute(params![node.as_bytes(), status.code()])?;
            Ok(Changed::when(rows > 0))
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.read("nodes", |work| all_nodes(work.conn)).await
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        let sweep = sweep.clone();
        self.write("sweep_nodes", Urgency::Urgent, move |work| {
            if !is_tenure(work, sweep.guard.as_ref())? {
                return Ok(Guarded::Stale);
            }
            sweep_all(work, &sweep).map(Guarded::Done)
        })
        .await
    }

    async fn database_time(&self) -> Result<Timestamp> {
        self.read("database_time", |work| Ok(from_millis(work.now)))
            .await
    }
}

fn record(work: &Work<'_>, heartbeat: &Heartbeat) -> Inner<HeartbeatReply> {
    let conn = work.conn;
    let stored = conn
        .prepare_cached(&SQL.find_node)?
        .query_map([heartbeat.node.as_bytes()], |row| Ok(row::node_record(row)))?
        .next()
        .transpose()?
        // If the row is unreadable, the node's report replaces it.
        .and_then(Inner::ok);
    if stored.is_none() && heartbeat.status == NodeStatus::Joining {
        conn.prepare_cached(&SQL.displace_label)?
            .execute([heartbeat.label.as_str()])?;
    }
    let previous = stored.as_ref().map(|node| node.last_seen);
    let status = stored.map_or(heartbeat.status, |node| {
        node.status.after_heartbeat(heartbeat.status)
    });
    conn.prepare_cached(&SQL.put_node)?.execute(params![
        heartbeat.node.as_bytes(),
        heartbeat.label.as_str(),
        status.code(),
        heartbeat.load.running,
        heartbeat.load.capacity,
        duration_millis(heartbeat.interval),
        work.now,
        work.now,
        heartbeat.load.connections,
        heartbeat.load.cpu_percent,
        heartbeat
            .load
            .memory_bytes
            .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        Name::join(&heartbeat.profile.roles),
        Name::join(&heartbeat.profile.capabilities),
        heartbeat.profile.kinds.as_deref().map(Name::join),
        heartbeat.notes(),
    ])?;
    let claims = conn
        .prepare_cached(&SQL.node_claims)?
        .query_map([heartbeat.node.as_bytes()], |row| {
            let token = ClaimToken::new(
                row::job_id(row, 0)?,
                row::seq(row, 1)?,
                Some(heartbeat.node),
                from_millis(row.get(3)?),
            );
            Ok(OwnedClaim::new(token, row.get(2)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut is_alone = conn.prepare_cached(&SQL.is_alone)?;
    let alone = is_alone.query_row([heartbeat.node.as_bytes()], |row| row.get(0))?;
    Ok(HeartbeatReply::new(
        from_millis(work.now),
        status,
        previous,
        claims,
        alone,
    ))
}

/// Returns every node that can be read, newest first.
pub(crate) fn all_nodes(conn: Connection<'_>) -> Inner<Vec<NodeRecord>> {
    let mut statement = conn.prepare_cached(&SQL.nodes)?;
    let mut rows = statement.query([])?;
    let mut nodes = Vec::new();
    while let Some(row) = rows.next()? {
        match row::node_record(row) {
            Ok(node) => nodes.push(node),
            Err(error) => tracing::warn!(%error, "skipped a stored node that cannot be read"),
        }
    }
    Ok(nodes)
}

fn sweep_all(work: &Work<'_>, sweep: &NodeSweep) -> Inner<SweptNodes> {
    let now = from_millis(work.now);
    let mut nodes = all_nodes(work.conn)?;
    let mut swept = SweptNodes::default();
    let mut set_status = work.conn.prepare_cached(&SQL.set_node_status)?;
    for node in nodes.iter().filter(|node| sweep.marks_dead(node, now)) {
        set_status.execute(params![
            node.node.as_bytes(),
            node.status.when_lost().code()
        ])?;
        swept.died.push(node.node);
    }
    swept.died.sort();
    nodes.retain(|node| sweep.forgets(node, &swept.died, now));
    if nodes.is_empty() {
        return Ok(swept);
    }
    let owners: BTreeSet<NodeId> = work
        .conn
        .prepare_cached(&SQL.claim_owners)?
        .query_map([], |row| row.get(0).map(NodeId::from_bytes))?
        .collect::<rusqlite::Result<_>>()?;
    let mut forget = work.conn.prepare_cached(&SQL.forget_node)?;
    for node in nodes.iter().filter(|node| !owners.contains(&node.node)) {
        swept.forgotten += forget.execute([node.node.as_bytes()])? as u64;
    }
    Ok(swept)
}
