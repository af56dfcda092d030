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

/// Maximum time that the shutdown waits for open connections to finish.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted. The pause ends early if another connection
/// has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// The minimum time between two log lines about connections that could not be accepted.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// Serves an API over HTTP/1.1 until `shutdown` is ready.
///
/// On shutdown the server closes the API, lets open requests finish for up to 5 s, and returns.
///
/// Request heads, request bodies and responses each have a timeout, and the number of connections
/// is limited (see [`Limits`](crate::Limits)). If there are too many connections, the server closes
/// the one that has been idle longest, so a new client does not wait.
///
/// If the API has no authorizer, the listener must be on loopback, unless
/// [`allow_remote`](crate::ApiBuilder::allow_remote) was called.
///
/// If [`hosts`](crate::ApiBuilder::hosts) is set, the `Host` of a request must be one of these
/// hosts or a loopback name. If it is not set, a server on loopback accepts loopback names only,
/// unless `allow_remote` was called. These rules also apply if the API has an authorizer, because
/// the authorizer may let every client read. The probes accept any host.
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
/// - [`ServeError::Exposed`] if the listener is not on loopback, the API has no authorizer, and
///   `allow_remote` was not called.
/// - [`ServeError::Listener`] if the listener has no local address.
///
/// # Cancel safety
/// If the future is dropped, the server accepts no more connections. Open connections continue
/// until they end.
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
                // The usual cause is that the process has no more file descriptors.
                let now = time::monotonic();
                if complained_at.is_none_or(|at| now >= at + COMPLAINTS) {
                    tracing::warn!(%error, "could not accept a connection");
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
        tracing::warn!("some connections did not end within the shutdown timeout");
    }
    Ok(())
}

/// Returns whether a connection could not be accepted only because its client has disconnected.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

/// Serves one connection until it ends, or until it is closed to make room for another connection.
fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    open: Open,
    router: Router,
    api: &Api,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY on a connection");
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
            // Keep the connection marked as busy until its write buffer holds the last frame of the
            // response, or until it is closed.
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
        // The inner future drops the socket before `open` removes the connection from the table.
        async move {
            tokio::select! {
                served = connection => {
                    if let Err(error) = served {
                        tracing::debug!(%error, "a connection failed");
                    }
                }
                () = closed => tracing::debug!(%peer, "closed a connection to make room for a new \
                    one"),
            }
        }
        .await;
        drop(open);
    }
}

/// Returns the HTTP/1.1 settings of a connection: the timeout and the size limit of request heads.
fn protocol(limits: &Limits) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.head_bytes);
    protocol
}

/// Returns the approximate size of a request head in bytes.
///
/// The HTTP library itself refuses a head of more than twice the limit.
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

/// The error of [`serve`].
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
    /// The listener is not on loopback, and the API has neither an authorizer nor
    /// [`allow_remote`](crate::ApiBuilder::allow_remote).
    #[error(
        "{address} is not on loopback, and the API has no authorizer; set one or call allow_remote"
    )]
    Exposed {
        /// The address of the listener.
        address: SocketAddr,
    },
    /// The local address of the listener could not be read.
    #[error("the listener failed: {0}")]
    Listener(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_holds_no_more_of_a_head_than_twice_the_limit() {
        /// The buffer size of the pipe between the client and the connection, in bytes.
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
