//! The Prometheus recorder whose metrics `/metrics` serves.

pub use metrics_exporter_prometheus::PrometheusHandle;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use ratchet_core::metrics::{SECONDS, SIZES};

/// Installs a global recorder of metrics and returns its handle, for
/// [`ApiBuilder::prometheus`](crate::ApiBuilder::prometheus).
///
/// Call this function before a node runs. The recorder keeps the metrics of this process, from
/// Ratchet and from all other code that uses the `metrics` facade.
///
/// An API with the handle also runs the upkeep of the recorder, so the recorder's memory stays
/// bounded even if no program reads the metrics.
///
/// A program that needs its own recorder, for example with other buckets, does not call this
/// function. It passes the handle of its own recorder to the API. [`recorder`] returns a builder
/// for such a recorder.
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
/// println!("{}", handle.render()); // The response of `GET /metrics`.
/// # drop(api);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Fails if the process has a recorder already.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    recorder()?.install_recorder()
}

/// Returns a builder of a recorder, with buckets that fit the metrics of Ratchet.
///
/// # Errors
/// Fails if a list of buckets is empty. This does not happen, because none of Ratchet's lists is
/// empty.
pub fn recorder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_jobs".to_owned()), SIZES)
}
