//! A connection to the database that can be cut.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to a server. When the proxy is cut, it closes the server's side of every
/// connection. The client's side stays open and silent, as when a cable is unplugged. A new
/// connection reaches no server while the proxy is cut.
pub(crate) struct Proxy {
    pub(crate) url: String,
    cut: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn start(server: &str) -> Self {
        let (scheme, rest) = server.split_once("://").unwrap();
        let (authority, database) = rest.split_once('/').unwrap();
        let (user, host) = authority.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        let host = host.to_owned();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, host.clone(), is_cut.clone()));
            }
        });
        Self {
            url: format!("{scheme}://{user}@{here}/{database}"),
            cut,
        }
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn forward(mut client: TcpStream, host: String, mut is_cut: watch::Receiver<bool>) {
    let cut = *is_cut.borrow();
    if !cut {
        let Ok(mut server) = TcpStream::connect(host).await else {
            return;
        };
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut server) => return,
            _ = is_cut.wait_for(|cut| *cut) => {}
        }
    }
    // The client's connection stays open and silent until the proxy is restored, and is closed
    // then. Data that the client sends before then is lost.
    let _ = is_cut.wait_for(|cut| !*cut).await;
}
