//! Starts and ends the loops of a run.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::claim::{commit_watch, poller, prefetch};
use super::execute::{executor, reporter};
use super::lead::{daemon, gate, leader};
use super::maintain::{
    backlog, due_watch, heartbeat, maintenance, reclaimer, recurring, undelivered,
};
use super::membership::beacons;
use super::run::Run;
use super::settle::settler;
use super::supervisor::keep;

/// How long aborted loops and bodies may take to end before they are abandoned.
const LEAVE_BEHIND: Duration = Duration::from_secs(1);

/// Starts the loops and the slots. Dropping the returned set ends them.
pub(super) fn start(run: &Run) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    keep(&mut tasks, &run.heartbeat, "heartbeat", heartbeat::run);
    keep(
        &mut tasks,
        &run.undelivered,
        "undelivered",
        undelivered::run,
    );
    keep(&mut tasks, &run.reclaimer, "reclaimer", reclaimer::run);
    keep(&mut tasks, &run.settler, "settler", settler::run);
    keep(&mut tasks, &run.reporter, "reporter", reporter::run);
    let ttl = run.shared.common.config.prefetch_ttl;
    keep(&mut tasks, &run.claims, "prefetch", move |claims| {
        prefetch::run(claims, ttl)
    });
    keep(
        &mut tasks,
        &run.maintenance,
        "maintenance",
        maintenance::run,
    );
    keep(&mut tasks, &run.backlog, "backlog", backlog::run);
    keep(&mut tasks, &run.beacons, "beacons", beacons::run);
    keep(&mut tasks, &run.due_watch, "due_watch", due_watch::run);
    keep(&mut tasks, &run.poller, "commit_watch", commit_watch::run);
    if run.shared.common.calls.store().recurring().is_some() {
        keep(&mut tasks, &run.recurring, "recurring", recurring::run);
    }
    for candidacy in run.shared.roles.all() {
        let one = Arc::clone(candidacy);
        keep(&mut tasks, &run.leader, "leader", move |leader| {
            leader::run(leader, Arc::clone(&one))
        });
        keep(&mut tasks, candidacy, "watchdog", leader::watchdog);
    }
    for daemon in &run.shared.daemons {
        if let Some(candidacy) = run.shared.roles.get(daemon.role.as_str()) {
            let (daemon, candidacy) = (daemon.clone(), Arc::clone(candidacy));
            keep(&mut tasks, &run.daemon, "daemon", move |handles| {
                daemon::run(handles, daemon.clone(), Arc::clone(&candidacy))
            });
        }
    }
    if let Some(leadership) = run.shared.gate().0 {
        keep(&mut tasks, &run.claims, "gate", move |claims| {
            gate::run(claims, leadership.clone())
        });
    }
    let pools: &[_] = if run.shared.works {
        &run.claims.pools
    } else {
        &[]
    };
    for (index, pool) in pools.iter().enumerate() {
        let slots = pool.share().concurrency;
        pool.metrics.open(slots);
        for _ in 0..slots {
            let slot = move |executor| executor::slot(executor, index);
            keep(&mut tasks, &run.executor, "slot", slot);
        }
        let poller = move |poller| poller::run(poller, index);
        keep(&mut tasks, &run.poller, "poller", poller);
    }
    tasks
}

/// Ends the loops and the slots. A body that blocks its thread cannot be stopped. It is abandoned,
/// and nothing that it still reports for its job takes effect.
pub(super) async fn end(mut tasks: JoinSet<()>) {
    tasks.abort_all();
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LEAVE_BEHIND, ended).await.is_err() {
        tracing::error!(
            bodies = tasks.len(),
            "abandoned bodies that did not stop, because they block their threads"
        );
        tasks.detach_all();
    }
}
