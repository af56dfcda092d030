pub(super) mod partition;
pub(super) mod ready;
pub(super) mod run_pool;
pub(super) mod throttle;
