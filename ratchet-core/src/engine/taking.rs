//! What a node takes part in: running jobs, and the elections of roles.

use std::env;
use std::fs;
use std::path::Path;

use super::leader::MAINTENANCE;
use crate::error::SettingProblem;
use crate::name::Name;

/// The role of a node that runs jobs.
pub(super) const WORKER: &str = "worker";

/// The variable with a node's capabilities.
const CAPABILITIES: &str = "RATCHET_NODE_CAPABILITIES";
/// The variable with a node's roles.
const ROLES: &str = "RATCHET_NODE_ROLES";
/// The variable with a node's label.
const LABEL: &str = "RATCHET_NODE_LABEL";

/// What a node takes part in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taking {
    /// Whether it runs jobs.
    pub(super) works: bool,
    /// The roles it may lead in.
    pub(super) leads: Vec<Name>,
}

impl Taking {
    /// What is left of all that a node could take part in: `declared` are the roles of the
    /// application, `only` the roles that were chosen, all unless there is a choice.
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
                problems.push(format!("the role {role} is there twice").into());
            } else {
                leads.push(role.clone());
            }
        }
        if only.is_some_and(<[Name]>::is_empty) {
            problems.push(SettingProblem::new(&["role"], "the list of roles is empty"));
        }
        for role in only.unwrap_or_default() {
            if !leads.contains(role) && *role != WORKER {
                let known: Vec<&str> = leads.iter().map(Name::as_str).collect();
                let known = known.join(", ");
                let text = format!("the role {role} is not known; this node has {WORKER}, {known}");
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

    /// All of it, for others to read.
    pub(super) fn names(&self) -> Vec<Name> {
        let worker = Name::new("role", WORKER).into_iter().filter(|_| self.works);
        worker.chain(self.leads.iter().cloned()).collect()
    }
}

/// Settings of a node from its environment.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    pub(super) label: Option<String>,
    pub(super) capabilities: Option<Vec<String>>,
    pub(super) roles: Option<Vec<String>>,
}

impl Surroundings {
    /// Reads the variables that are set.
    ///
    /// # Errors
    /// Each variable whose value is not Unicode.
    pub(super) fn read() -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut read = |name: &str| match env::var(name) {
            Ok(value) => Some(value),
            Err(env::VarError::NotPresent) => None,
            Err(env::VarError::NotUnicode(_)) => {
                problems.push(format!("{name} is not Unicode"));
                None
            }
        };
        let found = Self {
            label: read(LABEL),
            capabilities: read(CAPABILITIES).map(|text| items(&text)),
            roles: read(ROLES).map(|text| items(&text)),
        };
        if problems.is_empty() {
            Ok(found)
        } else {
            Err(problems)
        }
    }
}

/// The capabilities in a file: separated by commas or new lines; what follows a `#` is for people.
///
/// # Errors
/// Why the file cannot be read.
pub(super) fn capabilities_in(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| {
        format!(
            "the capabilities in {} cannot be read: {error}",
            path.display()
        )
    })?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    Ok(lines.flat_map(items).collect())
}

/// The items of a list with commas; empty ones do not count.
fn items(text: &str) -> Vec<String> {
    let items = text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    items.map(str::to_owned).collect()
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
        let all = Taking::new(&declared, None, true).unwrap();
        assert_eq!(all.names(), names(&["worker", "maintenance", "pricing"]));
        let only = Taking::new(&declared, Some(&names(&["pricing"])), true).unwrap();
        assert_eq!((only.works, only.leads), (false, names(&["pricing"])));
        let worker = Taking::new(&declared, None, false).unwrap();
        assert_eq!(worker.names(), names(&["worker"]));
    }

    #[test]
    fn roles_that_are_unknown_or_there_twice_are_named() {
        let problems = Taking::new(&names(&["a", "a", "worker"]), None, true).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        let problems = Taking::new(&names(&["a"]), Some(&names(&["b"])), true).unwrap_err();
        assert_eq!(
            problems,
            [SettingProblem::new(
                &["role"],
                "the role b is not known; this node has worker, maintenance, a"
            )]
        );
    }

    #[test]
    fn an_empty_choice_is_refused() {
        let nothing = Taking::new(&[], Some(&[]), true).unwrap_err();
        assert_eq!(nothing[0].to_string(), "the list of roles is empty");
    }

    #[test]
    fn lists_are_read_with_their_comments() {
        assert_eq!(items(" gpu, ,big disk,"), ["gpu", "big disk"]);
        let file = env::temp_dir().join(format!("capabilities-{}", std::process::id()));
        fs::write(&file, "gpu # the new one\n\nbig disk, ffmpeg\n").unwrap();
        let found = capabilities_in(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(found.unwrap(), ["gpu", "big disk", "ffmpeg"]);
        let missing = capabilities_in(Path::new("/no such file")).unwrap_err();
        assert!(missing.contains("/no such file"), "{missing}");
    }
}
