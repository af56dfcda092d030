//! The heartbeat: shows the cluster that the node is alive, and receives orders for the node.
//!
//! The reply lists the claims that the store has under this node, with the cancel requests for
//! their jobs. The reply may order the node to drain, or report that the cluster declared the node
//! dead. A node that was only slow then drops its claims and continues under a new id. Other nodes
//! run the jobs of these claims. A node that was displaced by another node with its label stops.
//!
//! [`HeartbeatInterval`] decides how often the node sends a heartbeat.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::load::Gauge;
use crate::client::{RetryDelays, WakeQueue};
use crate::engine::common::Common;
use crate::engine::execute::breakers::Breakers;
use crate::engine::execute::running::RunningSet;
use crate::engine::lead::gate::Gate;
use crate::engine::lead::roles::Roles;
use crate::engine::membership::heartbeat_interval::HeartbeatInterval;
use crate::engine::membership::identity::Identity;
use crate::engine::membership::liveness::Liveness;
use crate::engine::settle::held_claims::HeldClaims;
use crate::engine::totals::Totals;
use crate::error::Result;
use crate::handler::CancelReason;
use crate::metrics;
use crate::model::{
    Heartbeat, HeartbeatReply, NodeLoad, NodeProfile, NodeStatus, Outcome, Settlement,
};
use crate::time::{self, Timestamp};

/// Maximum difference between the clocks of the node and of the database. If the difference is
/// larger, the node logs a warning.
const SKEW: Duration = Duration::from_secs(1);

/// Shared state that the heartbeat loop uses.
pub(crate) struct HeartbeatHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) interval: Arc<HeartbeatInterval>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) claims: Arc<HeldClaims>,
    pub(crate) running: Arc<RunningSet>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) gauge: Gauge,
    /// Profile that the node publishes with each heartbeat. It contains the version of the
    /// time-zone data, which was read when the run began: reading that version from files is too
    /// slow for a heartbeat.
    pub(crate) profile: NodeProfile,
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) gate: Gate,
    pub(crate) wake_queue: Arc<WakeQueue>,
    /// Maximum number of job bodies that the node runs at once.
    pub(crate) capacity: usize,
    /// Lock that a task holds while it sends a heartbeat and acts on the reply. Without the lock,
    /// two concurrent heartbeats could both change the node's id.
    pub(crate) beating: Mutex<()>,
    /// Token that is cancelled when the run stops claiming jobs.
    pub(crate) draining: CancellationToken,
    /// Token that is cancelled when another live node has taken over this node's label.
    pub(crate) displaced: CancellationToken,
}

/// Sends heartbeats repeatedly while the node runs.
pub(crate) async fn run(run: Arc<HeartbeatHandles>) {
    let mut backoff = RetryDelays::of("heartbeat");
    loop {
        let beaten = tick(&run).await;
        let next = async {
            match beaten {
                Ok(()) => {
                    backoff.reset();
                    run.interval.until_due().await;
                }
                Err(error) => {
                    let shortest = run.common.config.heartbeat_interval;
                    let delay = backoff.failed(&error, run.common.random());
                    tokio::time::sleep(delay.min(shortest)).await;
                }
            }
        };
        tokio::select! {
            () = run.interval.beat_asked() => {}
            () = next => {}
        }
    }
}

/// Sends one heartbeat and acts on the reply: cancels jobs, drains the node, or gives the node a
/// new id if the cluster declared the node dead.
pub(crate) async fn tick(run: &HeartbeatHandles) -> Result<()> {
    let _beating = run.beating.lock().await;
    let reply = beat(run, run.identity.status()).await?;
    let skew = skew(reply.database_time);
    run.totals.clock_skew_millis.store(skew, Ordering::Relaxed);
    metrics::clock_skew(skew);
    run.interval
        .learn(reply.alone, is_at_rest(run, reply.alone));
    let cancel_requested = reply.cancel_requested();
    for pool in &run.claims.pools {
        for claim in pool.ready.take_these(&cancel_requested) {
            let cancelled = Settlement::new(claim.claim.token, Outcome::Cancelled);
            run.claims
                .settle_ended(pool, &claim.claim, cancelled.without_attempt());
        }
    }
    for token in cancel_requested {
        run.running.cancel(token, CancelReason::Requested);
    }
    match reply.status {
        NodeStatus::Draining => run.draining.cancel(),
        NodeStatus::Dead | NodeStatus::Left if run.identity.status().is_live() => {
            return taken_for_dead(run).await;
        }
        _ => {}
    }
    Ok(())
}

/// Waits until no other heartbeat is under way, then sends one heartbeat with this status. Of two
/// concurrent heartbeats, each would overwrite the `last_seen` that the other expects. The node
/// would then wrongly conclude that the database went back to an earlier state.
pub(crate) async fn announce(run: &HeartbeatHandles, status: NodeStatus) -> Result<HeartbeatReply> {
    let _beating = run.beating.lock().await;
    beat(run, status).await
}

/// Sends one heartbeat with this status. The caller must hold the lock
/// [`HeartbeatHandles::beating`], unless the loops of the run have not started yet.
pub(crate) async fn beat(run: &HeartbeatHandles, status: NodeStatus) -> Result<HeartbeatReply> {
    let config = &run.common.config;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let mut load = NodeLoad::new(count(run.running.len()), count(run.capacity));
    load.connections = run.common.calls.store().connections();
    load.totals = Some(run.totals.read());
    load.unheld_claims = Some(count(run.claims.ledger.unheld()));
    if let Some((cpu_percent, memory_bytes)) = run.gauge.read() {
        load.cpu_percent = Some(cpu_percent);
        load.memory_bytes = Some(memory_bytes);
    }
    let mut profile = run.profile.clone();
    let kinds = profile.kinds.as_deref().unwrap_or_default();
    profile.pools = Some(match run.gate.is_closed() || kinds.is_empty() {
        true => Vec::new(),
        false => {
            let pools = run.claims.pools.iter();
            pools.map(|pool| pool.profile(kinds)).collect()
        }
    });
    profile.open_breakers = run.breakers.not_closed();
    let (label, interval) = (run.identity.label().clone(), run.interval.publish());
    let node = run.identity.node();
    run.wake_queue.set_node(node);
    let heartbeat = Heartbeat::new(node, label, status, interval)
        .load(load)
        .profile(profile);
    let calls = &run.common.calls;
    let call = calls.call_within(config.heartbeat_deadline(), "heartbeat", |store| {
        store.nodes().heartbeat(&heartbeat)
    });
    let list = run.claims.ledger.begin_list();
    let asked = time::monotonic();
    run.liveness.beats(interval, asked);
    let reply = call.await;
    metrics::heartbeat(asked.elapsed(), reply.is_ok());
    let reply = reply?;
    run.liveness.heard(&heartbeat, asked, &reply);
    list.compare(&reply.claims);
    run.identity
        .metrics
        .unheld_claims(run.claims.ledger.unheld());
    let listed = reply.claims.iter().map(|claim| claim.token).collect();
    run.running.doubt_unlisted(&listed, asked);
    Ok(reply)
}

/// Returns whether the node is idle, so that its death would delay no work. An idle node is active,
/// runs no job body and leads no other node. `alone` is true if there is no other node. An idle
/// node has no claim that waits for a slot, and the store lists no claim that the node never
/// received.
fn is_at_rest(run: &HeartbeatHandles, alone: bool) -> bool {
    let holds = run.claims.has_waiting() || run.claims.ledger.unheld() > 0;
    let leads_others = run.roles.any_leads() && !alone;
    let idle = run.running.len() == 0 && !holds && !leads_others;
    idle && run.identity.status() == NodeStatus::Active
}

async fn taken_for_dead(run: &HeartbeatHandles) -> Result<()> {
    for pool in &run.claims.pools {
        for ready in pool.ready.take_all() {
            run.claims.lose_waiting(pool, ready.claim.token);
        }
    }
    run.running.cancel_all(CancelReason::ClaimLost);
    let nodes = run
        .common
        .calls
        .call("nodes", |store| store.nodes().nodes())
        .await?;
    let displaced = nodes.iter().any(|node| {
        node.label == *run.identity.label()
            && node.node != run.identity.node()
            && node.status.is_live()
    });
    metrics::taken_for_dead(displaced);
    if displaced {
        tracing::error!(label = %run.identity.label(), "another node has taken over this node's label");
        run.displaced.cancel();
        return Ok(());
    }
    run.identity.renew();
    tracing::warn!(node = %run.identity.node(), "the node was declared dead and continues under a new id");
    beat(run, run.identity.status()).await.map(drop)
}

/// Returns by how many milliseconds this node's clock is ahead of the database's clock. The number
/// is negative if the node's clock is behind. Logs a warning if the difference exceeds [`SKEW`].
fn skew(database_time: Timestamp) -> i64 {
    let milliseconds = (time::wall_clock() - database_time).num_milliseconds();
    if u128::from(milliseconds.unsigned_abs()) > SKEW.as_millis() {
        tracing::warn!(
            milliseconds,
            "the clocks of this node and of the database differ"
        );
    }
    milliseconds
}
