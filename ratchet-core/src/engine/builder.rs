mod check;
mod recurring;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::daemon::{Daemon, DaemonContext, DaemonResult};
use super::hooks::Hooks;
use super::leader::Roles;
use super::node::Node;
use super::partition::partition;
use super::pool::Pool;
use super::retention::Retention;
use super::shared::Shared;
use super::taking::{Surroundings, capabilities_in};
use crate::cluster::{ClusterCoordinator, Election, LeaderTimings, NoopCoordinator};
use crate::error::{InvalidInput, SettingProblem};
use crate::handler::{Job, Registry, StateMap};
use crate::limiter::Limit;
use crate::model::{Definition, NodeProfile};
use crate::name::Name;
use crate::priority::Aging;
use crate::route::Selection;
use crate::store::SharedStore;
use check::{no_queue, taking};

/// Builds a [`Node`].
///
/// Setters never fail; [`build`](Self::build) tells everything that is wrong at once.
#[must_use]
pub struct NodeBuilder {
    pub(super) store: SharedStore,
    pub(super) registry: Registry,
    #[cfg(feature = "tower")]
    pub(super) layers: crate::handler::Layers,
    pub(super) hooks: Hooks,
    state: StateMap,
    config: Config,
    label: Option<Name>,
    queues: Selection,
    capabilities: Vec<Name>,
    pools: Vec<Pool>,
    coordinator: Option<Arc<dyn ClusterCoordinator>>,
    promotable: bool,
    leads: Vec<Name>,
    roles: Option<Vec<Name>>,
    active_in: Option<Name>,
    daemons: Vec<Daemon>,
    declared: Vec<Definition>,
    seed: Option<u64>,
    pub(super) limits: BTreeMap<Name, Limit>,
    pub(super) problems: Vec<SettingProblem>,
}

impl NodeBuilder {
    pub(super) fn new(store: SharedStore) -> Self {
        Self {
            store,
            registry: Registry::default(),
            #[cfg(feature = "tower")]
            layers: crate::handler::Layers::default(),
            hooks: Hooks::default(),
            state: StateMap::default(),
            config: Config::default(),
            label: None,
            queues: Selection::All,
            capabilities: Vec::new(),
            pools: Vec::new(),
            coordinator: None,
            promotable: true,
            leads: Vec::new(),
            roles: None,
            active_in: None,
            daemons: Vec::new(),
            declared: Vec::new(),
            seed: None,
            limits: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Lets the node run jobs of this type, under all its names; jobs of other kinds are left to other
    /// nodes.
    pub fn register<J: Job>(mut self) -> Self {
        let registered = self.registry.register::<J>();
        let problems = registered.err().into_iter().flatten();
        self.problems.extend(problems.map(SettingProblem::from));
        self
    }

    /// Gives the bodies a value, which they get by its type from
    /// [`JobContext::state`](crate::JobContext::state). A second value of a type replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// What people call the node. It must be unique among live nodes: a node that starts with the
    /// label of another takes over from it, so a process that restarts under its own label takes
    /// back its jobs at once. The default is made from the node's random id, which is a new one at
    /// each start and cannot be set.
    ///
    /// Two processes with one label, such as copies of one deployment, displace each other: the older
    /// loses its claims and its roles and stops with [`RunError::Displaced`](crate::RunError), "another
    /// node runs under the label …". One that is started again then displaces the other. Give
    /// each a label of its own (a stateful set's pod name, host and port), or none.
    pub fn label(mut self, label: &str) -> Self {
        self.label = self.keep(Name::new("label", label));
        self
    }

    /// Polls only these queues, and [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE) unless
    /// [`system_concurrency`](Self::system_concurrency) is 0; the default is all.
    pub fn queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        let queues = self.names("queue", queues);
        self.queues = Selection::Only(queues);
        self
    }

    /// Advertises these capabilities: the node then also runs jobs that require one of them.
    pub fn capabilities<'a>(mut self, capabilities: impl IntoIterator<Item = &'a str>) -> Self {
        self.capabilities = self.names("capability", capabilities);
        self
    }

    /// Sets whether the node takes jobs that require no capability, which is the default. A node with
    /// rare hardware sets `false`: it then leaves the jobs that any node can run to the others, and
    /// takes only those that require one of its [`capabilities`](Self::capabilities). The slots of
    /// [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE) take its jobs either way, unless
    /// [`system_concurrency`](Self::system_concurrency) is 0. [`Pool::untagged`] sets it for one
    /// pool.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet_core::{Job, JobContext, JobResult, MemoryStore, Ratchet};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Render;
    /// # impl Job for Render {
    /// #     const KIND: &'static str = "render";
    /// #     type Output = ();
    /// #     async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
    /// # }
    /// let node = Ratchet::builder(Arc::new(MemoryStore::new()))
    ///     .register::<Render>()
    ///     .capabilities(["gpu"])
    ///     .untagged(false)
    ///     .build()?;
    /// # Ok::<(), ratchet_core::BuildError>(())
    /// ```
    pub fn untagged(mut self, taken: bool) -> Self {
        self.config.untagged = taken;
        self
    }

    /// Runs at most this many bodies at once, those of other [pools](Pool) not counted. Default 32.
    pub fn concurrency(mut self, bodies: usize) -> Self {
        self.config.concurrency = bodies;
        self
    }

    /// Gives some of the node's jobs slots of their own; see [`Pool`] for which.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Runs at most this many bodies of this queue at once, in a [`Pool`] of its own. It is named
    /// `queue:` and the queue.
    pub fn queue_concurrency(self, queue: &str, bodies: usize) -> Self {
        let pool = Pool::new(&format!("queue:{queue}")).queues([queue]);
        self.pool(pool.concurrency(bodies))
    }

    /// Runs at most this many bodies of this type at once, in a [`Pool`] of its own. It is named
    /// `kind:` and the kind.
    pub fn kind_concurrency<J: Job>(self, bodies: usize) -> Self {
        let pool = Pool::new(&format!("kind:{}", J::KIND)).kind::<J>();
        self.pool(pool.concurrency(bodies))
    }

    /// Reserves this many slots for the jobs of [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE), which the
    /// node then polls whatever its other queues are: no load of others can keep these jobs
    /// waiting. Default 2; 0 reserves none, and the queue is like any other.
    pub fn system_concurrency(mut self, bodies: usize) -> Self {
        self.config.system_concurrency = bodies;
        self
    }

    /// Holds at most this many claims beyond the running ones, while jobs are very short. Default
    /// 960; 0 claims only for free slots. Other pools have a [`prefetch`](Pool::prefetch) of their
    /// own.
    pub fn prefetch(mut self, claims: usize) -> Self {
        self.config.prefetch = claims;
        self
    }

    /// Sets how long a prefetched claim may wait for a slot before it is handed back. Default 5 s;
    /// at most half of the start timeout.
    pub fn prefetch_ttl(mut self, ttl: Duration) -> Self {
        self.config.prefetch_ttl = ttl;
        self
    }

    /// Reads payloads when bodies are about to begin, not with the claim: for large payloads.
    pub fn lazy_payloads(mut self, lazy: bool) -> Self {
        self.config.lazy_payloads = lazy;
        self
    }

    /// Sets how waiting raises priority. Default: one level per 15 minutes.
    pub fn aging(mut self, aging: Aging) -> Self {
        self.config.aging = aging;
        self
    }

    /// Sets the shortest and the longest delay between polls. Default 100 ms and 1 s.
    pub fn poll_interval(mut self, min: Duration, max: Duration) -> Self {
        self.config.poll_min = min;
        self.config.poll_max = max;
        self
    }

    /// Sets how often the node gives a sign of life while something depends on it. Default 5 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.config.heartbeat_interval = interval;
        self.config.heartbeat_max = self.config.heartbeat_max.max(interval);
        self
    }

    /// Sets how seldom at most a node gives a sign of life that holds no job and leads in nothing,
    /// while no other comes or goes. Default 30 s, at most 60 s. An order to drain reaches such a
    /// node that much later.
    pub fn heartbeat_max(mut self, interval: Duration) -> Self {
        self.config.heartbeat_max = interval;
        self
    }

    /// Sets how long nodes must be silent to count as dead; at least three heartbeat intervals.
    /// Default 15 s.
    pub fn dead_after(mut self, silence: Duration) -> Self {
        self.config.dead_after = silence;
        self
    }

    /// Sets how often the node looks for claims that nobody works on. Default 5 s.
    pub fn reclaim_interval(mut self, interval: Duration) -> Self {
        self.config.reclaim_interval = interval;
        self
    }

    /// Sets how long a claim may wait for its body to begin. Default 5 min.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.config.start_timeout = timeout;
        self
    }

    /// Sets how many lost claims a job survives: one more makes it a dead letter. Default 3, so the
    /// fourth loss does; 0 makes the first loss a dead letter. Claims count as lost when their node
    /// died or their body stalled, not when they are handed back.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.config.max_crashes = crashes;
        self
    }

    /// Sets how long a drain waits for running bodies. Default 30 s.
    pub fn drain_grace(mut self, grace: Duration) -> Self {
        self.config.drain_grace = grace;
        self
    }

    /// Sets what becomes of finished jobs. Default: successes are deleted after a day, dead letters and
    /// cancelled jobs after 90 days.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.config.retention = retention;
        self
    }

    /// Names the queues whose backlog the cluster's leader reports as the gauges
    /// `ratchet_queue_due_jobs` and `ratchet_queue_oldest_due_seconds`, for autoscalers. Default none;
    /// at most 50, because each queue is two time series. Set the same list on every node that may
    /// lead: only the leader of `maintenance` measures, about every 15 s.
    pub fn measured_queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        let mut queues = self.names("measured_queues", queues);
        queues.sort();
        queues.dedup();
        self.config.measured_queues = queues;
        self
    }

    /// Sets how often old finished jobs are looked for. Default 1 min.
    pub fn maintenance_interval(mut self, interval: Duration) -> Self {
        self.config.maintenance_interval = interval;
        self
    }

    /// Sets how long one call of the store may take. Default 10 s.
    pub fn store_deadline(mut self, deadline: Duration) -> Self {
        self.config.store_deadline = deadline;
        self
    }

    /// Carries wakeups between nodes. The default is the store's own, or none.
    pub fn coordinator(mut self, coordinator: impl ClusterCoordinator) -> Self {
        self.coordinator = Some(Arc::new(coordinator));
        self
    }

    /// Takes part in the election of the leader of this role, one of the application's own:
    /// [`Node::leadership`] says whether it was won.
    pub fn role(mut self, role: &str) -> Self {
        if let Some(role) = self.keep(Name::new("role", role)) {
            self.leads.push(role);
        }
        self
    }

    /// Runs one instance of this body in the whole cluster: on the node that leads in the role of this
    /// name, for which every node with the daemon stands.
    ///
    /// It is told to stop ([`DaemonContext::stopped`]) when the node drains or ceases to lead, and
    /// dropped if it does not; another node then starts its own. A body that fails or panics is started
    /// again after a growing delay; if it fails five times in a row, its node leaves it to others for
    /// five minutes. A body that returns `Ok` is started again in the next term only.
    ///
    /// For a moment after its node has lost leadership without knowing it, two instances may run. What
    /// only one may write needs the [`guard`](DaemonContext::guard) or the
    /// [`term`](DaemonContext::term).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use ratchet_core::{DaemonContext, MemoryStore, Ratchet};
    /// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).daemon(
    ///     "price_feed",
    ///     |ctx: DaemonContext| async move {
    ///         while !ctx.is_stopped() {
    ///             // Fetch and publish.
    ///             tokio::time::sleep(Duration::from_secs(1)).await;
    ///         }
    ///         Ok(())
    ///     },
    /// );
    /// # let _ = builder;
    /// ```
    pub fn daemon<B, F>(mut self, role: &str, body: B) -> Self
    where
        B: Fn(DaemonContext) -> F + Send + Sync + 'static,
        F: Future<Output = DaemonResult> + Send + 'static,
    {
        if let Some(role) = self.keep(Name::new("role", role)) {
            self.leads.push(role.clone());
            self.daemons.push(Daemon::new(role, body));
        }
        self
    }

    /// Claims only while the node leads in this role, which is added if it is not there: one node of
    /// the cluster works, the others stand by, warm. What a node claimed and has not begun goes back
    /// when it ceases to lead.
    pub fn active_passive(mut self, role: &str) -> Self {
        if let Some(role) = self.keep(Name::new("active_passive", role)) {
            if !self.leads.contains(&role) {
                self.leads.push(role.clone());
            }
            self.active_in = Some(role);
        }
        self
    }

    /// Takes part in these roles only; all unless set. `worker` runs jobs, `maintenance` looks after
    /// the cluster, the others are those of [`role`](Self::role), [`daemon`](Self::daemon) and
    /// [`active_passive`](Self::active_passive).
    pub fn roles<'a>(mut self, roles: impl IntoIterator<Item = &'a str>) -> Self {
        self.roles = Some(self.names("role", roles));
        self
    }

    /// Takes label, capabilities and roles from the environment, where it has them:
    /// `RATCHET_NODE_LABEL`, and with commas between their items `RATCHET_NODE_CAPABILITIES` and
    /// `RATCHET_NODE_ROLES`. They replace what was set before. Each process needs a
    /// [`label`](Self::label) of its own.
    pub fn read_env(mut self) -> Self {
        match Surroundings::read() {
            Ok(found) => self.surround(&found),
            Err(problems) => self.problems.extend(problems.into_iter().map(Into::into)),
        }
        self
    }

    /// Takes the capabilities from a file: separated by commas or new lines, `#` begins a comment.
    /// They replace what was set before.
    pub fn capabilities_from_file(mut self, path: impl AsRef<Path>) -> Self {
        match capabilities_in(path.as_ref()) {
            Ok(found) => self.capabilities(found.iter().map(String::as_str)),
            Err(problem) => {
                let problem = SettingProblem::new(&["capabilities_file"], problem);
                self.problems.push(problem);
                self
            }
        }
    }

    /// Whether the node may lead at all, in roles of the application or of the engine (which has one,
    /// `maintenance`: taking back what dead nodes held, and deleting what is old). Yes unless set;
    /// a cluster needs one node that may.
    pub fn promotable(mut self, promotable: bool) -> Self {
        self.promotable = promotable;
        self
    }

    /// Sets the timings of leadership.
    pub fn leader_timings(mut self, timings: LeaderTimings) -> Self {
        self.config.leadership = timings;
        self
    }

    /// Leaves it for so long to others to take over from a leader that vanished. Default: not at all.
    pub fn takeover_delay(mut self, delay: Duration) -> Self {
        self.config.takeover_delay = delay;
        self
    }

    /// Makes all jitter a function of this seed, for tests that must repeat.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks everything and makes the node. Does no I/O.
    ///
    /// # Errors
    /// [`BuildError`] with every problem: bad names, names that two job types claim, missing state,
    /// pools that cannot work, timings that clash.
    pub fn build(self) -> Result<Node, BuildError> {
        let limit_problems = self.limit_problems();
        #[cfg_attr(
            not(feature = "tower"),
            expect(unused_mut, reason = "it is changed by the layers only")
        )]
        let mut registry = self.registry;
        let mut problems = self.problems;
        #[cfg(feature = "tower")]
        problems.extend(
            registry
                .stack(self.layers)
                .err()
                .into_iter()
                .flatten()
                .map(SettingProblem::from),
        );
        problems.extend(limit_problems.into_iter().map(SettingProblem::from));
        problems.extend(self.config.problems());
        if self.config.retention.needs_archive() && self.store.archive().is_none() {
            let text = "jobs are to be archived, and the store has no archive";
            problems.push(text.to_owned().into());
        }
        if registry.kinds().is_empty() && self.daemons.is_empty() {
            let text = "no job is registered; to enqueue only, use a client";
            problems.push(text.to_owned().into());
        }
        problems.extend(no_queue(&self.queues));
        let recurring = !self.declared.is_empty() || self.config.retire_recurring;
        if recurring && self.store.recurring().is_none() {
            let text = "the store keeps no recurring definitions";
            problems.push(text.to_owned().into());
        }
        for (kind, state) in registry.missing_state(&self.state) {
            problems.push(format!("job {kind} needs state of type {state}").into());
        }
        let taking = taking(
            &self.leads,
            self.roles.as_deref(),
            self.promotable,
            self.active_in.as_ref(),
            &mut problems,
        );
        let elections = elections(&self.store, &self.config, &taking.leads, &mut problems);
        let kinds = match taking.works {
            true => registry.kinds(),
            false => Vec::new(),
        };
        let profile = NodeProfile::new(taking.names(), self.capabilities.clone()).kinds(kinds);
        let pools = partition(
            self.queues,
            registry.kinds(),
            self.capabilities,
            &self.config,
            &self.pools,
        );
        let pools = match pools {
            Ok(pools) if problems.is_empty() => pools,
            pools => {
                problems.extend(pools.err().into_iter().flatten());
                return Err(BuildError::new(problems));
            }
        };
        let coordinator = self
            .coordinator
            .or_else(|| self.store.coordinator())
            .unwrap_or_else(|| Arc::new(NoopCoordinator));
        let shared = Shared::new(
            self.store,
            registry,
            self.hooks,
            self.state,
            self.config,
            self.label,
            pools,
            coordinator,
            Roles::new(elections),
            taking.works,
            self.active_in,
            self.daemons,
            self.declared,
            profile,
            self.limits,
            self.seed,
        );
        Ok(Node::new(Arc::new(shared)))
    }

    fn keep<T>(&mut self, checked: Result<T, InvalidInput>) -> Option<T> {
        checked
            .map_err(|error| self.problems.push(error.into()))
            .ok()
    }

    fn surround(&mut self, found: &Surroundings) {
        if let Some(label) = &found.label {
            self.label = self.keep(Name::new("label", label));
        }
        if let Some(items) = &found.capabilities {
            self.capabilities = self.names("capability", items.iter().map(String::as_str));
        }
        if let Some(items) = &found.roles {
            self.roles = Some(self.names("role", items.iter().map(String::as_str)));
        }
    }

    fn names<'a>(
        &mut self,
        field: &'static str,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Name> {
        texts
            .into_iter()
            .filter_map(|text| self.keep(Name::new(field, text)))
            .collect()
    }
}

/// The elections that a node takes part in.
fn elections(
    store: &SharedStore,
    config: &Config,
    leads: &[Name],
    problems: &mut Vec<SettingProblem>,
) -> Vec<Election> {
    let mut elections = Vec::new();
    for role in leads {
        match Election::new(Arc::clone(store), role, config.leadership) {
            Ok(election) => elections.push(election.takeover_delay(config.takeover_delay)),
            // The timings and the role are among the problems already.
            Err(_) if !config.leadership.problems().is_empty() => {}
            Err(_) if Election::lock_of(role).is_err() => {}
            Err(error) => problems.push(error.to_string().into()),
        }
    }
    elections
}

impl fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBuilder")
            .field("store", &self.store)
            .field("kinds", &self.registry)
            .field("config", &self.config)
            .field("promotable", &self.promotable)
            .finish_non_exhaustive()
    }
}

/// Why a node was not built: everything that is wrong with its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node cannot be built: {}", problems.join("; "))]
pub struct BuildError {
    problems: Vec<String>,
    refused: Vec<SettingProblem>,
}

impl BuildError {
    fn new(refused: Vec<SettingProblem>) -> Self {
        Self {
            problems: refused.iter().map(SettingProblem::to_string).collect(),
            refused,
        }
    }

    /// The problems, each a sentence that names the values.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The same, with the settings that they are of.
    #[must_use]
    pub fn refused(&self) -> &[SettingProblem] {
        &self.refused
    }
}
