//! Serves Ratchet over HTTP: probes, the cluster, jobs and actions on them, metrics, live updates
//! and a dashboard.
//!
//! [`Api::builder`] builds an API from a [`Client`](ratchet_core::Client). An application can nest
//! its [`router`](Api::router) at any path; [`serve`] runs the API as a server of its own. By
//! default the API only reads, shows no payloads, and is served on loopback only. With an
//! [`Authorizer`], the API can also accept writes, show payloads, and be served on other addresses.
//!
//! ```
//! # use ratchet_core::{Job, JobContext, JobResult};
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # struct Mail;
//! # impl Job for Mail {
//! #     const KIND: &'static str = "mail";
//! #     type Output = ();
//! #     async fn run(self, _: JobContext) -> JobResult<()> {
//! #         Ok(())
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use ratchet_core::{MemoryStore, Ratchet};
//! use ratchet_http::Api;
//!
//! let store = Arc::new(MemoryStore::new());
//! let node = Ratchet::builder(store).register::<Mail>().build()?;
//! let api = Api::builder(node.client().clone()).node(&node).build()?;
//! let app: axum::Router = axum::Router::new().nest_service("/ratchet", api.router());
//! # drop(app);
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod auth;
mod client;
mod connections;
#[cfg(feature = "dashboard")]
mod dashboard;
mod extract;
mod guard;
mod limits;
mod patient;
mod problem;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod reads;
mod routes;
mod sampler;
mod serve;
mod token;
pub mod view;

pub use api::{Api, ApiBuilder, BuildError, Payloads};
pub use auth::{Access, Action, Authorizer, Denied, same_secret};
pub use client::ClientAddr;
pub use http::request::Parts;
pub use limits::Limits;
pub use problem::{Code, Problem};
pub use serve::{ServeError, serve};
pub use token::Token;
