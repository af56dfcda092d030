//! overview.
