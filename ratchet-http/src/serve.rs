use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use ratchet_core::time;
use tokio::net::{TcpListener, TcpStream};

use crate::api::Api;
use crate::client::ClientAddr;
use crate::connections::{Connections, Open};
use crate::guard::Hosts;
use crate::limits::Limits;
use crate::patient::Patient;
use crate::routes;

/// How long connections that are open when it ends may take to finish.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The pause after the listener could not accept and no connection could be closed.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it is logged that the listener cannot accept.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// Serves an API alone, over HTTP/1.1, until `shutdown` is ready; then it closes the API, lets open
/// requests finish for up to 5 s, and returns.
///
/// Clients are bounded: heads of requests, bodies and answers each have a timeout, and connections
/// are counted ([`Limits`](crate::Limits)). When there are too many, the connection that has been
/// without a request for longest is closed, and no client waits. Without an authorizer it listens
/// on loopback only, unless [`allow_remote`](crate::ApiBuilder::allow_remote) was called. On
/// loopback it answers only requests whose `Host` is this machine or one of
/// [`hosts`](crate::ApiBuilder::hosts), the probes aside, with an authorizer too: it may let
/// everybody read.
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
    let local = address.ip().to_canonical().is_loopback();
    if !(local || api.has_authorizer() || api.allows_remote()) {
        return Err(ServeError::Exposed { address });
    }
    let alone = local && !api.allows_remote();
    let hosts = if alone && api.hosts().are_open() {
        Hosts::loopback()
    } else {
        api.hosts().clone()
    };
    let router = routes::router(&api, hosts);
    let limits = api.limits();
    let connections = Connections::new(limits.connections, limits.connections_per_peer);
    let graceful = GracefulShutdown::new();
    let mut complained_at = None;
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let key = ClientAddr(peer.ip()).key();
                let open = connections.open(key, !api.is_proxy(peer.ip()));
                tokio::spawn(connection(
                    stream,
                    peer,
                    open,
                    router.clone(),
                    &api,
                    &graceful,
                ));
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // Mostly the process has no more file descriptors.
                let now = time::monotonic();
                if complained_at.is_none_or(|at| now >= at + COMPLAINTS) {
                    tracing::warn!(%error, "a connection could not be accepted");
                    complained_at = Some(now);
                }
                let made_room = tokio::time::timeout(PAUSE, connections.make_room()).await;
                if made_room == Ok(false) {
                    tokio::time::sleep(PAUSE).await;
                }
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

/// Whether the failure to accept concerns a single client, which has gone.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

/// Serves one connection until it ends or must make room.
fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    open: Open,
    router: Router,
    api: &Api,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps Nagle's algorithm");
    }
    let limits = api.limits();
    let io = TokioIo::new(Patient::new(stream, limits.write_timeout));
    let (marker, api, head_bytes) = (open.marker(), api.clone(), limits.head_bytes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let busy = marker.busy();
        let client = ClientAddr::behind(peer.ip(), request.headers(), api.proxies());
        request.extensions_mut().insert(client);
        let answer = match length(&request) > head_bytes {
            true => None,
            false => Some(TowerToHyperService::new(router.clone()).call(request)),
        };
        async move {
            let response = match answer {
                Some(answer) => answer.await?,
                None => too_long(),
            };
            // The connection is busy until its buffer holds the last frame or the client has gone.
            let keep = move |frame| {
                let _busy = &busy;
                frame
            };
            Ok::<_, Infallible>(response.map(|body| body.map_frame(keep)))
        }
    });
    let connection = graceful.watch(protocol(limits).serve_connection(io, service));
    async move {
        let closed = open.closed();
        // The socket is closed before its place is free.
        async move {
            tokio::select! {
                served = connection => {
                    if let Err(error) = served {
                        tracing::debug!(%error, "a connection broke off");
                    }
                }
                () = closed => tracing::debug!(%peer, "closed an idle connection to make room"),
            }
        }
        .await;
        drop(open);
    }
}

/// Returns the protocol of a connection, with the bounds of what one client may send before its
/// request is looked at.
fn protocol(limits: &Limits) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.head_bytes);
    protocol
}

/// The bytes of a head. The connection reads no more than twice the limit of them, and refuses a
/// longer head by itself.
fn length(request: &Request<Incoming>) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let target = request.uri().path_and_query();
    target.map_or(0, |target| target.as_str().len()) + fields.sum::<usize>()
}

fn too_long() -> Response {
    let close = [(header::CONNECTION, HeaderValue::from_static("close"))];
    (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, close).into_response()
}

/// Why an API was not served, or is no more.
///
/// ```
/// # use ratchet_core::BoxError;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # use std::sync::Arc;
/// use ratchet_core::{MemoryStore, Ratchet};
/// use ratchet_http::{Api, ServeError};
///
/// let api = Api::builder(Ratchet::client(Arc::new(MemoryStore::new()))).build()?;
/// let everywhere = tokio::net::TcpListener::bind("0.0.0.0:0").await?;
/// let served = ratchet_http::serve(everywhere, api, async {}).await;
/// assert!(matches!(served, Err(ServeError::Exposed { .. })));
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Others could read the jobs, which was not allowed explicitly.
    #[error(
        "{address} is not on loopback, and the API has no authorizer; give it one or call allow_remote"
    )]
    Exposed {
        /// The address of the listener.
        address: SocketAddr,
    },
    /// The listener does not say where it listens.
    #[error("the listener failed: {0}")]
    Listener(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_holds_no_more_of_a_head_than_twice_the_limit() {
        /// The size of the pipe between the client and the connection, in bytes.
        const PIPE: usize = 1_024;
        let limits = Limits::default();
        let (mut client, server) = tokio::io::duplex(PIPE);
        let service = service_fn(async |_: Request<Incoming>| Ok::<_, Infallible>(too_long()));
        let served = protocol(&limits).serve_connection(TokioIo::new(server), service);
        let sends = async {
            client.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
            let mut sent = 0;
            while client.write_all(&[b'x'; PIPE]).await.is_ok() {
                sent += PIPE;
            }
            sent
        };
        let (_, sent) = tokio::join!(served, sends);
        assert!(sent <= 2 * limits.head_bytes + 2 * PIPE, "{sent}");
    }
}
