//! Which node is woken for a new job.
//!
//! One node is enough for a job that is due at once: the one of this client if it has a free slot,
//! otherwise the next of those that looked idle when the nodes were last read. All nodes
//! are woken for more jobs than one node can run, and while the nodes are not known. A job whose
//! node has died or became busy is found by the next poll of the others.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

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
        for wakeup in wakeups {
            self.send(wakeup).await;
        }
    }

    /// Sends a wakeup to the nodes that it is for.
    pub(crate) async fn send(&self, wakeup: Wakeup) {
        match &self.0.node {
            Some((node, wake_queue)) if wakeup.to == Some(*node) && !wakeup.is_beacon() => {
                wake_queue.wake(wakeup.queue.as_ref());
            }
            Some((node, _)) if wakeup.to.is_some() => {
                self.notify(wakeup.from_node(*node), Self::NOTIFY).await;
            }
            _ => self.wake(wakeup).await,
        }
    }

    /// Wakes all nodes for due jobs of a route, or the next one in turn. Wakes no node while none
    /// that takes them is known. This client's own node is not preferred: what it hands back for
    /// others, such as a payload of a newer version, it would get again.
    pub(crate) async fn wake_for_route(&self, route: &Route, all: bool) {
        let mut wakeup = Wakeup::queue(route.queue.clone());
        if !all {
            if self.0.peers.ask() {
                self.clone().read_peers().await;
            }
            wakeup.to = self.0.peers.choose(route, 1);
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
        for job in jobs.clone() {
            *routes.entry(&job.spec().route).or_default() += 1;
        }
        let choose = |(route, jobs)| (route, self.choose(route, jobs));
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
        if let Some((node, wake_queue)) = &self.0.node
            && wake_queue.reserve(route, jobs)
        {
            return Some(*node);
        }
        // A blocking program may enqueue without a runtime.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && self.0.peers.ask()
        {
            runtime.spawn(self.clone().read_peers());
        }
        self.0.peers.choose(route, jobs)
    }

    async fn read_peers(self) {
        match self.nodes().await {
            Ok(nodes) => self.0.peers.keep(nodes),
            Err(error) => tracing::debug!(%error, "cannot read which nodes are idle"),
        }
    }

    /// Hints that there is work. The jobs are stored, so a transport that hangs must not make the
    /// caller wait.
    pub(crate) async fn wake(&self, mut wakeup: Wakeup) {
        if let Some((node, wake_queue)) = &self.0.node {
            wake_queue.wake(wakeup.queue.as_ref());
            wakeup = wakeup.from_node(*node);
        }
        self.notify(wakeup, Self::NOTIFY).await;
    }

    /// Hints to other nodes, and not to the one this client belongs to, that there may be work of
    /// any kind.
    pub(crate) async fn wake_others(&self, patience: Duration) {
        let wakeup = Wakeup::any();
        let wakeup = match &self.0.node {
            Some((node, _)) => wakeup.from_node(*node),
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
