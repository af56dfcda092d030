//! Claims jobs: as many as there is room for, and hands back those that wait too long.

pub(super) mod poller;
pub(super) mod prefetch;
