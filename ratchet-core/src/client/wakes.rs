//! Chooses which node is woken for a new job.
//!
//! One node is enough for a job that is due at once. The node of this client is woken if it has a
//! free slot. Otherwise the next node in turn is woken, preferably one that had a free slot when
//! the nodes were last read. All nodes are woken if there are more jobs than one node can run, if
//! the nodes are not known, or if wakeups do not reach all nodes. If the woken node has died or is
//! busy, the leader finds the job.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::join_all;

use super::Client;
use crate::cluster::Wakeup;
use crate::id::NodeId;
use crate::metrics;
use crate::model::{NewJob, Parent};
use crate::priority::Priority;
use crate::route::Route;

/// Selects the enqueued jobs for which nodes are woken. The next poll finds the other jobs, with
/// the defaults up to 1 s later.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{NewJob, Ratchet, Wakes};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let quiet = client.with_wakes(Wakes::Never);
/// quiet.enqueue(NewJob::new("cleanup", &1)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wakes {
    /// Wakes nodes for jobs that are due at once.
    #[default]
    Due,
    /// Wakes nodes for jobs that are due at once and have priority
    /// [`Critical`](Priority::Critical). For applications with a large number of enqueueing
    /// processes, in which waking a node for every job would cost more than it saves.
    Critical,
    /// Wakes no node.
    Never,
}

impl Wakes {
    /// Returns whether nodes are woken for this job.
    pub(crate) fn wakes(self, job: &NewJob) -> bool {
        job.is_due_at_once()
            && match self {
                Self::Due => true,
                Self::Critical => job.spec().priority == Priority::Critical,
                Self::Never => false,
            }
    }
}

impl Client {
    /// How long sending a wakeup may delay its sender.
    const NOTIFY: Duration = Duration::from_millis(100);

    /// Returns whether this client wakes nodes for this job.
    pub(crate) fn wakes(&self, job: &NewJob) -> bool {
        self.0.wakes.wakes(job)
    }

    /// Wakes nodes for these jobs, which are stored and due.
    pub(crate) async fn wake_for<'a>(&self, jobs: impl Iterator<Item = &'a NewJob> + Clone) {
        self.send_all(self.wakeups(jobs)).await;
    }

    /// Sends a wakeup to the nodes to which it is addressed.
    pub(crate) async fn send(&self, wakeup: Wakeup) {
        match &self.0.node {
            Some(own) if wakeup.to == Some(own.source) => {
                own.wake_queue.wake(wakeup.queue.as_ref());
            }
            Some(own) if wakeup.to.is_some() => {
                self.notify(wakeup.from_node(own.source), Self::NOTIFY)
                    .await;
            }
            _ => self.wake(wakeup).await,
        }
    }

    /// Sends a beacon with which this node announces that it leads for `leads_for` more. A
    /// `leads_for` of zero announces that it has resigned.
    pub(crate) async fn send_beacon(&self, leader: NodeId, leads_for: Duration) {
        let beacon = Wakeup::beacon(leader, leads_for);
        self.notify(beacon, Self::NOTIFY).await;
    }

    /// Wakes nodes for each route that has due jobs.
    ///
    /// If the flag of a route is set, all nodes are woken. Otherwise one node that runs jobs of the
    /// route is woken, and such nodes take turns. If no known node runs them, none is woken. If the
    /// nodes are not known, or wakeups do not reach all nodes, all nodes are woken. This client's
    /// own node is not preferred, because it would then claim again the jobs that it leaves to
    /// other nodes, such as jobs with a newer payload version.
    pub(crate) async fn wake_for_routes(&self, due: Vec<(Route, bool)>) {
        let reaches_all = self.0.coordinator.reaches_all_nodes();
        let needs_one = reaches_all && due.iter().any(|(_, all)| !all);
        if needs_one && self.0.peers.begin_read_if_old() {
            // If the read takes longer than the timeout, it continues in the background, because
            // wakeups must not wait for a slow database.
            let read = tokio::spawn(self.clone().read_peers());
            if !self.0.peers.are_known() {
                let _ = tokio::time::timeout(Self::NOTIFY, read).await;
            }
        }
        let can_address = reaches_all && self.0.peers.are_known();
        let wakeup = |(route, all): (Route, bool)| {
            let to = match can_address && !all {
                true => Some(self.0.peers.choose(&route, 1, None)?),
                false => None,
            };
            let wakeup = Wakeup::queue(route.queue);
            Some(Wakeup { to, ..wakeup })
        };
        self.send_all(due.into_iter().filter_map(wakeup)).await;
    }

    /// Sends each distinct wakeup once, all concurrently.
    async fn send_all(&self, wakeups: impl Iterator<Item = Wakeup>) {
        let wakeups: HashSet<Wakeup> = wakeups.collect();
        join_all(wakeups.into_iter().map(|wakeup| self.send(wakeup))).await;
    }

    /// Returns the wakeup for each of these jobs.
    pub(crate) fn wakeups<'a>(
        &self,
        jobs: impl Iterator<Item = &'a NewJob> + Clone,
    ) -> impl Iterator<Item = Wakeup> {
        let mut routes: HashMap<&Route, usize> = HashMap::new();
        let mut lanes = HashSet::new();
        let mut here: Option<HashSet<Parent>> = None;
        for job in jobs.clone() {
            let (route, after) = (&job.spec().route, &job.spec().after);
            let runnable = routes.entry(route).or_default();
            // Only one job of a lane runs at a time. A job that waits for another job of this call
            // cannot run yet, because its parent has not ended. Parents from earlier calls may have
            // ended.
            let lane = job.spec().lane.as_ref();
            if lane.is_none_or(|lane| lanes.insert((&route.queue, lane)))
                && !after.iter().any(|after| {
                    let all = || jobs.clone().map(|job| Parent::Job(job.id())).collect();
                    here.get_or_insert_with(all).contains(&after.parent())
                })
            {
                *runnable += 1;
            }
        }
        let choose = |(route, jobs): (_, usize)| (route, self.choose(route, jobs.max(1)));
        let chosen: HashMap<&Route, Option<NodeId>> = routes.into_iter().map(choose).collect();
        jobs.map(move |job| {
            let route = &job.spec().route;
            let mut wakeup = Wakeup::queue(route.queue.clone());
            wakeup.to = chosen.get(route).copied().flatten();
            wakeup
        })
    }

    /// Chooses the node to wake for this many jobs of a route. `None` if all nodes are to be woken.
    fn choose(&self, route: &Route, jobs: usize) -> Option<NodeId> {
        if let Some(own) = &self.0.node
            && own.wake_queue.reserve(route, jobs)
        {
            return Some(own.source);
        }
        // A wakeup that cannot reach the node to which it is addressed would be lost, and no node
        // would wake.
        if !self.0.coordinator.reaches_all_nodes() {
            return None;
        }
        self.read_peers_if_old();
        let own = self.0.node.as_ref().and_then(|own| own.wake_queue.node());
        self.0.peers.choose(route, jobs, own)
    }

    /// Starts a read of the nodes if the last read is old. Starts none outside of a runtime, where
    /// a blocking program may call this.
    fn read_peers_if_old(&self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && self.0.peers.begin_read_if_old()
        {
            runtime.spawn(self.clone().read_peers());
        }
    }

    async fn read_peers(self) {
        match self.nodes().await {
            Ok(nodes) => self.0.peers.replace(nodes),
            Err(error) => tracing::debug!(%error, "could not read which nodes are idle"),
        }
    }

    /// Wakes the pollers of this client's own node, and sends the wakeup to the other nodes. Gives
    /// up sending after [`NOTIFY`](Self::NOTIFY), so that a transport that hangs delays the caller
    /// only briefly.
    pub(crate) async fn wake(&self, mut wakeup: Wakeup) {
        if let Some(own) = &self.0.node {
            own.wake_queue.wake(wakeup.queue.as_ref());
            wakeup = wakeup.from_node(own.source);
        }
        self.notify(wakeup, Self::NOTIFY).await;
    }

    /// Sends hints that jobs of these routes released permits. For each route, one other node that
    /// runs jobs of the route receives a hint. If `others_too` is set, one node that does not run
    /// such jobs receives a hint too.
    ///
    /// If the nodes are not known, or no known node fits, sends no hint: the leader finds the jobs
    /// that wait for a permit. If wakeups do not reach all nodes, sends the hint to all nodes that
    /// poll the queue of a route, or with `others_too` to the nodes of any queue.
    pub(crate) async fn hint_permits(
        &self,
        routes: &HashSet<Route>,
        others_too: bool,
        patience: Duration,
    ) {
        let Some(own) = &self.0.node else {
            return;
        };
        let mut wakeups = HashSet::new();
        if self.0.coordinator.reaches_all_nodes() {
            self.read_peers_if_old();
            let node = own.wake_queue.node();
            for route in routes {
                let same = self.0.peers.choose(route, 1, node);
                wakeups.extend(same.map(|to| Wakeup::queue(route.queue.clone()).to(to)));
                let other = others_too.then(|| self.0.peers.choose_without(route));
                wakeups.extend(other.flatten().map(|to| Wakeup::any().to(to)));
            }
        } else {
            let queues = routes.iter().map(|route| route.queue.clone());
            match others_too {
                true => wakeups.extend([Wakeup::any()]),
                false => wakeups.extend(queues.map(Wakeup::queue)),
            }
        }
        let wakeups = wakeups.into_iter();
        join_all(wakeups.map(|wakeup| self.notify(wakeup.from_node(own.source), patience))).await;
    }

    /// Sends a wakeup for all queues to all nodes except this client's own node.
    pub(crate) async fn wake_others(&self, patience: Duration) {
        let wakeup = Wakeup::any();
        let wakeup = match &self.0.node {
            Some(own) => wakeup.from_node(own.source),
            None => wakeup,
        };
        self.notify(wakeup, patience).await;
    }

    async fn notify(&self, wakeup: Wakeup, patience: Duration) {
        let wakes = !wakeup.wakes_no_node();
        let notify = self.0.coordinator.notify(wakeup);
        let sent = tokio::time::timeout(patience, notify).await.is_ok();
        if wakes {
            metrics::wakeup_sent(sent);
        }
        if !sent {
            tracing::debug!(
                "gave up sending a wakeup, because the coordinator did not accept it \
                 in time"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::client::{Calls, OwnNode, WakeQueue};
    use crate::cluster::{ClusterCoordinator, InProcessCoordinator};
    use crate::id::JobId;
    use crate::memory::{Fault, MemoryStore};
    use crate::model::{Condition, Heartbeat, NodeProfile, NodeRecord, NodeStatus, PoolProfile};
    use crate::name::Name;
    use crate::store::NodeStore;
    use crate::time::from_millis;

    /// Returns the heartbeat of a node with two free slots for jobs of kind `a`.
    fn heartbeat() -> Heartbeat {
        let name = |text| Name::new("name", text).unwrap();
        let mut profile = NodeProfile::new(vec![], vec![]).kinds(vec![name("a")]);
        profile.pools = Some(vec![PoolProfile::new(2, 2)]);
        let interval = Duration::from_secs(5);
        Heartbeat::new(NodeId::new(), name("n"), NodeStatus::Active, interval).profile(profile)
    }

    #[tokio::test(start_paused = true)]
    async fn routes_that_are_due_together_wake_one_node_each_or_all_if_none_is_known() {
        let (soon, late) = (Duration::from_millis(20), Client::NOTIFY * 2);
        for fault in [
            Fault::Delay(soon),
            Fault::Delay(late),
            Fault::ErrorBeforeCommit,
        ] {
            let store = MemoryStore::new().with_faults(move |operation| match operation {
                "nodes" => fault,
                _ => Fault::None,
            });
            store.heartbeat(&heartbeat()).await.unwrap();
            let client = Client::new(Arc::new(store));
            let mut wakeups = client.0.coordinator.subscribe();
            let job = |queue| NewJob::new("a", &()).queue(queue);
            let due = ["x", "y"].map(|queue| (job(queue).spec().route.clone(), false));
            client.wake_for_routes(due.to_vec()).await;
            for _ in &due {
                let woken = tokio::time::timeout(Duration::from_secs(60), wakeups.next());
                let is_addressed = woken.await.unwrap().to.is_some();
                assert_eq!(is_addressed, fault == Fault::Delay(soon), "{fault:?}");
            }
            // By now, a read of the nodes that took too long has ended.
            tokio::time::sleep(Client::NOTIFY * 2).await;
            client.wake_for_routes(due.to_vec()).await;
            let woken = tokio::time::timeout(Duration::from_secs(60), wakeups.next());
            let is_addressed = woken.await.unwrap().to.is_some();
            assert_eq!(is_addressed, fault != Fault::ErrorBeforeCommit, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn where_wakeups_do_not_reach_all_nodes_a_hint_is_for_any_queue() {
        let store = Arc::new(MemoryStore::new());
        let coordinator: Arc<dyn ClusterCoordinator> = Arc::new(InProcessCoordinator::new());
        assert!(!coordinator.reaches_all_nodes());
        let mut wakeups = coordinator.subscribe();
        let own = OwnNode {
            source: NodeId::new(),
            wake_queue: Arc::new(WakeQueue::new([])),
        };
        let calls = Arc::new(Calls::of_client(store));
        let client = Client::of_node(calls, coordinator, own, BTreeMap::new());
        let routes = HashSet::from([NewJob::new("a", &()).spec().route.clone()]);
        for others_too in [false, true] {
            client
                .hint_permits(&routes, others_too, Client::NOTIFY)
                .await;
            assert_eq!(wakeups.next().await.queue.is_none(), others_too);
        }
    }

    #[tokio::test]
    async fn jobs_that_cannot_run_at_once_need_no_slot_each() {
        let client = Client::new(Arc::new(MemoryStore::new()));
        let node = NodeRecord::joined(&heartbeat(), from_millis(0));
        client.0.peers.begin_read_if_old();
        client.0.peers.replace(vec![node]);
        let wakes_one = |jobs: &[NewJob]| {
            let mut wakeups = client.wakeups(jobs.iter());
            wakeups.all(|wakeup| wakeup.to.is_some())
        };
        let job = || NewJob::new("a", &());
        let first = job();
        let id = first.id();
        let mut chain = vec![first];
        chain.extend((0..3).map(|_| job().after(id, Condition::Succeeded)));
        assert!(wakes_one(&chain));
        assert!(wakes_one(&[0; 4].map(|_| job().lane("one"))));
        let lanes = ["one", "two", "three"];
        assert!(wakes_one(
            &lanes[..2]
                .iter()
                .map(|lane| job().lane(lane))
                .collect::<Vec<_>>()
        ));
        assert!(!wakes_one(&lanes.map(|lane| job().lane(lane))));
        assert!(!wakes_one(&[0; 3].map(|_| job())));
        // The same name in another queue is another lane.
        let mut two_queues = lanes[..2]
            .iter()
            .map(|lane| job().lane(lane))
            .collect::<Vec<_>>();
        two_queues.extend(lanes.map(|lane| job().queue("other").lane(lane)));
        assert!(!wakes_one(&two_queues));
        // A parent that an earlier call stored may have ended.
        let after = |parent| [0; 3].map(|_| job().after(parent, Condition::Succeeded));
        assert!(!wakes_one(&after(JobId::new())));
    }
}
