//! The pools of a node: which jobs each pool takes, and its claims during a run.

pub(super) mod counters;
pub(super) mod partition;
pub(super) mod ready;
pub(super) mod run_pool;
pub(super) mod throttle;
