//! Leadership: the elections of the node's roles, and the work that only their leaders do.

pub(super) mod daemon;
pub(super) mod gate;
pub(super) mod leader;
pub(super) mod roles;
