use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::config::Config;
use super::leader::{MAINTENANCE, Roles};
use crate::client::{Calls, Client};
use crate::cluster::ClusterCoordinator;
use crate::handler::{Registry, StateMap};
use crate::id::NodeId;
use crate::model::Guard;
use crate::name::Name;
use crate::route::Selection;
use crate::store::SharedStore;

/// What a node is made of, the same for all its runs.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) calls: Arc<Calls>,
    pub(super) client: Client,
    pub(super) registry: Registry,
    pub(super) state: Arc<StateMap>,
    pub(super) config: Config,
    pub(super) label: Option<Name>,
    pub(super) queues: Selection,
    pub(super) capabilities: Vec<Name>,
    pub(super) coordinator: Arc<dyn ClusterCoordinator>,
    pub(super) roles: Roles,
    /// What the node's own wakeups carry as their source.
    pub(super) source: NodeId,
    /// Wakes the poller.
    pub(super) poll: Arc<Notify>,
    pub(super) counters: Counters,
    random: Mutex<fastrand::Rng>,
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "called once, by the builder")]
    pub(super) fn new(
        store: SharedStore,
        registry: Registry,
        state: StateMap,
        config: Config,
        label: Option<Name>,
        queues: Selection,
        capabilities: Vec<Name>,
        coordinator: Arc<dyn ClusterCoordinator>,
        roles: Roles,
        seed: Option<u64>,
    ) -> Self {
        let calls = Arc::new(Calls::new(store, config.store_deadline));
        let (source, poll) = (NodeId::new(), Arc::new(Notify::new()));
        let client = Client::of_node(
            Arc::clone(&calls),
            Arc::clone(&coordinator),
            source,
            Arc::clone(&poll),
        );
        Self {
            calls,
            client,
            registry,
            state: Arc::new(state),
            config,
            label,
            queues,
            capabilities,
            coordinator,
            roles,
            source,
            poll,
            counters: Counters::default(),
            random: Mutex::new(seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed)),
        }
    }

    /// The guard of writes that only the leader of the maintenance role may make; none if this node
    /// does not take part in elections or never led: then only what is safe for all is done.
    pub(super) fn maintenance_guard(&self) -> Option<Guard> {
        let leadership = self.roles.leadership(MAINTENANCE)?;
        leadership.guard()
    }

    /// A random number in `0.0..1.0`, for jitter.
    pub(super) fn random(&self) -> f64 {
        self.random
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .f64()
    }

    pub(super) fn stats(&self) -> NodeStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeStats {
            claim_calls: read(&self.counters.claim_calls),
            claimed: read(&self.counters.claimed),
            settled: read(&self.counters.settled),
            finished: read(&self.counters.finished),
            stale: read(&self.counters.stale),
            store_calls: self.calls.made(),
        }
    }
}

/// What a node has done since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Calls that asked for jobs.
    pub claim_calls: u64,
    /// Jobs they returned.
    pub claimed: u64,
    /// Claims that were ended by this node.
    pub settled: u64,
    /// Jobs that reached their end with one of these claims: succeeded, failed or cancelled.
    pub finished: u64,
    /// Claims whose end came too late: the job had been taken away.
    pub stale: u64,
    /// Calls of the store, of every kind, those of the node's client included.
    pub store_calls: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) claim_calls: AtomicU64,
    pub(super) claimed: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) finished: AtomicU64,
    pub(super) stale: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}
