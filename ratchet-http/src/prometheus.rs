//! A recorder of metrics for `/metrics`.

pub use metrics_exporter_prometheus::PrometheusHandle;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use ratchet_core::metrics::{SECONDS, SIZES};

/// Installs a recorder that keeps the metrics of this process, of Ratchet and of everything else
/// that uses the `metrics` facade, and gives what reads it, for
/// [`ApiBuilder::prometheus`](crate::ApiBuilder::prometheus). To be called before a node runs.
///
/// The API that is given the handle also runs the upkeep of the recorder, so memory stays bounded
/// where no program reads the metrics.
///
/// A program that has a recorder already, or wants other buckets, gives the handle of its own,
/// built with [`recorder`].
///
/// ```
/// # use ratchet_core::BoxError;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # use std::sync::Arc;
/// use ratchet_core::{MemoryStore, Ratchet};
/// use ratchet_http::{Api, prometheus};
///
/// let handle = prometheus::install()?;
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let api = Api::builder(client).prometheus(handle.clone()).build()?;
/// println!("{}", handle.render()); // what GET /metrics answers
/// # drop(api);
/// # Ok(()) }
/// ```
///
/// # Errors
/// The process has a recorder already.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    recorder()?.install_recorder()
}

/// The beginnings of such a recorder, with buckets that fit the metrics of Ratchet.
///
/// # Errors
/// None, as long as there are buckets.
pub fn recorder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_jobs".to_owned()), SIZES)
}
