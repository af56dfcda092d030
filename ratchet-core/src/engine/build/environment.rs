//! Reads settings of a node from environment variables and files.

use std::env;
use std::fs;
use std::path::Path;

/// The variable for a node's capabilities.
const CAPABILITIES: &str = "RATCHET_NODE_CAPABILITIES";
/// The variable for a node's roles.
const ROLES: &str = "RATCHET_NODE_ROLES";
/// The variable for a node's label.
const LABEL: &str = "RATCHET_NODE_LABEL";

/// The settings of a node from its environment.
#[derive(Debug, Default)]
pub(super) struct NodeEnvironment {
    pub(super) label: Option<String>,
    pub(super) capabilities: Option<Vec<String>>,
    pub(super) roles: Option<Vec<String>>,
}

impl NodeEnvironment {
    /// Reads the variables that are set.
    ///
    /// # Errors
    /// One problem for each variable whose value is not Unicode.
    pub(super) fn read() -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut read = |name: &str| match env::var(name) {
            Ok(value) => Some(value),
            Err(env::VarError::NotPresent) => None,
            Err(env::VarError::NotUnicode(_)) => {
                problems.push(format!(
                    "the value of the environment variable {name} is not Unicode"
                ));
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

/// Returns the capabilities in a file, separated by commas or line breaks. A `#` begins a comment.
///
/// # Errors
/// A text with the path, if the file cannot be read.
pub(super) fn capabilities_in(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| {
        format!(
            "cannot read the file of capabilities, {}: {error}",
            path.display()
        )
    })?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    Ok(lines.flat_map(items).collect())
}

/// Returns the items of a comma-separated list, without the empty ones.
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
