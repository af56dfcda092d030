//! The clients of a store, and their replacement.
//!
//! To the server, a user that is dropped and created again is a different user. The server refuses
//! every command on connections of the old user, but neither the server nor the driver closes them.
//! So a store whose user was dropped creates new clients, and uses them once they can authenticate.

use std::sync::OnceLock;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use ratchet_core::{Result, time};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::client;
use crate::connection::{Side, Terms};
use crate::outages::Outages;

/// Maximum number of connections for heartbeats, locks and wakeups. Wakeups use one of them
/// permanently.
const LIVE_CONNECTIONS: u32 = 4;
/// Minimum time between two attempts to authenticate with new clients.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Settings from which the store creates its clients, if it is configured with a URL.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) options: ClientOptions,
    pub(crate) database: String,
    pub(crate) prefix: String,
    pub(crate) terms: Terms,
}

impl Source {
    pub(crate) fn pair(&self) -> Result<Pair> {
        let mut few = self.options.clone();
        few.max_pool_size = Some(LIVE_CONNECTIONS);
        let outages = Outages::of(&mut few);
        let side = |options| -> Result<Side> {
            let database = client(options)?.database(&self.database);
            Ok(Side::new(database, &self.prefix, &self.terms))
        };
        Ok(Pair {
            main: side(self.options.clone())?,
            live: side(few)?,
            outages,
            next: OnceLock::new(),
        })
    }
}

/// The store's collections, accessed through two separate clients of the driver.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Collections for calls about jobs.
    pub(crate) main: Side,
    /// Collections for heartbeats and locks.
    pub(crate) live: Side,
    /// Reports when the client of `live` loses its connections.
    pub(crate) outages: Outages,
    /// Pair that replaces this pair, once the database user of this pair was dropped and created
    /// again.
    next: OnceLock<Box<Self>>,
}

impl Pair {
    /// Creates a pair that uses the application's client for all calls.
    pub(crate) fn of_application(side: Side) -> Self {
        Self {
            main: side.clone(),
            live: side,
            outages: Outages::untold(),
            next: OnceLock::new(),
        }
    }

    pub(crate) async fn shut_down(&self) {
        self.live.client.clone().shutdown().immediate(true).await;
        self.main.client.clone().shutdown().immediate(true).await;
    }

    async fn is_let_in(&self) -> bool {
        let find = |side: &Side| {
            let side = side.clone();
            async move { side.plain().find_one(&side.meta, doc! {}).await.is_ok() }
        };
        find(&self.main).await && find(&self.live).await
    }
}

/// The clients of a store, and the settings to replace them.
#[derive(Debug)]
pub(crate) struct Clients {
    first: Pair,
    /// Settings for new clients. `None` if the application supplies the client.
    source: Option<Source>,
    last_try: Mutex<Option<Instant>>,
}

impl Clients {
    pub(crate) fn new(first: Pair, source: Option<Source>) -> Self {
        Self {
            first,
            source,
            last_try: Mutex::default(),
        }
    }

    pub(crate) fn current(&self) -> &Pair {
        let mut pair = &self.first;
        while let Some(next) = pair.next.get() {
            pair = next;
        }
        pair
    }

    /// Returns the client options from the URL. Returns `None` if the application supplies the
    /// client.
    pub(crate) fn options(&self) -> Option<&ClientOptions> {
        self.source.as_ref().map(|source| &source.options)
    }

    /// Returns `true` if the store created the clients, and `false` if the application supplies the
    /// client.
    pub(crate) const fn are_own(&self) -> bool {
        self.source.is_some()
    }

    /// Replaces the clients in `refused`, whose database user was dropped, if new clients can
    /// authenticate. Returns whether the store now uses newer clients.
    pub(crate) async fn replace(&self, refused: &Pair) -> bool {
        let Some(source) = &self.source else {
            return false;
        };
        let mut last_try = self.last_try.lock().await;
        if refused.next.get().is_some() {
            return true;
        }
        if last_try.is_some_and(|last| last.elapsed() < BETWEEN_TRIES) {
            return false;
        }
        *last_try = Some(time::monotonic());
        let Ok(pair) = source.pair() else {
            return false;
        };
        if !pair.is_let_in().await {
            pair.shut_down().await;
            return false;
        }
        tracing::warn!("reconnected, because the user of the connections had been dropped");
        let _ = refused.next.set(Box::new(pair));
        refused.shut_down().await;
        true
    }
}
