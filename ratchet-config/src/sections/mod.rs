//! The sections and their settings.

mod cluster;
mod http;
mod node;
pub(crate) mod permits;
mod poll;
mod store;
mod worker;

pub use cluster::{ClusterConfig, RetentionConfig};
pub use http::{HttpConfig, Payloads};
pub use node::NodeConfig;
pub use poll::PollConfig;
pub use store::*;
pub use worker::{PoolConfig, WorkerConfig};
