//! Making connections whose sessions are as the statements need them.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::StoreErrorKind;
use tiberius::Config;
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

use crate::error::{Failure, Result};
use crate::session::Session;

/// A connection of the driver's, over TCP.
pub type DriverConnection = tiberius::Client<Compat<TcpStream>>;

pub(crate) type Client = DriverConnection;

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    session: Arc<Session>,
    patience: Duration,
}

/// How often a server may send its callers elsewhere.
const REDIRECTIONS: usize = 3;

impl Connector {
    pub(crate) fn new(config: Config, session: Session, patience: Duration) -> Self {
        Self {
            config,
            session: Arc::new(session),
            patience,
        }
    }

    /// Opens a connection within the time.
    pub(crate) async fn connect(&self) -> Result<Client> {
        // In boxes, since the futures of a handshake are large.
        let connecting = Box::pin(async {
            let mut client = Box::pin(self.log_in()).await?;
            let setup = client.simple_query(self.session.setup.as_str()).await?;
            setup.into_results().await?;
            Ok(client)
        });
        match tokio::time::timeout(self.patience, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(Failure::new(
                StoreErrorKind::Unavailable,
                format!("no connection within {:?}", self.patience),
            )),
        }
    }

    /// What the sessions are like.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }

    async fn log_in(&self) -> Result<Client> {
        let mut config = self.config.clone();
        for _ in 0..REDIRECTIONS {
            let stream = TcpStream::connect(config.get_addr())
                .await
                .map_err(|error| unreachable(&error))?;
            stream
                .set_nodelay(true)
                .map_err(|error| unreachable(&error))?;
            let connecting = Client::connect(config.clone(), stream.compat_write());
            match Box::pin(connecting).await {
                Err(tiberius::error::Error::Routing { host, port }) => {
                    config.host(host);
                    config.port(port);
                }
                // At this point it is about what to encrypt, and whether the server can.
                Err(tiberius::error::Error::Protocol(text)) => {
                    return Err(Failure::new(
                        StoreErrorKind::Misconfigured,
                        format!("the server does not go along: {text}"),
                    ));
                }
                connected => return Ok(connected?),
            }
        }
        Err(Failure::new(
            StoreErrorKind::Misconfigured,
            "the server sends its callers round in a circle",
        ))
    }
}

fn unreachable(error: &std::io::Error) -> Failure {
    Failure::lost(format!("the connection failed: {error}"))
}
