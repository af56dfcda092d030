//! A TCP forwarder that can move to another server, or drop its connections silently.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to the server at a port of the loopback interface.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    way: watch::Sender<Way>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    port: u16,
    /// The number of calls of [`Endpoint::forget`].
    forgotten: u32,
}

impl Endpoint {
    pub(crate) async fn new(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let way = watch::Sender::new(Way { port, forgotten: 0 });
        let following = way.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, following.clone()));
            }
        });
        Self { address, way }
    }

    /// Forwards to another server from now on. Closes the connections to the previous one.
    pub(crate) fn move_to(&self, port: u16) {
        self.way.send_modify(|way| way.port = port);
    }

    /// Stops forwarding on the open connections. The client's side stays open, so the client
    /// notices nothing. The server's side is closed, so that the server keeps no transaction open.
    /// New connections work.
    pub(crate) fn forget(&self) {
        self.way.send_modify(|way| way.forgotten += 1);
    }
}

async fn forward(mut client: TcpStream, mut following: watch::Receiver<Way>) {
    let way = *following.borrow();
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", way.port)).await else {
        return;
    };
    let now = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        now = following.wait_for(|now| *now != way) => now.map(|now| *now),
    };
    if now.is_ok_and(|now| now.forgotten != way.forgotten) {
        drop(server);
        // Keeps the client's side open until the endpoint is dropped.
        let _ = following.wait_for(|_| false).await;
    }
}
