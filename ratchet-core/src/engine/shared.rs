//! State that all runs of a node share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::common::Common;
use super::execute::breakers::Breakers;
use super::execute::newer_payloads::NewerPayloads;
use super::hooks::Hooks;
use super::lead::daemon::Daemon;
use super::lead::gate::Gate;
use super::lead::roles::Roles;
use super::node_status::NodeStatusCell;
use super::pools::counters::{Counters, NodePool};
use super::pools::partition::Share;
use super::settings::config::Config;
use super::stats::NodeStats;
use super::totals::Totals;
use crate::breaker::CircuitBreaker;
use crate::client::{Calls, Client, OwnNode, WakeQueue};
use crate::cluster::ClusterCoordinator;
use crate::handler::{Registry, StateMap};
use crate::id::NodeId;
use crate::limiter::{Counted, Limit};
use crate::model::{Definition, NodeProfile};
use crate::name::Name;
use crate::store::SharedStore;

/// The parts of a node that all its runs share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) common: Arc<Common>,
    pub(super) client: Client,
    pub(super) registry: Arc<Registry>,
    pub(super) hooks: Arc<Hooks>,
    pub(super) newer_payloads: Arc<NewerPayloads>,
    pub(super) state: Arc<StateMap>,
    pub(super) label: Option<Name>,
    /// Whether the store is closed when a run ends.
    pub(super) owns_store: bool,
    pub(super) pools: Vec<Arc<NodePool>>,
    pub(super) coordinator: Arc<dyn ClusterCoordinator>,
    pub(super) roles: Arc<Roles>,
    /// Whether the node runs jobs.
    pub(super) works: bool,
    /// The role that this node must lead before it may claim jobs. `None` if it may always claim
    /// jobs.
    pub(super) active_in: Option<Name>,
    pub(super) daemons: Vec<Daemon>,
    /// The recurring definitions that the program declared.
    pub(super) declared: Arc<Vec<Definition>>,
    pub(super) profile: NodeProfile,
    /// The rate limit of each limited kind, keyed by the kind and by each of its aliases.
    pub(super) limits: Arc<BTreeMap<Name, Arc<Counted>>>,
    pub(super) breakers: Arc<Breakers>,
    /// The sender id in the wakeups that this node sends. The node uses it to recognize its own
    /// wakeups.
    pub(super) source: NodeId,
    /// Wakes the pollers of the pools.
    pub(super) wake_queue: Arc<WakeQueue>,
    pub(super) node_status: NodeStatusCell,
    pub(super) totals: Arc<Totals>,
}

/// The settings of a node, after they were checked.
pub(super) struct Settings {
    pub(super) store: SharedStore,
    pub(super) owns_store: bool,
    pub(super) registry: Registry,
    pub(super) hooks: Hooks,
    pub(super) state: StateMap,
    pub(super) config: Config,
    pub(super) label: Option<Name>,
    pub(super) pools: Vec<Share>,
    pub(super) coordinator: Arc<dyn ClusterCoordinator>,
    pub(super) roles: Roles,
    /// Whether the node runs jobs.
    pub(super) works: bool,
    /// The role that this node must lead before it may claim jobs. `None` if it may always claim
    /// jobs.
    pub(super) active_in: Option<Name>,
    pub(super) daemons: Vec<Daemon>,
    pub(super) declared: Vec<Definition>,
    pub(super) profile: NodeProfile,
    pub(super) limits: BTreeMap<Name, Limit>,
    pub(super) breakers: BTreeMap<Name, CircuitBreaker>,
    pub(super) permits: BTreeMap<Name, u32>,
    /// The seed of the random jitter, for reproducible tests. `None` for a random seed.
    pub(super) seed: Option<u64>,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        let calls = Arc::new(Calls::new(settings.store, settings.config.store_deadline));
        let source = NodeId::new();
        let pollers = settings.pools.iter().map(|pool| pool.request(source));
        let wake_queue = Arc::new(WakeQueue::new(pollers));
        let client = Client::of_node(
            Arc::clone(&calls),
            Arc::clone(&settings.coordinator),
            OwnNode {
                source,
                wake_queue: Arc::clone(&wake_queue),
            },
            settings.permits,
        );
        let limits = counted(settings.limits, &settings.registry, &calls);
        let breakers = Breakers::new(settings.breakers, &settings.registry);
        let pools = settings.pools.into_iter().map(NodePool::new);
        Self {
            common: Arc::new(Common::new(calls, settings.config, settings.seed)),
            client,
            registry: Arc::new(settings.registry),
            hooks: Arc::new(settings.hooks),
            newer_payloads: Arc::default(),
            state: Arc::new(settings.state),
            label: settings.label,
            owns_store: settings.owns_store,
            pools: pools.map(Arc::new).collect(),
            coordinator: settings.coordinator,
            roles: Arc::new(settings.roles),
            works: settings.works,
            active_in: settings.active_in,
            daemons: settings.daemons,
            declared: Arc::new(settings.declared),
            profile: settings.profile,
            limits: Arc::new(limits),
            breakers: Arc::new(breakers),
            source,
            wake_queue,
            node_status: NodeStatusCell::default(),
            totals: Arc::default(),
        }
    }

    /// Returns the gate that stops an active-passive node from claiming jobs while it is not the
    /// leader.
    pub(super) fn gate(&self) -> Gate {
        let role = self.active_in.as_ref();
        Gate(role.and_then(|role| self.roles.leadership(role.as_str()).cloned()))
    }

    pub(super) fn stats(&self) -> NodeStats {
        let sum = |counter: fn(&Counters) -> &AtomicU64| {
            let pools = self.pools.iter();
            pools
                .map(|pool| Counters::read(counter(&pool.counters)))
                .sum()
        };
        NodeStats {
            claim_calls: sum(|of| &of.claim_calls),
            claimed: sum(|of| &of.claimed),
            settled: sum(|of| &of.settled),
            finished: sum(|of| &of.finished),
            stale: sum(|of| &of.stale),
            fired: Counters::read(&self.totals.fired),
            store_calls: self.common.calls.made(),
            clock_skew_millis: self.totals.clock_skew_millis.load(Ordering::Relaxed),
            deleted: Counters::read(&self.totals.maintained.deleted),
            archived: Counters::read(&self.totals.maintained.archived),
            deleted_from_archive: Counters::read(&self.totals.maintained.deleted_from_archive),
        }
    }

    /// Returns the configured label of the node. If no label is configured, returns a label that
    /// contains `id`.
    pub(super) fn label_of(&self, id: NodeId) -> Name {
        self.label.clone().unwrap_or_else(|| default_label(id))
    }

    /// Returns the maximum number of bodies that the node runs at once. It is 0 if the node runs no
    /// jobs.
    pub(super) fn capacity(&self) -> usize {
        let pools = if self.works { &self.pools[..] } else { &[] };
        pools.iter().map(|pool| pool.share.concurrency).sum()
    }
}

/// Returns a unique label, which contains `id`.
fn default_label(id: NodeId) -> Name {
    let text = format!("node-{id}");
    match Name::new("label", text) {
        Ok(label) => label,
        Err(_) => unreachable!("a node id is always a valid name"),
    }
}

/// Creates the limiter of each rate limit. Returns the limits, keyed by kind and by each alias of
/// the kind.
fn counted(
    limits: BTreeMap<Name, Limit>,
    registry: &Registry,
    calls: &Arc<Calls>,
) -> BTreeMap<Name, Arc<Counted>> {
    let mut counted = BTreeMap::new();
    for (kind, limit) in limits {
        let limit = Arc::new(limit.counted(kind.clone(), calls));
        let names = registry.names_of(kind.as_str());
        counted.extend(names.map(|name| (name.clone(), Arc::clone(&limit))));
    }
    counted
}
