//! Checks the settings of a builder, and builds the node.

use std::sync::Arc;

use super::builder::NodeBuilder;
use super::check::{idle_without_leading, no_queue, taking};
use super::error::BuildError;
use crate::cluster::{Election, NoopCoordinator, RoleLocks};
use crate::engine::lead::roles::Roles;
use crate::engine::node::Node;
use crate::engine::pools::partition::partition;
use crate::engine::settings::config::Config;
use crate::engine::shared::{Settings, Shared};
use crate::error::SettingProblem;
use crate::model::NodeProfile;
use crate::name::Name;
use crate::store::SharedStore;

impl NodeBuilder {
    /// Checks all settings and builds the node. Does no I/O.
    ///
    /// # Errors
    /// [`BuildError`] with every problem, such as bad names, names that two job types claim,
    /// missing state, pools that cannot work, or timings that conflict.
    pub fn build(self) -> Result<Node, BuildError> {
        let mut limit_problems = self.limit_problems();
        limit_problems.extend(self.breaker_problems());
        let permit_problem = self.permit_problem();
        #[cfg_attr(
            not(feature = "tower"),
            expect(unused_mut, reason = "only layers change the registry")
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
        problems.extend(permit_problem);
        problems.extend(self.config.problems());
        if self.config.retention.needs_archive() && self.store.archive().is_none() {
            let text = "the retention archives jobs, but the store does not support an archive";
            problems.push(text.to_owned().into());
        }
        if registry.kinds().is_empty() && self.daemons.is_empty() {
            let text = "no job is registered; a program that only enqueues needs a client";
            problems.push(text.to_owned().into());
        }
        problems.extend(no_queue(&self.queues));
        let recurring = !self.declared.is_empty() || self.config.retire_recurring;
        if recurring && self.store.recurring().is_none() {
            let text = "the node uses recurring definitions, which the store does not support";
            problems.push(text.to_owned().into());
        }
        for (kind, state) in registry.missing_state(&self.state) {
            let text = format!("job {kind} needs state of type {state}; use NodeBuilder::state");
            problems.push(text.into());
        }
        let taking = taking(
            &self.leads,
            self.roles.as_deref(),
            self.promotable,
            self.active_in.as_ref(),
            &mut problems,
        );
        problems.extend(idle_without_leading(&self.config, &taking));
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
        let shared = Shared::new(Settings {
            store: self.store,
            owns_store: self.owns_store,
            registry,
            hooks: self.hooks,
            state: self.state,
            config: self.config,
            label: self.label,
            pools,
            coordinator,
            roles: Roles::new(elections),
            works: taking.works,
            active_in: self.active_in,
            daemons: self.daemons,
            declared: self.declared,
            profile,
            limits: self.limits,
            breakers: self.breakers,
            permits: self.permits,
            seed: self.seed,
        });
        Ok(Node::new(Arc::new(shared)))
    }
}

/// From this number of roles on, a node reads the locks of all roles in one call.
const SHARING: usize = 10;

/// Creates the elections of the roles in which the node may lead.
fn elections(
    store: &SharedStore,
    config: &Config,
    leads: &[Name],
    problems: &mut Vec<SettingProblem>,
) -> Vec<Election> {
    let mut elections = Vec::new();
    let readings = (leads.len() >= SHARING).then(Arc::<RoleLocks>::default);
    for role in leads {
        match Election::new(Arc::clone(store), role, config.leadership) {
            Ok(election) => {
                let election = election.takeover_delay(config.takeover_delay);
                elections.push(match &readings {
                    Some(readings) => election.share(readings),
                    None => election,
                });
            }
            // The problems already include those of the timings and of the role's name.
            Err(_) if !config.leadership.problems().is_empty() => {}
            Err(_) if Election::lock_of(role).is_err() => {}
            Err(error) => problems.push(error.to_string().into()),
        }
    }
    elections
}
