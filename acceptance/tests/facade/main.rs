//! Tests of the facade and of the workspace as a whole that need no server.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod columns;
mod configured;
mod races;

use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap().to_owned()
}
