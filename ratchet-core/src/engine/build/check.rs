//! Checks the settings that can be checked without handlers and a store.

use std::time::Duration;

use super::builder::NodeBuilder;
use super::role_selection::{RoleSelection, WORKER};
use crate::cluster::{Election, LeaderTimings};
use crate::engine::lead::roles::MAINTENANCE;
use crate::engine::pools::partition::partition;
use crate::engine::settings::config::Config;
use crate::engine::settings::retention::Retention;
use crate::error::SettingProblem;
use crate::name::Name;
use crate::route::Selection;

impl NodeBuilder {
    /// Returns the problems of the settings so far, except those that a later registration can
    /// solve. For programs that check the settings of another program, such as its configuration
    /// file.
    ///
    /// As long as no job and no daemon is registered, the kinds and roles that a setting names
    /// count as known.
    #[must_use]
    pub fn check_settings(&self) -> Vec<SettingProblem> {
        let mut problems = self.problems.clone();
        problems.extend(self.config.problems());
        problems.extend(no_queue(&self.queues));
        let (mut kinds, mut leads) = (self.registry.kinds(), self.leads.clone());
        if kinds.is_empty() && self.daemons.is_empty() {
            let named = self.pools.iter().flat_map(|pool| &pool.kinds);
            kinds.extend(named.filter_map(|kind| Name::new("kind", kind).ok()));
            // Adds a kind that no pool names, so that the default pool has a kind to run.
            kinds.extend(Name::new("kind", "any other"));
            let chosen = self.roles.iter().flatten();
            let others = chosen
                .filter(|role| !leads.contains(role) && **role != WORKER && **role != MAINTENANCE);
            let others: Vec<Name> = others.cloned().collect();
            leads.extend(others);
        }
        let taking = taking(
            &leads,
            self.roles.as_deref(),
            self.promotable,
            self.active_in.as_ref(),
            &mut problems,
        );
        problems.extend(idle_without_leading(&self.config, &taking));
        let mut capabilities = self.capabilities.clone();
        let refuses = !self.config.untagged || self.pools.iter().any(|pool| !pool.untagged);
        if capabilities.is_empty() && refuses {
            // The program or its environment may add capabilities later. Without this placeholder,
            // the check would report that the node can claim no job.
            capabilities.extend(Name::new("capability", "any other"));
        }
        let pools = partition(
            self.queues.clone(),
            kinds,
            capabilities,
            &self.config,
            &self.pools,
        );
        problems.extend(pools.err().into_iter().flatten());
        problems
    }

    /// Returns the configured timings of leadership, for programs that change only some of them.
    #[must_use]
    pub const fn current_leader_timings(&self) -> LeaderTimings {
        self.config.leadership
    }

    /// Returns the configured retention of finished jobs.
    #[must_use]
    pub const fn current_retention(&self) -> &Retention {
        &self.config.retention
    }

    /// Returns the configured shortest and longest delay between polls.
    #[must_use]
    pub const fn current_poll_interval(&self) -> (Duration, Duration) {
        (self.config.poll_min, self.config.poll_max)
    }
}

/// Returns a problem if the node polls no queue.
pub(super) fn no_queue(queues: &Selection) -> Option<SettingProblem> {
    let none = *queues == Selection::Only(Vec::new());
    none.then(|| {
        SettingProblem::new(
            &["queue"],
            "the list of queues is empty; name at least one \
             queue",
        )
    })
}

/// Returns a problem if the node has an idle interval, but never leads the maintenance role. Only
/// the leader notices when a delayed job becomes due. With an idle interval, wakeups do not reach
/// other processes, so the leader could not wake this node, and the job would start late.
pub(super) fn idle_without_leading(
    config: &Config,
    taking: &RoleSelection,
) -> Option<SettingProblem> {
    let leads = taking.leads.iter().any(|role| *role == MAINTENANCE);
    let text = format!(
        "a node with an idle_interval must be able to lead in {MAINTENANCE}; otherwise delayed \
         jobs and retries would be up to that interval late"
    );
    let problem = SettingProblem::new(&["idle_interval", "role", "promotable"], text);
    (config.idle_interval.is_some() && !leads).then_some(problem)
}

/// Selects the roles of the node, and adds their problems to `problems`. Returns no role if the
/// selection itself is invalid.
pub(super) fn taking(
    leads: &[Name],
    only: Option<&[Name]>,
    promotable: bool,
    active_in: Option<&Name>,
    problems: &mut Vec<SettingProblem>,
) -> RoleSelection {
    let taking = RoleSelection::new(leads, only, promotable).unwrap_or_else(|unknown| {
        problems.extend(unknown);
        RoleSelection::default()
    });
    for role in &taking.leads {
        if let Err(problem) = Election::lock_of(role) {
            let setting = match active_in {
                Some(gate) if gate == role => "active_passive",
                _ => "role",
            };
            problems.push(SettingProblem::new(&[setting], problem.to_string()));
        }
    }
    if let Some(role) = active_in
        && taking.works
        && !taking.leads.contains(role)
    {
        let text = format!(
            "the node claims only while it leads in {role}, but it is not allowed to lead \
             in that role"
        );
        let settings = ["active_passive", "role", "promotable"];
        problems.push(SettingProblem::new(&settings, text));
    }
    taking
}
