//! The clients of a store, and their successors.
//!
//! A user that is dropped and created again is another user to the server. Connections of the first
//! one stay open and are refused every command, and the driver keeps them. So a store whose user is
//! gone makes new clients, and uses them once they are let in.

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

/// How many connections heartbeats, locks and wakeups have, which keep one of them busy.
const LIVE_CONNECTIONS: u32 = 4;
/// How long to wait between two tries to be let in.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Makes the clients of a URL.
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

/// The collections through two clients.
#[derive(Debug)]
pub(crate) struct Pair {
    /// For jobs.
    pub(crate) main: Side,
    /// For heartbeats and locks.
    pub(crate) live: Side,
    /// Of the client of `live`.
    pub(crate) outages: Outages,
    /// The clients that are used in place of these.
    next: OnceLock<Box<Self>>,
}

impl Pair {
    /// Those of the application.
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

    /// The options of the URL; `None` if the client is the application's.
    pub(crate) fn options(&self) -> Option<&ClientOptions> {
        self.source.as_ref().map(|source| &source.options)
    }

    /// Whether the clients are the store's own.
    pub(crate) const fn are_own(&self) -> bool {
        self.source.is_some()
    }

    /// Replaces clients whose user is gone. Returns whether others are in use now.
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
        tracing::warn!("the server did not know the user any more: connected anew");
        let _ = refused.next.set(Box::new(pair));
        refused.shut_down().await;
        true
    }
}
