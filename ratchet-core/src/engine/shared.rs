use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::execute::newer_payloads::NewerPayloads;
use super::hooks::Hooks;
use super::lead::daemon::Daemon;
use super::lead::leader::{MAINTENANCE, Roles};
use super::maintain::maintenance::Maintained;
use super::node_status::NodeStatusCell;
use super::pools::partition::Share;
use super::settings::config::Config;
use super::totals::Totals;
use crate::client::{Calls, Client, WakeQueue};
use crate::cluster::{ClusterCoordinator, Leadership};
use crate::handler::{Registry, StateMap};
use crate::id::NodeId;
use crate::limiter::{Counted, Limit};
use crate::model::{Definition, Guard, NodeProfile};
use crate::name::Name;
use crate::store::SharedStore;

/// What a node is made of, the same for all its runs.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) calls: Arc<Calls>,
    pub(super) client: Client,
    pub(super) registry: Registry,
    pub(super) hooks: Hooks,
    /// What was told of payloads that are too new.
    pub(super) newer: NewerPayloads,
    pub(super) state: Arc<StateMap>,
    pub(super) config: Config,
    pub(super) label: Option<Name>,
    pub(super) pools: Vec<SharedPool>,
    pub(super) coordinator: Arc<dyn ClusterCoordinator>,
    pub(super) roles: Roles,
    /// Whether it runs jobs.
    pub(super) works: bool,
    /// The role that the node must lead in to claim.
    pub(super) active_in: Option<Name>,
    pub(super) daemons: Vec<Daemon>,
    /// The recurring definitions of the program.
    pub(super) declared: Vec<Definition>,
    /// Slots of recurring definitions whose jobs this node made.
    pub(super) fired: AtomicU64,
    pub(super) profile: NodeProfile,
    /// The rate limits, by kind and by alias.
    pub(super) limits: BTreeMap<Name, Arc<Counted>>,
    /// By how many milliseconds the node's clock was last found ahead of the database's.
    skew: AtomicI64,
    /// What the node's own wakeups carry as their source.
    pub(super) source: NodeId,
    /// Wake the pollers of the pools.
    pub(super) wake_queue: Arc<WakeQueue>,
    pub(super) maintained: Maintained,
    pub(super) node_status: NodeStatusCell,
    pub(super) totals: Totals,
    random: Mutex<fastrand::Rng>,
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "called once, by the builder")]
    pub(super) fn new(
        store: SharedStore,
        registry: Registry,
        hooks: Hooks,
        state: StateMap,
        config: Config,
        label: Option<Name>,
        pools: Vec<Share>,
        coordinator: Arc<dyn ClusterCoordinator>,
        roles: Roles,
        works: bool,
        active_in: Option<Name>,
        daemons: Vec<Daemon>,
        declared: Vec<Definition>,
        profile: NodeProfile,
        limits: BTreeMap<Name, Limit>,
        seed: Option<u64>,
    ) -> Self {
        let calls = Arc::new(Calls::new(store, config.store_deadline));
        let source = NodeId::new();
        let wake_queue = Arc::new(WakeQueue::new(pools.iter().map(|pool| pool.queues.clone())));
        let client = Client::of_node(
            Arc::clone(&calls),
            Arc::clone(&coordinator),
            source,
            Arc::clone(&wake_queue),
        );
        let limits = counted(limits, &registry, &calls);
        Self {
            calls,
            client,
            registry,
            hooks,
            newer: NewerPayloads::default(),
            state: Arc::new(state),
            config,
            label,
            pools: pools.into_iter().map(SharedPool::new).collect(),
            coordinator,
            roles,
            works,
            active_in,
            daemons,
            declared,
            fired: AtomicU64::new(0),
            profile,
            limits,
            skew: AtomicI64::new(0),
            source,
            wake_queue,
            maintained: Maintained::default(),
            node_status: NodeStatusCell::default(),
            totals: Totals::default(),
            random: Mutex::new(seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed)),
        }
    }

    /// The guard of what the leader of the maintenance role writes. `None` while this node does not
    /// lead in it, and on a store without guards: then only what is safe for all may be written.
    pub(super) fn maintenance_guard(&self) -> Option<Guard> {
        let leadership = self.roles.leadership(MAINTENANCE)?;
        let guards = leadership.is_leader() && self.calls.store().guards();
        leadership.guard().filter(|_| guards)
    }

    /// The leadership without which the node claims nothing; none: it claims always.
    pub(super) fn gate(&self) -> Option<&Leadership> {
        self.roles.leadership(self.active_in.as_ref()?.as_str())
    }

    pub(super) fn note_skew(&self, milliseconds: i64) {
        self.skew.store(milliseconds, Ordering::Relaxed);
    }

    /// A random number in `0.0..1.0`, for jitter.
    pub(super) fn random(&self) -> f64 {
        self.random
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .f64()
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
            fired: Counters::read(&self.fired),
            store_calls: self.calls.made(),
            clock_skew_millis: self.skew.load(Ordering::Relaxed),
            deleted: Counters::read(&self.maintained.deleted),
            archived: Counters::read(&self.maintained.archived),
            deleted_from_archive: Counters::read(&self.maintained.deleted_from_archive),
        }
    }

    /// What people call the node while it has this id.
    pub(super) fn label_of(&self, id: NodeId) -> Name {
        self.label.clone().unwrap_or_else(|| default_label(id))
    }

    /// How many bodies the node may run at once; 0 if it runs no jobs.
    pub(super) fn capacity(&self) -> usize {
        let pools = if self.works { &self.pools[..] } else { &[] };
        pools.iter().map(|pool| pool.share.concurrency).sum()
    }
}

/// A label that no other node has.
fn default_label(id: NodeId) -> Name {
    let text = format!("node-{id}");
    match Name::new("label", text) {
        Ok(label) => label,
        Err(_) => unreachable!("an id makes a valid name"),
    }
}

/// The limits at work, under every name of their kinds.
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

/// One pool of a node: what it takes, and what it has done in all runs.
#[derive(Debug)]
pub(super) struct SharedPool {
    pub(super) share: Share,
    pub(super) counters: Counters,
}

impl SharedPool {
    fn new(share: Share) -> Self {
        Self {
            share,
            counters: Counters::default(),
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            name: self.share.name.clone(),
            concurrency: self.share.concurrency,
            claim_calls: Counters::read(&self.counters.claim_calls),
            claimed: Counters::read(&self.counters.claimed),
            settled: Counters::read(&self.counters.settled),
            finished: Counters::read(&self.counters.finished),
            stale: Counters::read(&self.counters.stale),
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
    /// Jobs of recurring definitions that this node made, for slots of theirs.
    pub fired: u64,
    /// Calls of the store, of every kind, those of the node's client included.
    pub store_calls: u64,
    /// By how many milliseconds the node's clock was ahead of the database's at the last heartbeat;
    /// negative: behind. Nothing depends on it but labels and logs.
    pub clock_skew_millis: i64,
    /// Finished jobs that this node deleted because they were old.
    pub deleted: u64,
    /// Finished jobs that it archived.
    pub archived: u64,
    /// Archived jobs that it deleted.
    pub deleted_from_archive: u64,
}

/// What one [pool](crate::Pool) of a node is and has done since the node was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Its name.
    pub name: Name,
    /// How many bodies it runs at once, at most.
    pub concurrency: usize,
    /// Calls that asked for jobs.
    pub claim_calls: u64,
    /// Jobs they returned.
    pub claimed: u64,
    /// Claims that were ended by this node.
    pub settled: u64,
    /// Jobs that reached their end with one of these claims.
    pub finished: u64,
    /// Claims whose end came too late.
    pub stale: u64,
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
    pub(super) fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}
