//! The settings of a node that a program can change.

pub(super) mod config;
pub(super) mod pool;
pub(super) mod retention;
