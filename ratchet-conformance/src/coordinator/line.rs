use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Outage;

/// A TCP proxy to a server that can be cut: the fixture of a coordinator connects to its
/// [`address`](Self::address) instead of the server's.
///
/// While it is cut, connections are closed, and new ones are closed as soon as they are made.
///
/// ```no_run
/// # async fn line() -> std::io::Result<()> {
/// use ratchet_conformance::{Line, Outage};
///
/// let line = Line::to("127.0.0.1:6379").await?;
/// let url = format!("redis://{}/", line.address());
/// line.cut().await;
/// # let _ = url; Ok(()) }
/// ```
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
}

impl Line {
    /// Opens a proxy to the server at `server`, a host with a port. It lasts until it is dropped.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn to(server: impl Into<String>) -> io::Result<Self> {
        let server = server.into();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (is_cut, state) = watch::channel(false);
        tokio::spawn(serve(listener, server, state));
        Ok(Self { address, is_cut })
    }

    /// Returns the address to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

#[async_trait]
impl Outage for Line {
    async fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    async fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn serve(listener: TcpListener, server: String, mut state: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            client = listener.accept() => {
                if let Ok((client, _)) = client {
                    tokio::spawn(forward(client, server.clone(), state.clone()));
                }
            }
            changed = state.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

async fn forward(mut client: TcpStream, server: String, mut state: watch::Receiver<bool>) {
    if *state.borrow_and_update() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    // A connection that was cut stays closed, even if the proxy is mended.
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = state.changed() => {}
    }
}
