//! Claims as many jobs as there is room for, and hands back claims that wait too long.

pub(super) mod commit_watch;
pub(super) mod poller;
pub(super) mod prefetch;
