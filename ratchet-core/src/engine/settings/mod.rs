pub(super) mod config;
pub(super) mod pool;
pub(super) mod retention;
