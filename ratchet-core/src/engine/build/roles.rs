//! Setters for the label of the node, and for the roles in which it takes part.

use std::time::Duration;

use super::builder::NodeBuilder;
use super::environment::NodeEnvironment;
use crate::cluster::LeaderTimings;
use crate::engine::lead::daemon::{Daemon, DaemonContext, DaemonResult};
use crate::name::Name;

impl NodeBuilder {
    /// Sets the label of the node, its name for operators.
    ///
    /// The label must be unique among live nodes. A node that starts with the label of another node
    /// displaces that node. So a process that restarts under its own label takes back its jobs at
    /// once. The default label is made from the node's random id, which is new at each start and
    /// cannot be set.
    ///
    /// Two processes with one label, such as copies of one deployment, displace each other. The
    /// older one loses its claims and its roles, and stops with
    /// [`RunError::Displaced`](crate::RunError), "another node runs under the label …". If it is
    /// started again, it displaces the other. Give each process a label of its own, such as a
    /// stateful set's pod name or host and port, or no label.
    pub fn label(mut self, label: &str) -> Self {
        self.label = self.keep(Name::new("label", label));
        self
    }

    /// Takes part in the election of the leader of this role of the application.
    /// [`Node::leadership`](crate::Node::leadership) reports whether the node leads.
    ///
    /// If several nodes start together, the roles are distributed over them at random. A node that
    /// leads keeps its roles until it stops or fails.
    pub fn role(mut self, role: &str) -> Self {
        if let Some(role) = self.keep(Name::new("role", role)) {
            self.leads.push(role);
        }
        self
    }

    /// Runs one instance of this body in the whole cluster, on the leader of the role of this name.
    /// Every node with the daemon is a candidate for the role.
    ///
    /// The body must stop ([`DaemonContext::stopped`]) when the node drains or ceases to lead;
    /// otherwise it is dropped. Another node then starts its own instance. A body that fails or
    /// panics is restarted after a growing delay. If it fails five times in a row, the node leaves
    /// the role to other nodes for five minutes. A body that returns `Ok` is started again only in
    /// the next term.
    ///
    /// Two instances may run for a moment if the node of one instance has lost its leadership and
    /// has not noticed yet. For a write that only one instance may make, use the
    /// [`guard`](DaemonContext::guard) or the [`term`](DaemonContext::term).
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

    /// Claims only while the node leads in this role, which is added to the node's roles. So one
    /// node of the cluster runs jobs, and the others are on standby. When the node ceases to lead,
    /// it hands back its claims whose bodies have not begun.
    pub fn active_passive(mut self, role: &str) -> Self {
        if let Some(role) = self.keep(Name::new("active_passive", role)) {
            if !self.leads.contains(&role) {
                self.leads.push(role.clone());
            }
            self.active_in = Some(role);
        }
        self
    }

    /// Takes part in these roles only. By default the node takes part in all roles.
    ///
    /// `worker` runs jobs, `maintenance` maintains the cluster, and the others are those of
    /// [`role`](Self::role), [`daemon`](Self::daemon) and [`active_passive`](Self::active_passive).
    pub fn roles<'a>(mut self, roles: impl IntoIterator<Item = &'a str>) -> Self {
        self.roles = Some(self.names("role", roles));
        self
    }

    /// Sets whether the node may lead in any role, of the application or of the engine. The default
    /// is `true`.
    ///
    /// The engine has one role, `maintenance`, whose leader takes back the claims of dead nodes and
    /// deletes old jobs. A cluster needs at least one node that may lead.
    pub fn promotable(mut self, promotable: bool) -> Self {
        self.promotable = promotable;
        self
    }

    /// Reads the label, the capabilities and the roles from the environment variables
    /// `RATCHET_NODE_LABEL`, `RATCHET_NODE_CAPABILITIES` and `RATCHET_NODE_ROLES`. The last two are
    /// comma-separated lists. A variable that is set replaces the earlier setting; one that is not
    /// set changes nothing. Each process needs a [`label`](Self::label) of its own.
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

    /// Sets how long this node leaves the takeover to other nodes after a leader has vanished. The
    /// default is zero.
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
