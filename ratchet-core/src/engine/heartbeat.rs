//! The heartbeat: keeps the node alive and carries orders to it.
//!
//! The reply lists the claims that the store has under this node, with the cancel requests for their
//! jobs. It may order the node to drain, or say that the cluster took the node for dead. A node that
//! was only slow then drops what it held and goes on under a new id; other nodes take those jobs. A
//! node that was displaced by another node with its label stops.
//!
//! How often it beats is for [`Pace`](super::pace::Pace).

use std::sync::Arc;
use std::time::Duration;

use super::run::Run;
use crate::client::Backoff;
use crate::error::Result;
use crate::handler::CancelReason;
use crate::metrics;
use crate::model::{Heartbeat, HeartbeatReply, NodeLoad, NodeStatus, Outcome, Settlement};
use crate::time::{self, Timestamp};

/// The difference between the node's clock and the database's that is worth a warning.
const SKEW: Duration = Duration::from_secs(1);

/// Beats for as long as the node runs.
pub(super) async fn run(run: Arc<Run>) {
    let mut backoff = Backoff::of("heartbeat");
    loop {
        let published = run.pace.interval();
        let wait = match tick(&run).await {
            Ok(()) => {
                backoff.reset();
                // Not later than was said, and sooner if there is news.
                published.min(run.pace.interval())
            }
            Err(error) => {
                let shortest = run.shared.config.heartbeat_interval;
                backoff.failed(&error, run.shared.random()).min(shortest)
            }
        };
        tokio::select! {
            () = run.beat_now.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Beats once and does what the reply asks for.
pub(super) async fn tick(run: &Run) -> Result<()> {
    let _beating = run.beating.lock().await;
    let reply = beat(run, run.status()).await?;
    let skew = skew(reply.database_time);
    run.shared.note_skew(skew);
    metrics::clock_skew(skew);
    run.pace.learn(reply.others, run.is_at_rest());
    let cancel_requested = reply.cancel_requested();
    for pool in &run.pools {
        for claim in pool.ready.take_these(&cancel_requested) {
            let cancelled = Settlement::new(claim.claim.token, Outcome::Cancelled);
            run.settle_ended(pool, &claim.claim, cancelled.without_attempt());
        }
    }
    for token in cancel_requested {
        run.running.cancel(token, CancelReason::Requested);
    }
    match reply.status {
        NodeStatus::Draining => run.draining.cancel(),
        NodeStatus::Dead | NodeStatus::Left if run.status().is_live() => {
            return taken_for_dead(run).await;
        }
        _ => {}
    }
    Ok(())
}

/// Sends one heartbeat with this status, after the one that is under way, if there is one: two at once
/// would take each other's `last_seen` for a rewind.
pub(super) async fn announce(run: &Run, status: NodeStatus) -> Result<HeartbeatReply> {
    let _beating = run.beating.lock().await;
    beat(run, status).await
}

/// Sends one heartbeat with this status. The caller holds [`Run::beating`], or no loop runs yet.
pub(super) async fn beat(run: &Run, status: NodeStatus) -> Result<HeartbeatReply> {
    let config = &run.shared.config;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let mut load = NodeLoad::new(count(run.running.len()), count(run.shared.capacity()));
    load.connections = run.shared.calls.store().connections();
    load.totals = Some(run.shared.totals.read());
    load.unheld_claims = Some(count(run.ledger.unheld()));
    if let Some((cpu_percent, memory_bytes)) = run.gauge.read() {
        load.cpu_percent = Some(cpu_percent);
        load.memory_bytes = Some(memory_bytes);
    }
    let mut profile = run.shared.profile.clone();
    profile.zone_data.clone_from(&run.zone_data);
    let (label, interval) = (run.label.clone(), run.pace.interval());
    let heartbeat = Heartbeat::new(run.node(), label, status, interval)
        .load(load)
        .profile(profile);
    let calls = &run.shared.calls;
    let call = calls.call_within(config.heartbeat_deadline(), "heartbeat", |store| {
        store.nodes().heartbeat(&heartbeat)
    });
    let asked = time::monotonic();
    run.beats(interval, asked);
    let reply = call.await;
    metrics::heartbeat(asked.elapsed(), reply.is_ok());
    let reply = reply?;
    run.heard(&heartbeat, asked, &reply);
    run.ledger.compare(&reply.claims);
    run.metrics.unheld_claims(run.ledger.unheld());
    let listed = reply.claims.iter().map(|claim| claim.token).collect();
    run.running.doubt_unlisted(&listed, asked);
    Ok(reply)
}

async fn taken_for_dead(run: &Run) -> Result<()> {
    for pool in &run.pools {
        for ready in pool.ready.take_all() {
            run.lose_waiting(pool, ready.claim.token);
        }
    }
    run.running.cancel_all(CancelReason::ClaimLost);
    let nodes = run
        .shared
        .calls
        .call("nodes", |store| store.nodes().nodes())
        .await?;
    let displaced = nodes
        .iter()
        .any(|node| node.label == run.label && node.node != run.node() && node.status.is_live());
    metrics::taken_for_dead(displaced);
    if displaced {
        tracing::error!(label = %run.label, "another node has taken over this node's label");
        run.displaced.cancel();
        return Ok(());
    }
    run.renew_identity();
    tracing::warn!(node = %run.node(), "the node was taken for dead and goes on under a new id");
    beat(run, run.status()).await.map(drop)
}

/// By how many milliseconds this node's clock is ahead of the database's; warned of if it is much.
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
