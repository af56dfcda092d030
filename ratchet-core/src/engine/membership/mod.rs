//! The node as a member of the cluster: who it is, and how far it and others can trust that it
//! lives.

pub(super) mod clock_watch;
pub(super) mod heartbeat_interval;
pub(super) mod identity;
pub(super) mod liveness;
