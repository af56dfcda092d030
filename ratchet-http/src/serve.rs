use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::api::Api;
use crate::guard::Hosts;
use crate::limits::Limits;
use crate::patient::Patient;
use crate::routes;

/// How long connections that are open when it ends may take to finish.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The pause after the listener could not accept: mostly the process has no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves an API alone, over HTTP/1.1, until `shutdown` is ready; then it closes the API, lets open
/// requests finish for up to 5 s, and returns.
///
/// Clients are bounded: heads of requests, bodies and answers each have a timeout, and connections
/// are counted ([`Limits`]). Without an authorizer it listens on loopback only, unless
/// [`allow_remote`](crate::ApiBuilder::allow_remote) was called. On loopback it answers only requests
/// whose `Host` is this machine or one of [`hosts`](crate::ApiBuilder::hosts), the probes aside, with
/// an authorizer too: it may let everybody read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// use ratchet_core::{MemoryStore, Ratchet};
/// use ratchet_http::Api;
///
/// let api = Api::builder(Ratchet::client(Arc::new(MemoryStore::new()))).build()?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let shutdown = async { /* wait for a signal */ };
/// ratchet_http::serve(listener, api, shutdown).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ServeError::Exposed`], [`ServeError::Listener`].
///
/// # Cancel safety
/// Dropping the future stops accepting; connections that are open go on until they end.
pub async fn serve<F>(listener: TcpListener, api: Api, shutdown: F) -> Result<(), ServeError>
where
    F: Future<Output = ()>,
{
    let address = listener.local_addr().map_err(ServeError::Listener)?;
    let protected = api.has_authorizer() || api.allows_remote();
    if !protected && !address.ip().is_loopback() {
        return Err(ServeError::Exposed { address });
    }
    let alone = address.ip().is_loopback() && !api.allows_remote();
    let hosts = if alone && api.hosts().are_open() {
        Hosts::loopback()
    } else {
        api.hosts().clone()
    };
    let router = routes::router(&api, hosts);
    let connections = Arc::new(Semaphore::new(api.limits().connections));
    let graceful = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let accept = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let serve = connection(stream, router.clone(), api.limits(), &graceful);
                tokio::spawn(async move {
                    serve.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    api.close();
    if tokio::time::timeout(LAST_WORDS, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("left connections behind that did not end");
    }
    Ok(())
}

/// Serves one connection until it ends.
fn connection(
    stream: TcpStream,
    router: Router,
    limits: &Limits,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps Nagle's algorithm");
    }
    let io = TokioIo::new(Patient::new(stream, limits.write_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .serve_connection(io, TowerToHyperService::new(router));
    let connection = graceful.watch(connection);
    async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection broke off");
        }
    }
}

/// Why an API was not served, or is no more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Others could read the jobs, and nobody said that they may.
    #[error(
        "{address} is not on loopback, and the API has no authorizer; give it one or call allow_remote"
    )]
    Exposed {
        /// Where the listener listens.
        address: SocketAddr,
    },
    /// The listener does not say where it listens.
    #[error("the listener failed: {0}")]
    Listener(#[source] io::Error),
}
