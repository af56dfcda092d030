//! The items that authors of stores and coordinators implement and use.
//!
//! A store implements [`Store`](store::Store) and the traits it bundles; [`store`] documents the
//! contract clause by clause, and [`memory`] is its executable specification. The requests and
//! answers of the traits are in [`model`]. The pure rules that every store applies are in
//! [`claiming`], [`links`], [`permit`], [`priority`], [`rate`], [`route`] and [`state`]. A
//! transport of wakeups implements [`ClusterCoordinator`](cluster::ClusterCoordinator), and reports
//! its outages with [`coordinator_outage`](metrics::coordinator_outage). The crate
//! `ratchet-conformance` tests stores and coordinators.
//!
//! ```
//! use ratchet::store_api::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
//!
//! /// Carries no wakeups: nodes find each other's jobs by polling.
//! #[derive(Debug)]
//! struct Silent;
//!
//! #[async_trait::async_trait]
//! impl ClusterCoordinator for Silent {
//!     async fn notify(&self, _: Wakeup) {}
//!
//!     fn subscribe(&self) -> WakeupStream {
//!         WakeupStream::never()
//!     }
//!
//!     fn reaches_all_nodes(&self) -> bool {
//!         false
//!     }
//! }
//! ```

#[doc(no_inline)]
pub use ratchet_core::{
    claiming, cluster, due, error, id, json, limits, links, memory, metrics, model, name, permit,
    priority, rate, route, schedule, state, store, stranded, throughput, time, trace,
};
