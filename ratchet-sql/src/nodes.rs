//! [`NodeStore`] on SQL. Most of its calls use the connection for heartbeats and locks.

use async_trait::async_trait;
use ratchet_core::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, OwnedClaim, SweptNodes,
};
use ratchet_core::store::{Changed, NodeStore};
use ratchet_core::time::{Timestamp, duration_millis, from_millis, to_millis};
use ratchet_core::{ClaimToken, Name, NodeId, Result, StoreErrorKind};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result as Inner};
use crate::row;
use crate::statement::OwnStatements as _;
use crate::store::SqlStore;

#[async_trait]
impl<D: Dialect> NodeStore for SqlStore<D> {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        self.call("heartbeat", || self.record(heartbeat)).await
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        self.call("set_node_status", || async {
            let set = self.sql().set_node_status.query();
            let set = set.bind(node.as_uuid()).bind(i16::from(status.code()));
            Ok(Changed::when(self.live().await?.execute(set).await? > 0))
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.call("nodes", || async {
            let (nodes, _) = self.all_nodes(&mut self.lease().await?).await?;
            Ok(nodes)
        })
        .await
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        // A sweep whose reply was lost may have taken effect. A repeated sweep would not report
        // again which nodes died.
        self.call_once("sweep_nodes", || self.sweep(sweep)).await
    }

    async fn database_time(&self) -> Result<Timestamp> {
        self.call("database_time", || async {
            let rows = self.live().await?.rows(self.sql().now.query()).await?;
            let now = rows.first().map(|row| row.try_get(0)).transpose()?;
            Ok(from_millis(now.ok_or_else(no_row)?))
        })
        .await
    }
}

fn no_row() -> Failure {
    Failure::new(StoreErrorKind::Other, "the database returned no row")
}

impl<D: Dialect> SqlStore<D> {
    async fn record(&self, heartbeat: &Heartbeat) -> Inner<HeartbeatReply> {
        let mut lease = self.live().await?;
        let node = heartbeat.node;
        let rows = self.beat(&mut lease, heartbeat).await?;
        if let Some(reply) = reply(&rows, node)? {
            return Ok(reply);
        }
        lease.begin().await?;
        let joined = async {
            if let Some(label) = self.sql().own.await_label() {
                let label = label.query().bind(heartbeat.label.as_str());
                lease.rows(label).await?;
            }
            let status = i16::from(heartbeat.status.code());
            let join = bind_words(self.sql().put_node.query(), heartbeat).bind(status);
            lease.rows(join).await?;
            self.beat(&mut lease, heartbeat).await
        }
        .await;
        let mut reply = reply(&lease.end(joined).await?, node)?.ok_or_else(no_row)?;
        reply.previous = None;
        Ok(reply)
    }

    async fn beat(&self, lease: &mut D::Lease, heartbeat: &Heartbeat) -> Inner<Vec<D::Row>> {
        let after = NodeStatus::ALL.map(|stored| stored.after_heartbeat(heartbeat.status));
        let mut beat = bind_words(self.sql().beat_node.query(), heartbeat);
        for status in after {
            beat = beat.bind(i16::from(status.code()));
        }
        lease.rows(beat).await
    }

    /// Returns every readable node, newest first, and the database's time.
    async fn all_nodes(&self, lease: &mut D::Lease) -> Inner<(Vec<NodeRecord>, Timestamp)> {
        let rows = lease.rows(self.sql().nodes.query()).await?;
        let mut nodes = Vec::with_capacity(rows.len());
        let mut now = 0;
        for row in &rows {
            now = row.try_get(13)?;
            match node_of(row) {
                Ok(node) => nodes.extend(node),
                Err(error) => tracing::warn!(%error, "skipped a stored node that cannot be read"),
            }
        }
        Ok((nodes, from_millis(now)))
    }

    async fn sweep(&self, sweep: &NodeSweep) -> Inner<Guarded<SweptNodes>> {
        let Some(mut lease) = self
            .begin_guarded(self.live().await?, sweep.guard.as_ref())
            .await?
        else {
            return Ok(Guarded::Stale);
        };
        let swept = self.sweep_inside(&mut lease, sweep).await;
        lease.end(swept.map(Guarded::Done)).await
    }

    async fn sweep_inside(&self, lease: &mut D::Lease, sweep: &NodeSweep) -> Inner<SweptNodes> {
        let (nodes, now) = self.all_nodes(lease).await?;
        let mut swept = SweptNodes::default();
        let silent = nodes.iter().filter(|node| sweep.marks_dead(node, now));
        let silent: Vec<&NodeRecord> = silent.collect();
        if !silent.is_empty() {
            let ids: Vec<Uuid> = silent.iter().map(|node| node.node.as_uuid()).collect();
            let seen: Vec<i64> = silent
                .iter()
                .map(|node| to_millis(node.last_seen))
                .collect();
            let bury = self
                .sql()
                .bury_nodes
                .query()
                .table(&[("node", &ids), ("last_seen", &seen)]);
            for row in lease.rows(bury).await? {
                swept.died.extend(row::node_id(&row, 0)?);
            }
            swept.died.sort();
        }
        let old = nodes
            .iter()
            .filter(|node| sweep.forgets(node, &swept.died, now));
        let old: Vec<Uuid> = old.map(|node| node.node.as_uuid()).collect();
        if !old.is_empty() {
            let forget = self.sql().forget_nodes.query().bind(&old);
            swept.forgotten = lease.execute(forget).await?;
        }
        Ok(swept)
    }
}

/// Binds the data that a node reports about itself, as the first 13 parameters. Binds an empty text
/// in place of a missing text. The twelfth parameter tells whether the node reports the kinds that
/// it runs. It distinguishes a node that reports an empty list from a node that reports no list.
fn bind_words<Q: Query>(query: Q, heartbeat: &Heartbeat) -> Q {
    let (load, kinds) = (&heartbeat.load, heartbeat.profile.kinds.as_deref());
    let bytes = load
        .memory_bytes
        .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    query
        .bind(heartbeat.node.as_uuid())
        .bind(heartbeat.label.as_str())
        .bind(i64::from(load.running))
        .bind(i64::from(load.capacity))
        .bind(duration_millis(heartbeat.interval))
        .bind(load.connections.map(i64::from))
        .bind(load.cpu_percent.map(i64::from))
        .bind(bytes)
        .bind(&Name::join(&heartbeat.profile.roles))
        .bind(&Name::join(&heartbeat.profile.capabilities))
        .bind(&kinds.map(Name::join).unwrap_or_default())
        .bind(kinds.is_some())
        .bind(&heartbeat.notes().unwrap_or_default())
}

/// Reads a node from a row of the statement `nodes`, including its kinds and notes.
fn node_of(row: &impl Row) -> Inner<Option<NodeRecord>> {
    let mut node = row::node_record(row)?;
    if let Some(node) = &mut node {
        row::add_words(row, node)?;
    }
    Ok(node)
}

/// Reads the reply to a heartbeat from the rows of the statement `beat_node`. Returns `None` if the
/// node is unknown.
fn reply(rows: &[impl Row], node: NodeId) -> Inner<Option<HeartbeatReply>> {
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let now = from_millis(first.try_get(0)?);
    let status = NodeStatus::from_code(first.try_get::<i16>(1)?.into())?;
    let mut claims = Vec::new();
    for row in rows {
        if let Some(job) = row.try_get::<Option<Uuid>>(2)? {
            let claimed_at = row
                .try_get::<Option<i64>>(7)?
                .map_or(Timestamp::UNIX_EPOCH, from_millis);
            let token = ClaimToken::new(job.into(), row::seq(row, 3)?, Some(node), claimed_at);
            claims.push(OwnedClaim::new(token, row.try_get(4)?));
        }
    }
    let previous = first.try_get::<Option<i64>>(6)?.map(from_millis);
    let reply = HeartbeatReply::new(now, status, previous, claims, first.try_get(5)?);
    Ok(Some(reply))
}
