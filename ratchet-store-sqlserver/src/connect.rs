//! Opens connections, with the session settings that the statements need.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Result, connect_within};
use tiberius::Config;
use tokio::net::{TcpStream, lookup_host};
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;

use crate::config;
use crate::error::{Classified, classify};
use crate::session::Session;

/// A connection of the driver over TCP. [`Builder::connect_driver`](crate::Builder::connect_driver)
/// returns one.
pub type DriverConnection = tiberius::Client<Compat<TcpStream>>;

pub(crate) type Client = DriverConnection;

/// Opens connections to the server.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    /// Whether to try all addresses of the host at the same time.
    in_parallel: bool,
    session: Arc<Session>,
    patience: Duration,
}

/// Maximum number of times that the server may redirect a new connection to another address.
const REDIRECTIONS: usize = 3;

impl Connector {
    pub(crate) fn new(config: &config::Config, session: Session) -> Self {
        Self {
            config: config.driver.clone(),
            in_parallel: config.in_parallel,
            session: Arc::new(session),
            patience: config.settings.acquire_timeout,
        }
    }

    /// Opens a connection and applies the session settings. Fails with `Unavailable` after
    /// `patience`.
    pub(crate) async fn open(&self) -> Result<Client> {
        // Boxed, because the futures of a handshake are large.
        let connecting = Box::pin(async {
            let mut client = Box::pin(self.log_in()).await?;
            let setup = client.simple_query(self.session.setup.as_str()).await;
            setup.classified()?.into_results().await.classified()?;
            Ok(client)
        });
        connect_within(self.patience, quietly(connecting)).await?
    }

    /// Returns the settings that each new session gets.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }

    /// Opens a TCP connection to an address of the form `host:port`.
    async fn reach(&self, address: String) -> io::Result<TcpStream> {
        if !self.in_parallel {
            return TcpStream::connect(address).await;
        }
        let addresses = lookup_host(address).await?;
        let tries = addresses.map(|address| Box::pin(TcpStream::connect(address)) as Try<_>);
        first_ok(tries.collect()).await
    }

    async fn log_in(&self) -> Result<Client> {
        let mut config = self.config.clone();
        for _ in 0..REDIRECTIONS {
            let stream = self.reach(config.get_addr()).await;
            let stream = stream.map_err(|error| unreachable(&error))?;
            stream
                .set_nodelay(true)
                .map_err(|error| unreachable(&error))?;
            let connecting = Client::connect(config.clone(), stream.compat_write());
            match Box::pin(connecting).await {
                Err(tiberius::error::Error::Routing { host, port }) => {
                    config.host(host);
                    config.port(port);
                }
                connected => return connected.map_err(refused),
            }
        }
        Err(Failure::new(
            StoreErrorKind::Misconfigured,
            "the server's redirects form a loop",
        ))
    }
}

/// Runs a future with the driver's log turned off. The driver would log every error of the server
/// with its values. This includes errors that the store expects, such as a duplicate key or a
/// locked row.
pub(crate) async fn quietly<T>(work: impl Future<Output = T>) -> T {
    work.with_subscriber(Dispatch::none()).await
}

/// Runs all tries at the same time. Returns the first success, or the last failure if no try
/// succeeds.
async fn first_ok<T>(mut tries: Vec<Try<T>>) -> io::Result<T> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    poll_fn(|context| {
        let mut place = 0;
        while let Some(one) = tries.get_mut(place) {
            match one.as_mut().poll(context) {
                Poll::Ready(Ok(done)) => return Poll::Ready(Ok(done)),
                Poll::Ready(Err(error)) => {
                    failure = error;
                    drop(tries.remove(place));
                }
                Poll::Pending => place += 1,
            }
        }
        if tries.is_empty() {
            let none = io::Error::from(failure.kind());
            return Poll::Ready(Err(std::mem::replace(&mut failure, none)));
        }
        Poll::Pending
    })
    .await
}

type Try<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// Converts an error that occurred before the login was complete. At that stage, a protocol error
/// usually concerns the negotiation of encryption. Invalid data means that the server does not
/// encrypt as requested.
fn refused(error: tiberius::error::Error) -> Failure {
    use tiberius::error::Error;
    let text = match error {
        Error::Protocol(text) => format!("the negotiation with the server failed: {text}"),
        Error::Io {
            kind: io::ErrorKind::InvalidData,
            message,
        } => format!("the server does not encrypt as requested: {message}"),
        Error::Tls(text) => {
            // The driver's text continues with the names of its own settings, which users of the
            // store cannot set.
            let what = text.split(" To connect anyway").next().unwrap_or_default();
            format!(
                "{what} To accept the authority that signed the certificate, set \
                 Builder::trust_authority (trust_authority in a URL, TrustServerCertificateCA in a \
                 connection string); to accept the name in it, set host_in_certificate \
                 (HostNameInCertificate)"
            )
        }
        other => return classify(&other),
    };
    Failure::new(StoreErrorKind::Misconfigured, text)
}

fn unreachable(error: &io::Error) -> Failure {
    Failure::lost(format!("the connection failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(done: io::Result<u8>) -> Try<u8> {
        Box::pin(std::future::ready(done))
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_keeps_no_other_from_it() {
        let refused = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        let silent: Try<u8> = Box::pin(std::future::pending());
        let first = first_ok(vec![silent, ready(refused()), ready(Ok(3))]).await;
        assert_eq!(first.unwrap(), 3);
        let none = first_ok(vec![ready(refused()), ready(refused())]).await;
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let nowhere: io::Result<u8> = first_ok(Vec::new()).await;
        assert_eq!(nowhere.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
