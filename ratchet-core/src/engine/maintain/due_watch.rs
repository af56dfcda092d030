//! Looks for due jobs on behalf of all nodes, so that idle nodes can poll less often.
//!
//! Only the leader of the maintenance role looks for due jobs: every `poll_interval.max`, and
//! sooner when a job becomes due. For each route with due jobs it wakes one node, as a client does
//! when it enqueues one job. If jobs of the route are still due at later looks, one node was not
//! enough, or the jobs cannot be claimed now. Because the leader cannot know which, it wakes all
//! nodes at the second, fourth, eighth and sixteenth look in a row, and at every sixteenth look
//! after that. If wakeups do not reach all nodes, each look wakes all nodes that they reach.
//!
//! Every [`BEACON`] the leader sends a beacon, which tells all nodes that it looks. A poller that
//! receives beacons polls less often. The leader sends no beacons while its looks or its reclaim
//! passes fail, nor if its `poll_interval.max` is longer than [`BEACON`]; then every node polls for
//! itself. The leader does send beacons while it pauses after a look that took long. Otherwise all
//! nodes would poll more often, just because the database is slow.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;

use super::rest;
use crate::client::{Client, RetryDelays, WakeQueue};
use crate::cluster::{ClusterCoordinator, Leadership};
use crate::engine::common::Common;
use crate::engine::lead::roles::{MAINTENANCE, Roles};
use crate::engine::membership::beacons::{BEACON, Beacons};
use crate::engine::membership::heartbeat_interval::HeartbeatInterval;
use crate::error::Result;
use crate::model::DueRoute;
use crate::route::Route;
use crate::time;

/// After this many looks in a row, all nodes are woken only at looks whose number is a multiple of
/// this number.
const MOST_LOOKS: u32 = 16;

/// The delay of the next look after this process has changed when jobs are due. The delay matters
/// only if `poll_interval.max` is longer. It is not zero, so that the woken nodes can claim first.
const SOON: Duration = Duration::from_secs(1);

/// The handles that the loop of this module uses.
pub(crate) struct DueWatchHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) interval: Arc<HeartbeatInterval>,
    pub(crate) beacons: Arc<Beacons>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) client: Client,
    pub(crate) wake_queue: Arc<WakeQueue>,
    pub(crate) coordinator: Arc<dyn ClusterCoordinator>,
}

/// Looks for due jobs, as long as the node runs.
pub(crate) async fn run(run: Arc<DueWatchHandles>) {
    let leadership = run.roles.leadership(MAINTENANCE);
    // Without wakeups between the nodes, each node has to poll for itself.
    let Some(leadership) = leadership.filter(|_| !run.coordinator.subscribe().is_never()) else {
        return std::future::pending().await;
    };
    let mut lead = leadership.watch();
    loop {
        let term = lead.elected().await;
        let works = AtomicBool::new(false);
        tokio::select! {
            biased;
            () = lead.lost(term) => {}
            _ = join(watch(&run, &works), send_beacons(&run, leadership, &works)) => {}
        }
    }
}

/// Looks for due jobs repeatedly, and records in `works` whether the last look succeeded.
async fn watch(run: &DueWatchHandles, works: &AtomicBool) {
    let mut backoff = RetryDelays::of("due_watch");
    let mut looks = Looks::default();
    loop {
        let looked = look(run, &mut looks).await;
        let failed = looked.is_err();
        works.store(!failed, Ordering::Relaxed);
        let wait = match looked {
            Ok(wait) => {
                backoff.reset();
                wait
            }
            Err(error) => backoff.failed(&error, run.common.random()),
        };
        let next = time::monotonic() + wait;
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = run.wake_queue.until_jobs_change(), if !failed => {
                tokio::time::sleep_until(next.min(time::monotonic() + SOON)).await;
            }
        }
    }
}

/// Sends a beacon every [`BEACON`] while the other nodes may rely on the looks and on the reclaim
/// passes of this node. If there is no other node, only this node's own loops receive it.
async fn send_beacons(run: &DueWatchHandles, leadership: &Leadership, works: &AtomicBool) {
    let looks_often = run.common.config.poll_max <= BEACON;
    loop {
        tokio::time::sleep(BEACON).await;
        let works = works.load(Ordering::Relaxed) && run.beacons.reclaims_succeed();
        if let Some(leader) = leadership.lock_holder()
            && let Some(leads_for) = leadership.leads_for().filter(|left| !left.is_zero())
            && looks_often
            && works
        {
            match run.interval.is_alone() {
                true => run.beacons.receive(leader, leads_for),
                false => run.client.send_beacon(leader, leads_for).await,
            }
        }
    }
}

/// Looks for due jobs once, and wakes nodes for them. Returns how long to wait before the next
/// look.
async fn look(run: &DueWatchHandles, looks: &mut Looks) -> Result<Duration> {
    let config = &run.common.config;
    let within = config.poll_max;
    let calls = &run.common.calls;
    let began = time::monotonic();
    let routes = calls.call("due_routes", |store| store.queues().due_routes(within));
    let routes = routes.await?;
    let rest = rest(began.elapsed());
    let mut routes: Vec<DueRoute> = routes.into_iter().filter(|due| !due.is_paused()).collect();
    let upcoming = routes
        .iter()
        .map(|due| due.due_in)
        .filter(|left| !left.is_zero());
    // The wait is one millisecond longer, because this node's clock may run slightly faster than
    // the database's.
    let wait = upcoming.min().map(|left| left + Duration::from_millis(1));
    routes.retain(|due| due.due_in.is_zero());
    let due = looks.count(routes.into_iter().map(|due| due.route));
    run.client.wake_for_routes(due).await;
    let longest = run.common.aligned(within).unwrap_or(within);
    let wait = wait.map_or(longest, |wait| wait.min(longest));
    Ok(wait.max(config.poll_min).max(rest))
}

/// For each route, how many consecutive looks found due jobs.
#[derive(Debug, Default)]
struct Looks(HashMap<Route, u32>);

impl Looks {
    /// Counts a look for each route that has due jobs now. Returns these routes, each with a flag
    /// that is `true` if all nodes are to be woken.
    fn count(&mut self, due: impl Iterator<Item = Route>) -> Vec<(Route, bool)> {
        let mut before = std::mem::take(&mut self.0);
        due.map(|route| {
            let looks = before.remove(&route).unwrap_or(0).saturating_add(1);
            self.0.insert(route.clone(), looks);
            let all = looks.is_multiple_of(MOST_LOOKS) || looks.is_power_of_two();
            (route, looks > 1 && all)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewJob;

    #[test]
    fn all_nodes_are_woken_ever_less_often_and_at_least_every_sixteenth_look() {
        let route = |kind: &str| NewJob::new(kind, &()).spec().route.clone();
        let mut looks = Looks::default();
        let mut wakes_all = |kinds: &[&str]| -> Vec<bool> {
            let seen = looks.count(kinds.iter().map(|kind| route(kind)));
            seen.into_iter().map(|(_, all)| all).collect()
        };
        let wakes: Vec<bool> = (0..50).flat_map(|_| wakes_all(&["a"])).collect();
        let at: Vec<usize> = (1..=50).filter(|look| wakes[look - 1]).collect();
        assert_eq!(at, [2, 4, 8, 16, 32, 48]);
        assert_eq!(wakes_all(&["b", "a"]), [false, false]);
        assert_eq!(wakes_all(&["b"]), [true]);
        // The route was not due in between, so counting starts again.
        assert_eq!(wakes_all(&["a"]), [false]);
    }
}
