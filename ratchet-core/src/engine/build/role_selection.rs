//! Selects whether a node runs jobs, and in which elections it takes part.

use crate::engine::lead::roles::MAINTENANCE;
use crate::error::SettingProblem;
use crate::name::Name;

/// The role of a node that runs jobs.
pub(super) const WORKER: &str = "worker";

/// The roles of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoleSelection {
    /// Whether the node runs jobs.
    pub(super) works: bool,
    /// The roles in which the node may lead.
    pub(super) leads: Vec<Name>,
}

impl RoleSelection {
    /// Selects the roles of a node. `declared` are the roles of the application. `only` are the
    /// chosen roles; `None` chooses all roles.
    ///
    /// # Errors
    /// A role that is declared twice, or that was chosen and is not known.
    pub(super) fn new(
        declared: &[Name],
        only: Option<&[Name]>,
        promotable: bool,
    ) -> Result<Self, Vec<SettingProblem>> {
        let mut problems: Vec<SettingProblem> = Vec::new();
        let mut leads: Vec<Name> = Name::new("role", MAINTENANCE).into_iter().collect();
        for role in declared {
            if leads.contains(role) || *role == WORKER {
                problems.push(
                    format!("the role {role} is declared twice or is reserved for the engine")
                        .into(),
                );
            } else {
                leads.push(role.clone());
            }
        }
        if only.is_some_and(<[Name]>::is_empty) {
            problems.push(SettingProblem::new(
                &["role"],
                "the list of roles is empty; name at \
                 least one role",
            ));
        }
        for role in only.unwrap_or_default() {
            if !leads.contains(role) && *role != WORKER {
                let known: Vec<&str> = leads.iter().map(Name::as_str).collect();
                let known = known.join(", ");
                let text = format!(
                    "the role {role} is not known; this node has the roles \
                     {WORKER}, {known}"
                );
                problems.push(SettingProblem::new(&["role"], text));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        leads.retain(|role| promotable && only.is_none_or(|only| only.contains(role)));
        Ok(Self {
            works: only.is_none_or(|only| only.iter().any(|role| *role == WORKER)),
            leads,
        })
    }

    /// Returns the names of all roles, as the node publishes them.
    pub(super) fn names(&self) -> Vec<Name> {
        let worker = Name::new("role", WORKER).into_iter().filter(|_| self.works);
        worker.chain(self.leads.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<Name> {
        texts
            .iter()
            .map(|text| Name::new("role", text).unwrap())
            .collect()
    }

    #[test]
    fn a_node_takes_part_in_all_unless_it_chooses() {
        let declared = names(&["pricing"]);
        let all = RoleSelection::new(&declared, None, true).unwrap();
        assert_eq!(all.names(), names(&["worker", "maintenance", "pricing"]));
        let only = RoleSelection::new(&declared, Some(&names(&["pricing"])), true).unwrap();
        assert_eq!((only.works, only.leads), (false, names(&["pricing"])));
        let worker = RoleSelection::new(&declared, None, false).unwrap();
        assert_eq!(worker.names(), names(&["worker"]));
    }

    #[test]
    fn roles_that_are_unknown_or_there_twice_are_named() {
        let problems = RoleSelection::new(&names(&["a", "a", "worker"]), None, true).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        let problems = RoleSelection::new(&names(&["a"]), Some(&names(&["b"])), true).unwrap_err();
        assert_eq!(
            problems,
            [SettingProblem::new(
                &["role"],
                "the role b is not known; this node has the roles worker, maintenance, a"
            )]
        );
    }

    #[test]
    fn an_empty_choice_is_refused() {
        let nothing = RoleSelection::new(&[], Some(&[]), true).unwrap_err();
        assert_eq!(
            nothing[0].to_string(),
            "the list of roles is empty; name at least one role"
        );
    }
}
