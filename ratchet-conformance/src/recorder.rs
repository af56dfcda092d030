//! Writes the result of each case.

use std::fs;
use std::path::{Path, PathBuf};

use crate::report::{CaseResult, default_dir};

/// Writes the results of one store to files.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(PathBuf);

impl Recorder {
    pub(crate) fn new(store: &str) -> Self {
        Self::in_dir(&default_dir(), store)
    }

    pub(crate) fn in_dir(dir: &Path, store: &str) -> Self {
        Self(dir.join(store))
    }

    /// Deletes the result files of earlier runs.
    pub(crate) fn clear(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Writes the result of a case to a file. If the write fails, the method only prints the error,
    /// so that the case can still pass.
    pub(crate) fn record(&self, result: &CaseResult) {
        let file = self
            .0
            .join(format!("{}.json", result.case.replace("::", ".")));
        // Writes another file first, and then renames it. So readers never see an incomplete file,
        // even if this process is killed.
        let whole = file.with_extension("new");
        let written = fs::create_dir_all(&self.0)
            .and_then(|()| Ok(serde_json::to_vec_pretty(result)?))
            .and_then(|json| fs::write(&whole, json))
            .and_then(|()| fs::rename(&whole, &file));
        if let Err(error) = written {
            eprintln!("cannot write the report in {}: {error}", self.0.display());
        }
    }
}
