//! Builds nodes: the setters of [`NodeBuilder`] and the checks of the settings.

mod assemble;
mod breakers;
mod builder;
mod check;
mod environment;
mod error;
mod hooks_and_layers;
mod job_types;
mod jobs;
mod permits;
mod ratchet;
mod rate_limits;
mod recurring;
mod role_selection;
mod roles;
mod upkeep;

pub use builder::NodeBuilder;
pub use error::BuildError;
pub use job_types::JobTypes;
pub use ratchet::Ratchet;
