//! The store, and the store traits that have no module of their own.

use std::sync::Arc;

use async_trait::async_trait;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::model::{Guard, Guarded};
use ratchet_core::store::{
    ArchiveStore, CallPolicy, FairStore, JobStore, LockStore, NodeStore, PermitStore, QueueStore,
    RateStore, RecurringStore, SignalStore, Store, StoreInfo, VersionStore, WorkflowStore,
};
use ratchet_core::{Name, Result, next_in_time};

use crate::call::{Call, decoded};
use crate::engine::{Access, Engine};
use crate::keys::{Key, Table};

/// A store on an [`Engine`]. It supports all optional features of a store, except transactions of
/// the application and diagnostics. Clones share the engine.
#[derive(Debug)]
pub struct KvStore<E>(Arc<E>);

impl<E> Clone for KvStore<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Engine> KvStore<E> {
    /// Creates a store on this engine. The engine may be empty, because the store needs no schema.
    #[must_use]
    pub fn new(engine: E) -> Self {
        Self(Arc::new(engine))
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.0
    }

    pub(crate) async fn read(&self, operation: &'static str) -> Result<Call<E::Transaction>> {
        self.begin(operation, Access::Read).await
    }

    pub(crate) async fn write(&self, operation: &'static str) -> Result<Call<E::Transaction>> {
        self.begin(operation, Access::Write).await
    }

    async fn begin(&self, operation: &'static str, access: Access) -> Result<Call<E::Transaction>> {
        let transaction = self.0.begin(access).await;
        Call::new(
            operation,
            transaction.map_err(|error| error.during(operation))?,
        )
        .await
    }
}

impl<E: Engine> Store for KvStore<E> {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        self
    }

    fn queues(&self) -> &dyn QueueStore {
        self
    }

    fn nodes(&self) -> &dyn NodeStore {
        self
    }

    fn locks(&self) -> &dyn LockStore {
        self
    }

    fn versions(&self) -> &dyn VersionStore {
        self
    }

    fn call_policy(&self) -> CallPolicy {
        self.0.call_policy()
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        Some(self)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        Some(self)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        Some(self)
    }

    fn fair(&self) -> Option<&dyn FairStore> {
        Some(self)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        Some(self)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        Some(self)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        Some(self)
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        self.0.coordinator()
    }
}

#[async_trait]
impl<E: Engine> VersionStore for KvStore<E> {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        let mut call = self.write("bump").await?;
        if !call.allows(guard).await? {
            return Ok(Guarded::Stale);
        }
        let key = || Key::new(Table::Version).name(namespace.as_str());
        let version = number(&mut call, key()).await?.unwrap_or(0);
        let version = next_in_time(version, call.now);
        call.put(key(), version.to_string()).await?;
        call.commit().await?;
        Ok(Guarded::Done(version))
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        let mut call = self.read("versions").await?;
        let mut versions = Vec::with_capacity(namespaces.len());
        for name in namespaces {
            let key = Key::new(Table::Version).name(name.as_str());
            versions.push(number(&mut call, key).await?.unwrap_or(0));
        }
        Ok(versions)
    }
}

/// Reads a number that is stored as text.
pub(crate) async fn number<T, N>(call: &mut Call<T>, key: Key) -> Result<Option<N>>
where
    T: crate::engine::Transaction,
    N: std::str::FromStr,
{
    let value = call.get(key).await?;
    Ok(value.and_then(|value| number_of(&value)))
}

/// Parses a number from a stored text.
pub(crate) fn number_of<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    decoded(value, |text| {
        let number = text.parse();
        number.map_err(|_| ratchet_core::InvalidInput::new("number", "is not a number"))
    })
}
