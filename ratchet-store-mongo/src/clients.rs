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

/// The pool size for heartbeats, locks and wakeups; wakeups keep one connection busy.
const LIVE_CONNECTIONS: u32 = 4;
/// The minimum pause between two attempts to authenticate with new clients.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// The settings from which clients for a URL are created.
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

/// The collections, accessed through two clients.
#[derive(Debug)]
pub(crate) struct Pair {
    /// For jobs.
    pub(crate) main: Side,
    /// For heartbeats and locks.
    pub(crate) live: Side,
    /// The outages of the client of `live`.
    pub(crate) outages: Outages,
    /// The pair that replaces this one after its user was dropped.
    next: OnceLock<Box<Self>>,
}

impl Pair {
    /// Creates a pair that uses the application's client for everything.
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

/// The clients in use.
#[derive(Debug)]
pub(crate) struct Clients {
    first: Pair,
    /// `None` if the client is the application's.
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

    /// Returns the options of the URL; `None` if the client is the application's.
    pub(crate) fn options(&self) -> Option<&ClientOptions> {
        self.source.as_ref().map(|source| &source.options)
    }

    /// Returns whether the clients are the store's own.
    pub(crate) const fn are_own(&self) -> bool {
        self.source.is_some()
    }

    /// Replaces clients whose user was dropped, if new clients can authenticate. Returns whether
    /// newer clients are in use now.
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
