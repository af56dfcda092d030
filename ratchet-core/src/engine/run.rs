//! One run of a node, and the handles of its loops.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::claim::poller::PollerHandles;
use super::execute::admission::Admission;
use super::execute::breakers::BreakerHandles;
use super::execute::executor::ExecutorHandles;
use super::execute::reporter::Reporter;
use super::execute::running::RunningSet;
use super::execute::suspects::Suspects;
use super::lead::daemon::DaemonHandles;
use super::lead::leader::LeaderHandles;
use super::maintain::backlog::BacklogHandles;
use super::maintain::due_watch::DueWatchHandles;
use super::maintain::heartbeat::{self, HeartbeatHandles};
use super::maintain::load::Gauge;
use super::maintain::maintenance::MaintenanceHandles;
use super::maintain::reclaimer::ReclaimerHandles;
use super::maintain::recurring::RecurringHandles;
use super::maintain::undelivered::UndeliveredHandles;
use super::membership::beacons::{BeaconHandles, Beacons};
use super::membership::heartbeat_interval::HeartbeatInterval;
use super::membership::identity::Identity;
use super::membership::liveness::Liveness;
use super::pools::run_pool::RunPool;
use super::settle::fairness::Fairness;
use super::settle::held_claims::HeldClaims;
use super::settle::settler::SettlerHandles;
use super::shared::Shared;
use crate::client::RetryDelays;
use crate::error::Result;
use crate::model::NodeStatus;
use crate::outage::Outage;
use crate::schedule;

/// One run of a node, from joining the cluster to leaving it. Contains the state of all loops of
/// the run, and the signals that stop these loops.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    pub(super) identity: Arc<Identity>,
    pub(super) claims: Arc<HeldClaims>,
    pub(super) running: Arc<RunningSet>,
    pub(super) poller: Arc<PollerHandles>,
    pub(super) executor: Arc<ExecutorHandles>,
    pub(super) reporter: Arc<Reporter>,
    pub(super) settler: Arc<SettlerHandles>,
    pub(super) leader: Arc<LeaderHandles>,
    pub(super) daemon: Arc<DaemonHandles>,
    pub(super) beacons: Arc<BeaconHandles>,
    pub(super) heartbeat: Arc<HeartbeatHandles>,
    pub(super) undelivered: Arc<UndeliveredHandles>,
    pub(super) reclaimer: Arc<ReclaimerHandles>,
    pub(super) maintenance: Arc<MaintenanceHandles>,
    pub(super) backlog: Arc<BacklogHandles>,
    pub(super) due_watch: Arc<DueWatchHandles>,
    pub(super) recurring: Arc<RecurringHandles>,
    pub(super) stops: Stops,
}

/// Signals that stop parts of a run.
#[derive(Clone, Default)]
pub(super) struct Stops {
    /// Token that is cancelled when the run stops claiming jobs.
    pub(super) draining: CancellationToken,
    /// Token that is cancelled when the remaining job bodies must be dropped.
    pub(super) abort: CancellationToken,
    /// Token that is cancelled when the node stops leading any role.
    pub(super) stepping_down: CancellationToken,
    /// Token that is cancelled when another live node has taken over this node's label.
    pub(super) displaced: CancellationToken,
}

impl Run {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let parts = Parts::new(shared);
        let heartbeat = Arc::new(parts.heartbeat());
        Self {
            poller: Arc::new(parts.poller()),
            executor: Arc::new(parts.executor()),
            settler: Arc::new(parts.settler()),
            leader: Arc::new(parts.leader()),
            daemon: Arc::new(parts.daemon()),
            beacons: Arc::new(parts.beacons()),
            undelivered: Arc::new(parts.undelivered(&heartbeat)),
            reclaimer: Arc::new(parts.reclaimer(&heartbeat)),
            maintenance: Arc::new(parts.maintenance()),
            backlog: Arc::new(parts.backlog()),
            due_watch: Arc::new(parts.due_watch()),
            recurring: Arc::new(parts.recurring()),
            heartbeat,
            identity: parts.identity,
            claims: parts.claims,
            running: parts.running,
            reporter: parts.reporter,
            stops: parts.stops,
            shared: parts.shared,
        }
    }

    /// Stores the declared permits and registers the node in the cluster. While the database is
    /// unavailable, retries until it works again.
    pub(super) async fn join(&self) -> Result<()> {
        let client = &self.shared.client;
        self.until_it_works(|| client.declare_permits()).await?;
        for status in [NodeStatus::Joining, NodeStatus::Active] {
            self.until_it_works(|| heartbeat::beat(&self.heartbeat, status))
                .await?;
            self.identity.set_status(status);
        }
        let (node, label) = (self.identity.node(), self.identity.label());
        tracing::info!(target: "ratchet::node", %node, %label, "node joined");
        Ok(())
    }

    /// Calls `step` until it succeeds, or fails with an error that is not transient.
    async fn until_it_works<T, F>(&self, step: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut backoff = RetryDelays::of("join");
        loop {
            match step().await {
                Err(error) if error.is_transient() => {
                    let delay = backoff.failed(&error, self.shared.common.random());
                    tokio::time::sleep(delay).await;
                }
                done => {
                    backoff.reset();
                    return done;
                }
            }
        }
    }

    /// Stops the leader loops, and resigns all roles of this node at once.
    pub(super) async fn step_down(&self) {
        self.stops.stepping_down.cancel();
        self.shared.roles.resign(&self.shared.client).await;
    }
}

/// Parts from which the state of all loops of a run is built.
struct Parts {
    shared: Arc<Shared>,
    identity: Arc<Identity>,
    interval: Arc<HeartbeatInterval>,
    liveness: Arc<Liveness>,
    claims: Arc<HeldClaims>,
    running: Arc<RunningSet>,
    reporter: Arc<Reporter>,
    fairness: Arc<Fairness>,
    beacons: Arc<Beacons>,
    stops: Stops,
}

impl Parts {
    fn new(shared: Arc<Shared>) -> Self {
        let common = &shared.common;
        let id = shared.node_status.next_id();
        let identity = Identity::new(id, shared.label_of(id));
        let stops = Stops::default();
        let config = &common.config;
        let interval = HeartbeatInterval::new(config.heartbeat_interval, config.heartbeat_max);
        let interval = Arc::new(interval);
        let draining = stops.draining.clone();
        let liveness = Liveness::new(Arc::clone(common), Arc::clone(&interval), draining);
        let pools = shared.pools.iter().enumerate();
        let pools = pools.map(|(index, pool)| RunPool::new(index, pool));
        let claims = HeldClaims::new(pools.collect(), Arc::clone(&shared.hooks));
        let running = Arc::new(RunningSet::default());
        let reporter = Reporter::new(Arc::clone(&common.calls), Arc::clone(&running));
        Self {
            identity: Arc::new(identity),
            interval,
            liveness: Arc::new(liveness),
            claims: Arc::new(claims),
            running,
            reporter: Arc::new(reporter),
            fairness: Arc::default(),
            beacons: Arc::default(),
            stops,
            shared,
        }
    }

    fn poller(&self) -> PollerHandles {
        PollerHandles {
            common: Arc::clone(&self.shared.common),
            identity: Arc::clone(&self.identity),
            interval: Arc::clone(&self.interval),
            claims: Arc::clone(&self.claims),
            running: Arc::clone(&self.running),
            fairness: Arc::clone(&self.fairness),
            gate: self.shared.gate(),
            beacons: Arc::clone(&self.beacons),
            coordinator: Arc::clone(&self.shared.coordinator),
            source: self.shared.source,
            wake_queue: Arc::clone(&self.shared.wake_queue),
            draining: self.stops.draining.clone(),
        }
    }

    fn executor(&self) -> ExecutorHandles {
        ExecutorHandles {
            common: Arc::clone(&self.shared.common),
            identity: Arc::clone(&self.identity),
            liveness: Arc::clone(&self.liveness),
            claims: Arc::clone(&self.claims),
            running: Arc::clone(&self.running),
            reporter: Arc::clone(&self.reporter),
            gate: self.shared.gate(),
            admission: Admission::new(
                Arc::clone(&self.shared.common),
                Arc::clone(&self.shared.limits),
            ),
            breakers: BreakerHandles {
                common: Arc::clone(&self.shared.common),
                breakers: Arc::clone(&self.shared.breakers),
                claims: Arc::clone(&self.claims),
                wake_queue: Arc::clone(&self.shared.wake_queue),
            },
            suspects: Suspects::default(),
            newer_payloads: Arc::clone(&self.shared.newer_payloads),
            registry: Arc::clone(&self.shared.registry),
            state: Arc::clone(&self.shared.state),
            client: self.shared.client.clone(),
            totals: Arc::clone(&self.shared.totals),
            outage: Mutex::new(Outage::of("executor")),
            draining: self.stops.draining.clone(),
            abort: self.stops.abort.clone(),
        }
    }

    fn settler(&self) -> SettlerHandles {
        SettlerHandles {
            common: Arc::clone(&self.shared.common),
            claims: Arc::clone(&self.claims),
            fairness: Arc::clone(&self.fairness),
            interval: Arc::clone(&self.interval),
            client: self.shared.client.clone(),
            wake_queue: Arc::clone(&self.shared.wake_queue),
            totals: Arc::clone(&self.shared.totals),
        }
    }

    fn leader(&self) -> LeaderHandles {
        LeaderHandles {
            common: Arc::clone(&self.shared.common),
            identity: Arc::clone(&self.identity),
            interval: Arc::clone(&self.interval),
            beacons: Arc::clone(&self.beacons),
            client: self.shared.client.clone(),
            stepping_down: self.stops.stepping_down.clone(),
        }
    }

    fn daemon(&self) -> DaemonHandles {
        DaemonHandles {
            common: Arc::clone(&self.shared.common),
            client: self.shared.client.clone(),
            state: Arc::clone(&self.shared.state),
            instances: TaskTracker::new(),
            draining: self.stops.draining.clone(),
        }
    }

    fn heartbeat(&self) -> HeartbeatHandles {
        let mut profile = self.shared.profile.clone();
        profile.zone_data = schedule::zone_data_in_use();
        HeartbeatHandles {
            common: Arc::clone(&self.shared.common),
            identity: Arc::clone(&self.identity),
            interval: Arc::clone(&self.interval),
            liveness: Arc::clone(&self.liveness),
            claims: Arc::clone(&self.claims),
            running: Arc::clone(&self.running),
            roles: Arc::clone(&self.shared.roles),
            totals: Arc::clone(&self.shared.totals),
            gauge: Gauge::new(),
            profile,
            breakers: Arc::clone(&self.shared.breakers),
            gate: self.shared.gate(),
            wake_queue: Arc::clone(&self.shared.wake_queue),
            capacity: self.shared.capacity(),
            beating: tokio::sync::Mutex::new(()),
            draining: self.stops.draining.clone(),
            displaced: self.stops.displaced.clone(),
        }
    }

    fn undelivered(&self, heartbeat: &Arc<HeartbeatHandles>) -> UndeliveredHandles {
        UndeliveredHandles {
            common: Arc::clone(&self.shared.common),
            claims: Arc::clone(&self.claims),
            heartbeat: Arc::clone(heartbeat),
            client: self.shared.client.clone(),
            wake_queue: Arc::clone(&self.shared.wake_queue),
        }
    }

    fn reclaimer(&self, heartbeat: &Arc<HeartbeatHandles>) -> ReclaimerHandles {
        ReclaimerHandles {
            common: Arc::clone(&self.shared.common),
            heartbeat: Arc::clone(heartbeat),
            liveness: Arc::clone(&self.liveness),
            running: Arc::clone(&self.running),
            roles: Arc::clone(&self.shared.roles),
            beacons: Arc::clone(&self.beacons),
            hooks: Arc::clone(&self.shared.hooks),
            totals: Arc::clone(&self.shared.totals),
            wake_queue: Arc::clone(&self.shared.wake_queue),
        }
    }

    fn maintenance(&self) -> MaintenanceHandles {
        MaintenanceHandles {
            common: Arc::clone(&self.shared.common),
            roles: Arc::clone(&self.shared.roles),
            totals: Arc::clone(&self.shared.totals),
        }
    }

    fn backlog(&self) -> BacklogHandles {
        BacklogHandles {
            common: Arc::clone(&self.shared.common),
            roles: Arc::clone(&self.shared.roles),
        }
    }

    fn beacons(&self) -> BeaconHandles {
        BeaconHandles {
            coordinator: Arc::clone(&self.shared.coordinator),
            beacons: Arc::clone(&self.beacons),
        }
    }

    fn due_watch(&self) -> DueWatchHandles {
        DueWatchHandles {
            common: Arc::clone(&self.shared.common),
            interval: Arc::clone(&self.interval),
            beacons: Arc::clone(&self.beacons),
            roles: Arc::clone(&self.shared.roles),
            client: self.shared.client.clone(),
            wake_queue: Arc::clone(&self.shared.wake_queue),
            coordinator: Arc::clone(&self.shared.coordinator),
        }
    }

    fn recurring(&self) -> RecurringHandles {
        RecurringHandles {
            common: Arc::clone(&self.shared.common),
            identity: Arc::clone(&self.identity),
            client: self.shared.client.clone(),
            beacons: Arc::clone(&self.beacons),
            coordinator: Arc::clone(&self.shared.coordinator),
            source: self.shared.source,
            wake_queue: Arc::clone(&self.shared.wake_queue),
            declared: Arc::clone(&self.shared.declared),
            totals: Arc::clone(&self.shared.totals),
            under_way: TaskTracker::new(),
            draining: self.stops.draining.clone(),
        }
    }
}
