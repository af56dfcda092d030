use crate::error::SettingProblem;

/// Why a node was not built: everything that is wrong with its settings.
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
