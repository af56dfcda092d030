//! Leadership: one loop for each role of the node, which campaigns while the node is active.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::roles::Candidacy;
use crate::client::{Client, RetryDelays};
use crate::cluster::ElectionOutcome;
use crate::engine::common::Common;
use crate::engine::membership::beacons::Beacons;
use crate::engine::membership::heartbeat_interval::HeartbeatInterval;
use crate::engine::membership::identity::Identity;
use crate::error::Result;
use crate::metrics::{self, StepDown};
use crate::model::NodeStatus;
use crate::time;

/// The handles that the loops of the roles use.
pub(crate) struct LeaderHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) interval: Arc<HeartbeatInterval>,
    pub(crate) beacons: Arc<Beacons>,
    pub(crate) client: Client,
    /// Cancelled when the run stops leading.
    pub(crate) stepping_down: CancellationToken,
}

/// The longest time for which a candidate does not read the lock of a leader whose beacons arrive.
const UNREAD: Duration = Duration::from_secs(60);

/// The time after a beacon for which a candidate does not read the lock, in leader heartbeats. With
/// the defaults it is two intervals of beacons. It is not much longer than a heartbeat, because a
/// store may free the lock of a leader as soon as its connection ends.
const HEARD: f64 = 4.0 / 3.0;

/// The largest jitter of a turn in which the node does not lead, as a fraction of the leader
/// heartbeat; it is never longer than a second. The candidate that comes first acquires a free
/// role, so the jitter distributes the roles over the nodes at random.
const JITTER: f64 = 0.1;

/// Campaigns for the role, as long as the node may lead.
pub(crate) async fn run(run: Arc<LeaderHandles>, candidacy: Arc<Candidacy>) {
    metrics::candidate(candidacy.leadership.role());
    let mut backoff = RetryDelays::of("leader").about(candidacy.leadership.role());
    tokio::time::sleep(jitter(&run)).await;
    while !run.stepping_down.is_cancelled() {
        let turn = turn(&run, &candidacy).await;
        let wait = match &turn {
            Ok((_, wait)) => {
                backoff.reset();
                *wait
            }
            Err(error) => {
                let delay = backoff.failed(error, run.common.random());
                delay.min(heartbeat(&run))
            }
        };
        let next = async {
            tokio::time::sleep(wait).await;
            if let Ok((Some(ElectionOutcome::OtherLeader { .. }), _)) = turn {
                while_leader_is_heard(&run, &candidacy).await;
                tokio::time::sleep(jitter(&run)).await;
            }
        };
        tokio::select! {
            biased;
            () = run.stepping_down.cancelled() => return,
            () = next => {}
        }
    }
}

/// Waits while beacons of the leader arrive, for at most [`UNREAD`]. Only the leader of the role
/// `maintenance` sends beacons.
async fn while_leader_is_heard(run: &LeaderHandles, candidacy: &Candidacy) {
    if !candidacy.is_maintenance() {
        return;
    }
    let longest = time::monotonic() + UNREAD;
    let mut beacons = run.beacons.watch();
    loop {
        let Some(beacon) = beacons.borrow_and_update().undoubted() else {
            return;
        };
        let leads = candidacy.election.lock().await.has_seen(beacon.leader);
        let until = beacon.heard + heartbeat(run).mul_f64(HEARD);
        let until = until.min(beacon.leads_until).min(longest);
        if !leads || until <= time::monotonic() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            _ = beacons.changed() => {}
        }
    }
}

/// Notifies the watchers when the leadership of the role could not be renewed in time.
pub(crate) async fn watchdog(candidacy: Arc<Candidacy>) {
    candidacy.leadership.watchdog().await;
}

/// Takes one turn of the election. Returns its outcome, or `None` if the node may not lead now, and
/// how long to wait before the next turn.
async fn turn(
    run: &LeaderHandles,
    candidacy: &Candidacy,
) -> Result<(Option<ElectionOutcome>, Duration)> {
    let mut election = candidacy.election.lock().await;
    let leads = candidacy.leadership.is_leader();
    if run.stepping_down.is_cancelled() || (!leads && run.identity.status() != NodeStatus::Active) {
        return Ok((None, heartbeat(run)));
    }
    let mut former = None;
    if election.is_of_another(run.identity.node()) {
        // The node was declared dead and has a new id. Work that needs this role must stop here
        // before another node leads.
        candidacy.leadership.step_down(StepDown::Superseded);
        drop(candidacy.in_use.lock().await);
        former = candidacy.leadership.lock_holder();
    }
    if let Some(beacon) = run.beacons.last()
        && candidacy.is_maintenance()
    {
        election.heard_leader(beacon.leader, beacon.leads_until);
    }
    let outcome = election.turn(run.identity.node()).await?;
    if let Some(former) = former {
        candidacy.announce_resignation(&run.client, former).await;
    }
    if let ElectionOutcome::Elected(term) = &outcome {
        run.interval.at_work();
        tracing::info!(node = %run.identity.node(), role = %candidacy.leadership.role(), term = term.0, "node leads");
    }
    let wait = election.next_turn(&outcome);
    Ok((Some(outcome), run.common.aligned(wait).unwrap_or(wait)))
}

fn jitter(run: &LeaderHandles) -> Duration {
    let longest = heartbeat(run).mul_f64(JITTER).min(Duration::from_secs(1));
    longest.mul_f64(run.common.random())
}

fn heartbeat(run: &LeaderHandles) -> Duration {
    run.common.config.leadership.heartbeat
}
