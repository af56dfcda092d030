use crate::error::SettingProblem;

/// The error of building a node, with every problem of its settings.
///
/// ```
/// use ratchet::{MemoryStore, Ratchet};
///
/// let store = std::sync::Arc::new(MemoryStore::new());
/// let error = Ratchet::builder(store).concurrency(0).build().unwrap_err();
/// assert!(error.to_string().contains("concurrency is 0"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node cannot be built: {}", problems.join("; "))]
pub struct BuildError {
    problems: Vec<String>,
    refused: Vec<SettingProblem>,
}

impl BuildError {
    pub(super) fn new(refused: Vec<SettingProblem>) -> Self {
        Self {
            problems: refused.iter().map(SettingProblem::to_string).collect(),
            refused,
        }
    }

    /// Returns the problems, each as a text that names the values.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the problems, each with the names of the settings that caused it.
    #[must_use]
    pub fn refused(&self) -> &[SettingProblem] {
        &self.refused
    }
}
