//! Which node is woken for a new job.
//!
//! One node is enough for a job that is due at once: the one of this client if it has a free slot,
//! otherwise the next of those that looked idle when the nodes were last read. All nodes
//! are woken for more jobs than one node can run, and while the nodes are not known. A job whose
//! node has died or became busy is found by the next poll of the others.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::join_all;

use super::Client;
use crate::cluster::Wakeup;
use crate::id::NodeId;
use crate::metrics;
use crate::model::NewJob;
use crate::priority::Priority;
use crate::route::Route;

/// Which enqueued jobs nodes are woken up for. The rest are found by their next poll: with the
/// defaults up to 1 s later.
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
    /// Those that are due at once.
    #[default]
    Due,
    /// Those that are due at once and of priority [`Critical`](Priority::Critical): for
    /// programs whose wakeups would cost more than they save, because many processes enqueue.
    Critical,
    /// None.
    Never,
}

impl Wakes {
    /// Returns whether a node is woken up for this job.
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
    /// How long a wakeup may hold its sender up.
    const NOTIFY: Duration = Duration::from_millis(100);

    /// Returns whether nodes are woken up for this job.
    pub(crate) fn wakes(&self, job: &NewJob) -> bool {
        self.0.wakes.wakes(job)
    }

    /// Wakes nodes for these jobs, which are stored and due.
    pub(crate) async fn wake_for<'a>(&self, jobs: impl Iterator<Item = &'a NewJob> + Clone) {
        let wakeups: HashSet<Wakeup> = self.wakeups(jobs).collect();
        join_all(wakeups.into_iter().map(|wakeup| self.send(wakeup))).await;
    }

    /// Sends a wakeup to the nodes that it is for.
    pub(crate) async fn send(&self, wakeup: Wakeup) {
        match &self.0.node {
            Some(own) if wakeup.to == Some(own.source) && !wakeup.is_beacon() => {
                own.wake_queue.wake(wakeup.queue.as_ref());
            }
            Some(own) if wakeup.to.is_some() => {
                self.notify(wakeup.from_node(own.source), Self::NOTIFY)
                    .await;
            }
            _ => self.wake(wakeup).await,
        }
    }

    /// Wakes nodes for due jobs of a route: all, or only the next in turn of those that take them.
    /// If no such node is known, it wakes none. This client's own node is not preferred: what it
    /// hands back for others, such as a payload of a newer version, it would get again.
    pub(crate) async fn wake_for_route(&self, route: &Route, all: bool) {
        let mut wakeup = Wakeup::queue(route.queue.clone());
        if !all && self.0.coordinator.reaches_all_nodes() {
            if self.0.peers.begin_read_if_old() {
                self.clone().read_peers().await;
            }
            wakeup.to = self.0.peers.choose(route, 1, None);
            if wakeup.to.is_none() {
                return;
            }
        }
        self.send(wakeup).await;
    }

    /// Returns the wakeup for each of these jobs.
    pub(crate) fn wakeups<'a>(
        &self,
        jobs: impl Iterator<Item = &'a NewJob> + Clone,
    ) -> impl Iterator<Item = Wakeup> {
        let mut routes: HashMap<&Route, usize> = HashMap::new();
        let mut lanes = HashSet::new();
        for job in jobs.clone() {
            let jobs = routes.entry(&job.spec().route).or_default();
            // One job of a lane runs at a time, and one that waits for others not yet.
            let lane = job.spec().lane.as_ref();
            if job.spec().after.is_empty() && lane.is_none_or(|lane| lanes.insert(lane)) {
                *jobs += 1;
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

    /// Chooses the node for this many jobs of a route; `None` if all are to look.
    fn choose(&self, route: &Route, jobs: usize) -> Option<NodeId> {
        if let Some(own) = &self.0.node
            && own.wake_queue.reserve(route, jobs)
        {
            return Some(own.source);
        }
        // A wakeup for a node that it does not reach would be lost, and no node be woken.
        if !self.0.coordinator.reaches_all_nodes() {
            return None;
        }
        // A blocking program may enqueue without a runtime.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && self.0.peers.begin_read_if_old()
        {
            runtime.spawn(self.clone().read_peers());
        }
        let own = self.0.node.as_ref().and_then(|own| own.wake_queue.node());
        self.0.peers.choose(route, jobs, own)
    }

    async fn read_peers(self) {
        match self.nodes().await {
            Ok(nodes) => self.0.peers.replace(nodes),
            Err(error) => tracing::debug!(%error, "cannot read which nodes are idle"),
        }
    }

    /// Hints that there is work. The jobs are stored, so a transport that hangs must not make the
    /// caller wait.
    pub(crate) async fn wake(&self, mut wakeup: Wakeup) {
        if let Some(own) = &self.0.node {
            own.wake_queue.wake(wakeup.queue.as_ref());
            wakeup = wakeup.from_node(own.source);
        }
        self.notify(wakeup, Self::NOTIFY).await;
    }

    /// Hints to other nodes, and not to the one this client belongs to, that there may be work of
    /// any kind.
    pub(crate) async fn wake_others(&self, patience: Duration) {
        let wakeup = Wakeup::any();
        let wakeup = match &self.0.node {
            Some(own) => wakeup.from_node(own.source),
            None => wakeup,
        };
        self.notify(wakeup, patience).await;
    }

    async fn notify(&self, wakeup: Wakeup, patience: Duration) {
        let wakes = !wakeup.is_beacon();
        let notify = self.0.coordinator.notify(wakeup);
        let sent = tokio::time::timeout(patience, notify).await.is_ok();
        if wakes {
            metrics::wakeup_sent(sent);
        }
        if !sent {
            tracing::debug!("a wakeup was given up: the coordinator hangs");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::MemoryStore;
    use crate::model::{Condition, Heartbeat, NodeProfile, NodeRecord, NodeStatus, PoolProfile};
    use crate::name::Name;
    use crate::time::from_millis;

    #[tokio::test]
    async fn jobs_that_cannot_run_at_once_need_no_slot_each() {
        let client = Client::new(Arc::new(MemoryStore::new()));
        let name = |text| Name::new("name", text).unwrap();
        let mut profile = NodeProfile::new(vec![], vec![]).kinds(vec![name("a")]);
        profile.pools = Some(vec![PoolProfile::new(2, 2)]);
        let beat = Heartbeat::new(NodeId::new(), name("n"), NodeStatus::Active, Client::NOTIFY);
        let node = NodeRecord::joined(&beat.profile(profile), from_millis(0));
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
    }
}
