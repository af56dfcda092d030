//! Setters for the label of the node and for the roles in which it takes part.

use std::time::Duration;

use super::builder::NodeBuilder;
use super::environment::NodeEnvironment;
use crate::cluster::LeaderTimings;
use crate::engine::lead::daemon::{Daemon, DaemonContext, DaemonResult};
use crate::name::Name;

impl NodeBuilder {
    /// What people call the node. It must be unique among live nodes: a node that starts with the
    /// label of another takes over from it, so a process that restarts under its own label takes
    /// back its jobs at once. The default is made from the node's random id, which is a new one at
    /// each start and cannot be set.
    ///
    /// Two processes with one label, such as copies of one deployment, displace each other: the
    /// older loses its claims and its roles and stops with
    /// [`RunError::Displaced`](crate::RunError), "another node runs under the label …". One that is
    /// started again then displaces the other. Give each a label of its own (a stateful set's pod
    /// name, host and port), or none.
    pub fn label(mut self, label: &str) -> Self {
        self.label = self.keep(Name::new("label", label));
        self
    }

    /// Takes part in the election of the leader of this role, one of the application's own:
    /// [`Node::leadership`](crate::Node::leadership) says whether it was won.
    pub fn role(mut self, role: &str) -> Self {
        if let Some(role) = self.keep(Name::new("role", role)) {
            self.leads.push(role);
        }
        self
    }

    /// Runs one instance of this body in the whole cluster: on the node that leads in the role of
    /// this name, for which every node with the daemon stands.
    ///
    /// It must stop ([`DaemonContext::stopped`]) when the node drains or ceases to lead, and
    /// dropped if it does not; another node then starts its own. A body that fails or panics is
    /// started again after a growing delay; if it fails five times in a row, its node leaves it to
    /// others for five minutes. A body that returns `Ok` is started again in the next term only.
    ///
    /// For a moment after its node has lost leadership without knowing it, two instances may run.
    /// What only one may write needs the [`guard`](DaemonContext::guard) or the
    /// [`term`](DaemonContext::term).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use ratchet::{DaemonContext, MemoryStore, Ratchet};
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

    /// Claims only while the node leads in this role, which is added if it is not there: one node
    /// of the cluster works, the others stand by, warm. What a node claimed and has not begun goes
    /// back when it ceases to lead.
    pub fn active_passive(mut self, role: &str) -> Self {
        if let Some(role) = self.keep(Name::new("active_passive", role)) {
            if !self.leads.contains(&role) {
                self.leads.push(role.clone());
            }
            self.active_in = Some(role);
        }
        self
    }

    /// Takes part in these roles only; all unless set. `worker` runs jobs, `maintenance` looks
    /// after the cluster, the others are those of [`role`](Self::role), [`daemon`](Self::daemon)
    /// and [`active_passive`](Self::active_passive).
    pub fn roles<'a>(mut self, roles: impl IntoIterator<Item = &'a str>) -> Self {
        self.roles = Some(self.names("role", roles));
        self
    }

    /// Whether the node may lead at all, in roles of the application or of the engine (which has
    /// one, `maintenance`: taking back what dead nodes held, and deleting what is old). Yes unless
    /// set; a cluster needs one node that may.
    pub fn promotable(mut self, promotable: bool) -> Self {
        self.promotable = promotable;
        self
    }

    /// Takes label, capabilities and roles from the environment, where it has them:
    /// `RATCHET_NODE_LABEL`, and with commas between their items `RATCHET_NODE_CAPABILITIES` and
    /// `RATCHET_NODE_ROLES`. They replace what was set before. Each process needs a
    /// [`label`](Self::label) of its own.
    pub fn read_env(mut self) -> Self {
        match NodeEnvironment::read() {
            Ok(found) => self.surround(&found),
            Err(problems) => self.problems.extend(problems.into_iter().map(Into::into)),
        }
        self
    }

    /// Sets the timings of leadership.
    pub fn leader_timings(mut self, timings: LeaderTimings) -> Self {
        self.config.leadership = timings;
        self
    }

    /// Sets how long this node lets others take over first after a leader has vanished. Default:
    /// not at all.
    pub fn takeover_delay(mut self, delay: Duration) -> Self {
        self.config.takeover_delay = delay;
        self
    }

    fn surround(&mut self, found: &NodeEnvironment) {
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
}
