//! The server for the tests, and separate collections for each test.

use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{Document, doc};
use mongodb::options::{ReadConcern, WriteConcern};
use mongodb::{Client, Collection, Database};
use ratchet_conformance::{BoxError, Slot, TestClock, TestDatabase, TestServer};
use ratchet_core::JobId;
use ratchet_store_mongo::{Builder, MongoStore};

/// The replica set of the tests.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) const SERVER: TestServer = TestServer::new("mongodb", "RATCHET_TEST_MONGODB_URL");

/// A standalone server, for the behaviour without transactions.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) const STANDALONE: TestServer =
    TestServer::new("mongodb-standalone", "RATCHET_TEST_MONGODB_STANDALONE_URL");

/// The server's program, for tests that start their own server.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) const PROGRAM: TestServer =
    TestServer::new("mongodb-program", "RATCHET_TEST_MONGODB_PROGRAM");

/// Collections for one test, in a database that the tests share: a separate database would need
/// separate files, and creating them takes the server longer.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) database: Database,
    /// Slot that this test holds. Later tests with this slot reuse the collections. `None` if no
    /// later test reuses them.
    pub(crate) slot: Option<Slot>,
}

impl Space {
    /// Reuses the collections and indexes of an earlier test, and deletes their documents, because
    /// creating and dropping collections takes longer than most cases. If no slot is available,
    /// creates new collections. Reused collections stay on the server after the test run; the
    /// server is expected to be disposable.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn reused(url: &str) -> Result<Self, BoxError> {
        let (Ok(run), Some(slot)) = (std::env::var("NEXTEST_RUN_ID"), Slot::take()) else {
            return Self::create(url).await;
        };
        let mut space = Self::prefixed(url, format!("{run}.{slot}.")).await?;
        space.slot = Some(slot);
        // The mark `in_use` shows that an earlier test was killed. That test may have left open
        // transactions. Dropping the collections waits until these transactions have ended.
        let clock = space.of_majority("clock");
        if clock.find_one(doc! { "in_use": true }).await?.is_some() {
            space.renew().await?;
            return Ok(space);
        }
        for name in space.collections().await? {
            let collection = space.database.collection::<Document>(&name);
            collection.delete_many(doc! {}).await?;
        }
        space.set_clock().await?;
        Ok(space)
    }

    /// Drops the collections, and creates the clock again.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn renew(&self) -> Result<(), BoxError> {
        for name in self.collections().await? {
            self.database.collection::<Document>(&name).drop().await?;
        }
        self.set_clock().await
    }

    /// Returns the collections with this prefix, which may exist already.
    pub(crate) async fn prefixed(url: &str, prefix: String) -> Result<Self, BoxError> {
        let client = Client::with_uri_str(url).await?;
        Ok(Self {
            url: url.to_owned(),
            prefix,
            database: client.database("ratchet_test"),
            slot: None,
        })
    }

    async fn set_clock(&self) -> Result<(), BoxError> {
        let clock = doc! { "now_ms": 1_790_000_000_123_i64, "in_use": true };
        self.of_majority("clock").insert_one(clock).await?;
        Ok(())
    }

    /// Returns the names of the existing collections.
    async fn collections(&self) -> mongodb::error::Result<Vec<String>> {
        let mut names = self.database.list_collection_names().await?;
        names.retain(|name| name.starts_with(&self.prefix));
        Ok(names)
    }

    /// Returns a builder for a store on the collections, with few connections because many tests
    /// run at once.
    pub(crate) fn builder(&self) -> Builder {
        MongoStore::builder(&self.url)
            .database(self.database.name())
            .prefix(&self.prefix)
            .max_connections(4)
            .deadline(Duration::from_secs(20))
    }

    /// Returns the full name of a collection, with the prefix.
    pub(crate) fn name(&self, collection: &str) -> String {
        format!("{}{collection}", self.prefix)
    }

    /// Returns a collection with the read and write concern `majority`, like the store's own.
    pub(crate) fn of_majority(&self, collection: &str) -> Collection<Document> {
        let options = mongodb::options::CollectionOptions::builder()
            .write_concern(WriteConcern::majority())
            .read_concern(ReadConcern::majority())
            .build();
        self.database
            .collection_with_options(&self.name(collection), options)
    }
}

#[async_trait]
impl TestDatabase for Space {
    /// Chooses a new prefix for the collections of one test, and creates the test's clock, which
    /// starts at the same time in every test.
    async fn create(url: &str) -> Result<Self, BoxError> {
        let space = Self::prefixed(url, format!("{}.", JobId::new())).await?;
        space.set_clock().await?;
        Ok(space)
    }

    /// Drops the collections, unless a later test reuses them.
    async fn take_away(&self) {
        if self.slot.is_some() {
            let left = doc! { "$unset": { "in_use": "" } };
            if let Err(error) = self.of_majority("clock").update_one(doc! {}, left).await {
                eprintln!(
                    "the next run recreates the collections {}: {error}",
                    self.prefix
                );
            }
            return;
        }
        let names = match self.collections().await {
            Ok(names) => names,
            Err(error) => {
                return eprintln!(
                    "could not list the collections {} to drop them: {error}",
                    self.prefix
                );
            }
        };
        for name in names {
            if let Err(error) = self.database.collection::<Document>(&name).drop().await {
                eprintln!("could not drop the collection {name}: {error}");
            }
        }
    }
}

#[async_trait]
impl TestClock for Space {
    async fn move_by(&self, millis: i64) {
        let clock = self.of_majority("clock");
        let step = doc! { "$inc": { "now_ms": millis } };
        if let Err(error) = clock.update_one(doc! {}, step).await {
            panic!("could not move the clock of the tests: {error}");
        }
    }
}
