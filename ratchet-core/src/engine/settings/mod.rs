//! What a program sets of a node.

pub(super) mod config;
pub(super) mod pool;
pub(super) mod retention;
