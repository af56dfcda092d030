use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Outage;

/// A TCP proxy that simulates network failures between a client and a server. A test connects to
/// the proxy's [`address`](Self::address) instead of the server's address.
///
/// As an [`Outage`], the proxy can [cut](Outage::cut) or [freeze](Outage::freeze) all current and
/// new connections. It can also [silence](Self::silence) only its current connections, or [lose one
/// answer](Self::lose_answer) of the server.
///
/// ```no_run
/// # async fn cut() -> std::io::Result<()> {
/// use ratchet_conformance::{Outage, Proxy};
///
/// let proxy = Proxy::to("127.0.0.1:6379").await?;
/// let url = format!("redis://{}/", proxy.address());
/// proxy.cut().await;
/// # let _ = url; Ok(()) }
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: watch::Sender<Network>,
    faults: Arc<Faults>,
}

/// The state of the simulated network, which applies to all connections.
#[derive(Clone, Copy, Debug, Default)]
struct Network {
    is_cut: bool,
    /// Whether new connections wait for the network to be mended.
    is_frozen: bool,
    cuts: u64,
    /// Number of calls to [`Proxy::silence`]. A call affects only the connections that exist at
    /// that time.
    silences: u64,
}

/// Faults that a test has requested, and the number of open connections.
#[derive(Debug, Default)]
struct Faults {
    /// Bytes that identify the request whose answer the proxy loses. `None` if there is no such
    /// request.
    lost: Mutex<Option<Vec<u8>>>,
    /// Byte strings that a connection must carry before the proxy silences that connection.
    swallowed: Mutex<Option<Carried>>,
    rewritten: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    open: AtomicUsize,
}

type Carried = &'static [&'static [u8]];

impl Proxy {
    /// Starts a proxy for the server at the address `server`, a host with a port. The proxy listens
    /// on a free local port until the [`Proxy`] is dropped.
    ///
    /// # Errors
    /// If the proxy cannot listen on a local port.
    pub async fn to(server: impl Into<String>) -> io::Result<Self> {
        let server = server.into();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (network, state) = watch::channel(Network::default());
        let faults = Arc::<Faults>::default();
        tokio::spawn(serve(listener, server, state, Arc::clone(&faults)));
        Ok(Self {
            address,
            network,
            faults,
        })
    }

    /// Returns the address on which the proxy listens. Clients connect to this address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Silences all current connections: they stay open, but carry no more data. This simulates a
    /// router that has lost its connection table. New connections work normally.
    pub fn silence(&self) {
        self.network.send_modify(|network| network.silences += 1);
    }

    /// Makes the proxy lose the server's answer to the next request that contains the bytes
    /// `request`. After the server has answered, the proxy closes the connection without forwarding
    /// the answer. The proxy finds the bytes only if they arrive in a single read.
    pub fn lose_answer(&self, request: impl Into<Vec<u8>>) {
        *lock(&self.faults.lost) = Some(request.into());
    }

    /// Returns `false` while the proxy waits for the request that was passed to
    /// [`lose_answer`](Self::lose_answer). Returns `true` after a client has sent that request, and
    /// before the first call of `lose_answer`.
    #[must_use]
    pub fn has_lost_answer(&self) -> bool {
        lock(&self.faults.lost).is_none()
    }

    /// Silences the next connection that carries all byte strings in `carried`, in this order.
    ///
    /// A byte string may come from the client or the server, and each must arrive in a separate
    /// read. The connection falls silent after the last byte string. If the client sends the last
    /// byte string, the server still receives it. If the server sends it, the client does not
    /// receive it.
    pub fn swallow(&self, carried: &'static [&'static [u8]]) {
        *lock(&self.faults.swallowed) = Some(carried);
    }

    /// Makes the proxy replace the bytes `sent` with `received` in all later requests. If one read
    /// of a request contains `sent` several times, only the first occurrence is replaced.
    ///
    /// # Panics
    /// If `sent` and `received` have different lengths.
    pub fn rewrite(&self, sent: &[u8], received: &[u8]) {
        assert_eq!(sent.len(), received.len(), "the lengths differ");
        *lock(&self.faults.rewritten) = Some((sent.to_vec(), received.to_vec()));
    }

    /// Returns the number of connections through the proxy that are still open, including silenced
    /// connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.faults.open.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Outage for Proxy {
    async fn cut(&self) {
        self.network.send_modify(|network| {
            network.is_cut = true;
            network.cuts += 1;
        });
    }

    async fn freeze(&self) {
        self.network.send_modify(|network| {
            network.silences += 1;
            network.is_frozen = true;
        });
    }

    async fn mend(&self) {
        self.network.send_modify(|network| {
            network.is_cut = false;
            network.is_frozen = false;
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(
    listener: TcpListener,
    server: String,
    mut network: watch::Receiver<Network>,
    faults: Arc<Faults>,
) {
    loop {
        tokio::select! {
            client = listener.accept() => {
                if let Ok((client, _)) = client {
                    let (server, network) = (server.clone(), network.clone());
                    let faults = Arc::clone(&faults);
                    tokio::spawn(connect(client, server, network, faults));
                }
            }
            changed = network.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

async fn connect(
    client: TcpStream,
    server: String,
    mut network: watch::Receiver<Network>,
    faults: Arc<Faults>,
) {
    let thawed = network.wait_for(|network| !network.is_frozen).await;
    let Ok(began) = thawed.map(|network| *network) else {
        return;
    };
    if began.is_cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    faults.open.fetch_add(1, Ordering::SeqCst);
    let connection = Connection {
        client,
        server,
        began,
        network,
        faults: Arc::clone(&faults),
        expected: None,
    };
    connection.run().await;
    faults.open.fetch_sub(1, Ordering::SeqCst);
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    began: Network,
    network: watch::Receiver<Network>,
    faults: Arc<Faults>,
    /// Byte strings that this connection must still carry before the proxy silences it. `None` if
    /// [`Proxy::swallow`] does not affect this connection.
    expected: Option<Carried>,
}

/// The way in which a connection ends. A silent connection stays open, but carries no more data.
enum End {
    Closed,
    Silent,
}

impl Connection {
    async fn run(mut self) {
        let mut network = self.network.clone();
        let began = self.began;
        let end = tokio::select! {
            // Polls the state of the network first, so that no data passes after a cut or a
            // silence.
            biased;
            changed = network.wait_for(|network| end_of(began, *network).is_some()) => {
                changed.ok().and_then(|network| end_of(began, *network)).unwrap_or(End::Closed)
            }
            end = self.forward() => end.unwrap_or(End::Closed),
        };
        if matches!(end, End::Silent) {
            // The connection stays open until the client closes it, or the proxy is cut or dropped.
            let mut sink = tokio::io::sink();
            tokio::select! {
                _ = tokio::io::copy(&mut self.client, &mut sink) => {}
                _ = network.wait_for(|network| network.cuts > began.cuts) => {}
            }
        }
    }

    /// Forwards data in both directions until one side closes the connection or a fault occurs.
    /// Returns how the connection ends.
    async fn forward(&mut self) -> io::Result<End> {
        let (mut requests, mut answers) = (vec![0; 8192], vec![0; 8192]);
        loop {
            tokio::select! {
                read = self.client.read(&mut requests) => {
                    let request = &mut requests[..read?];
                    if request.is_empty() {
                        return Ok(End::Closed);
                    }
                    // The client may have sent this request after a cut or a silence, and `run` may
                    // not have polled the new state of the network yet. So the state is checked
                    // again here.
                    if let Some(end) = end_of(self.began, *self.network.borrow()) {
                        return Ok(end);
                    }
                    self.rewrite(request);
                    self.server.write_all(request).await?;
                    if self.loses_answer(request) {
                        return self.server.read(&mut answers).await.map(|_| End::Closed);
                    }
                    if self.is_swallowed(request) {
                        return Ok(End::Silent);
                    }
                }
                read = self.server.read(&mut answers) => {
                    let answer = &answers[..read?];
                    if answer.is_empty() {
                        return Ok(End::Closed);
                    }
                    if self.is_swallowed(answer) {
                        return Ok(End::Silent);
                    }
                    self.client.write_all(answer).await?;
                }
            }
        }
    }

    fn rewrite(&self, request: &mut [u8]) {
        if let Some((sent, received)) = &*lock(&self.faults.rewritten)
            && let Some(place) = place_of(sent, request)
        {
            request[place..place + sent.len()].copy_from_slice(received);
        }
    }

    fn loses_answer(&self, request: &[u8]) -> bool {
        let is_in = |lost: &mut Vec<u8>| place_of(lost, request).is_some();
        lock(&self.faults.lost).take_if(is_in).is_some()
    }

    /// Returns whether the data `carried` contains the last byte string that the connection must
    /// carry before the proxy silences it.
    fn is_swallowed(&mut self, carried: &[u8]) -> bool {
        let contains = |part: &&[u8]| place_of(part, carried).is_some();
        if self.expected.is_none() {
            let mut swallowed = lock(&self.faults.swallowed);
            self.expected = swallowed.take_if(|parts| parts.first().is_some_and(contains));
        }
        if let Some([first, rest @ ..]) = self.expected
            && contains(first)
        {
            self.expected = Some(rest);
        }
        self.expected.is_some_and(<[_]>::is_empty)
    }
}

/// Returns how a connection ends because the proxy was cut or silenced after the connection began.
/// Returns `None` if neither happened. `began` is the state of the network when the connection
/// began, and `network` is the current state.
fn end_of(began: Network, network: Network) -> Option<End> {
    if network.cuts > began.cuts {
        Some(End::Closed)
    } else if network.silences > began.silences {
        Some(End::Silent)
    } else {
        None
    }
}

fn place_of(part: &[u8], whole: &[u8]) -> Option<usize> {
    whole.windows(part.len()).position(|bytes| bytes == part)
}
