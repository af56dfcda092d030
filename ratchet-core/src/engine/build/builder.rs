//! The builder of nodes and its fields. The setters are in the other files of this folder, by
//! topic.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::breaker::CircuitBreaker;
use crate::cluster::ClusterCoordinator;
use crate::engine::failure_log::FailureLog;
use crate::engine::hooks::Hooks;
use crate::engine::lead::daemon::Daemon;
use crate::engine::settings::config::Config;
use crate::engine::settings::pool::Pool;
use crate::error::{InvalidInput, SettingProblem};
use crate::handler::{Registry, StateMap};
use crate::limiter::Limit;
use crate::model::Definition;
use crate::name::Name;
use crate::route::Selection;
use crate::store::SharedStore;

/// Builds a [`Node`](crate::Node).
///
/// Setters never fail. [`build`](Self::build) reports all problems at once.
///
/// ```
/// use std::time::Duration;
///
/// use ratchet::Ratchet;
///
/// # async fn example() -> Result<(), ratchet::BoxError> {
/// let store = ratchet::connect("memory:").await?;
/// let node = Ratchet::builder(store)
///     .concurrency(8)
///     .drain_grace(Duration::from_secs(30))
///     .build()?;
/// node.run().await?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct NodeBuilder {
    pub(super) store: SharedStore,
    pub(super) owns_store: bool,
    pub(super) registry: Registry,
    #[cfg(feature = "tower")]
    pub(super) layers: crate::handler::Layers,
    pub(super) hooks: Hooks,
    pub(super) state: StateMap,
    pub(super) config: Config,
    pub(super) label: Option<Name>,
    pub(super) queues: Selection,
    pub(super) capabilities: Vec<Name>,
    pub(super) pools: Vec<Pool>,
    pub(super) coordinator: Option<Arc<dyn ClusterCoordinator>>,
    pub(super) promotable: bool,
    pub(super) leads: Vec<Name>,
    pub(super) roles: Option<Vec<Name>>,
    pub(super) active_in: Option<Name>,
    pub(super) daemons: Vec<Daemon>,
    pub(super) declared: Vec<Definition>,
    pub(super) seed: Option<u64>,
    pub(super) limits: BTreeMap<Name, Limit>,
    pub(super) breakers: BTreeMap<Name, CircuitBreaker>,
    pub(super) permits: BTreeMap<Name, u32>,
    pub(super) problems: Vec<SettingProblem>,
}

impl NodeBuilder {
    pub(super) fn new(store: SharedStore) -> Self {
        let mut hooks = Hooks::default();
        hooks.add(FailureLog::default());
        Self {
            store,
            owns_store: false,
            registry: Registry::default(),
            #[cfg(feature = "tower")]
            layers: crate::handler::Layers::default(),
            hooks,
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
            breakers: BTreeMap::new(),
            permits: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Makes the node [close](crate::Store::close) the store when its run ends. Use it in programs
    /// that do not use the store otherwise.
    ///
    /// Afterwards the node cannot run again, and its clients fail. If the future of the run is
    /// dropped, the store stays open.
    ///
    /// If the program also serves requests that use the store, end the node after the server:
    /// `node.run_until(async { serve.await })`. If both run side by side, as with `join!(serve,
    /// node.run())`, the node closes the store while requests are still being answered.
    pub fn owns_store(mut self) -> Self {
        self.owns_store = true;
        self
    }

    pub(super) fn keep<T>(&mut self, checked: Result<T, InvalidInput>) -> Option<T> {
        checked
            .map_err(|error| self.problems.push(error.into()))
            .ok()
    }

    pub(super) fn names<'a>(
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
