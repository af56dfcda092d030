//! The node as a member of the cluster: its identity, and how far it and other nodes can trust that
//! it is alive.

pub(super) mod beacons;
pub(super) mod clock_watch;
pub(super) mod heartbeat_interval;
pub(super) mod identity;
pub(super) mod liveness;
