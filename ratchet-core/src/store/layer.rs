//! Layers: decorators that change some of the calls of a store.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::*;
use crate::cluster::ClusterCoordinator;
use crate::error::Result;
use crate::id::*;
use crate::model::*;
use crate::name::Name;
use crate::state::{JobAction, JobState};
use crate::time::Timestamp;

macro_rules! part {
    (required, $store:expr, $part:ident, $method:ident) => {
        $store.$part()
    };
    (optional, $store:expr, $part:ident, $method:ident) => {
        checked::part(stringify!($method), $store.$part())?
    };
}

macro_rules! layer {
    ($($need:ident $part:ident as $accessor:ident {
        $($repeat:ident $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+
    })+) => {
        /// A decorator of a store. It passes every call on to the inner store, unless an
        /// implementation overrides the method.
        ///
        /// [`Layered`] turns the layer into a store. Each method has the name and the contract of a
        /// method of one of the store's parts. The layered store has an optional part only if the
        /// inner store has this part.
        ///
        /// A call of a provided method of a part, such as [`JobStore::act`], is passed on to the
        /// inner store as one call. The inner store then calls other methods, such as
        /// [`JobStore::select`], on itself and not on the layer.
        ///
        /// Put the layer around a store without a door, and the door around the layer:
        /// `Checked::new(Layered::new(layer))`. A layer around a [`Checked`] store also gets the
        /// calls that the door would refuse, and its [`call_policy`](Self::call_policy) has no
        /// effect.
        ///
        /// ```
        /// use std::sync::atomic::{AtomicUsize, Ordering};
        ///
        /// use async_trait::async_trait;
        /// use ratchet_core::store::{Checked, Layered, Store, StoreLayer};
        /// use ratchet::{Enqueued, MemoryStore, NewJob, Result};
        ///
        /// /// Counts the jobs that are enqueued.
        /// #[derive(Debug)]
        /// struct Counted {
        ///     store: MemoryStore,
        ///     jobs: AtomicUsize,
        /// }
        ///
        /// #[async_trait]
        /// impl StoreLayer for Counted {
        ///     fn inner(&self) -> &dyn Store {
        ///         &self.store
        ///     }
        ///
        ///     async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        ///         self.jobs.fetch_add(jobs.len(), Ordering::Relaxed);
        ///         self.inner().jobs().enqueue(jobs).await
        ///     }
        /// }
        ///
        /// # tokio_test(async {
        /// let counted = Counted { store: MemoryStore::new(), jobs: AtomicUsize::new(0) };
        /// let store = Checked::new(Layered::new(counted));
        /// store.jobs().enqueue(&[NewJob::new("greet", &"Ada")]).await?;
        /// assert_eq!(store.layer().jobs.load(Ordering::Relaxed), 1);
        /// # Ok(())
        /// # })
        /// # .unwrap();
        /// # fn tokio_test<T>(of: impl Future<Output = Result<T>>) -> Result<T> {
        /// #     tokio::runtime::Runtime::new().unwrap().block_on(of)
        /// # }
        /// ```
        #[async_trait]
        pub trait StoreLayer: Debug + Send + Sync + 'static {
            /// Returns the inner store, to which the layer passes calls on.
            fn inner(&self) -> &dyn Store;

            /// Returns the call policy of the inner store; see [`Store::call_policy`].
            fn call_policy(&self) -> CallPolicy {
                self.inner().call_policy()
            }

            /// Returns [`Store::transactions`] of the inner store. If jobs are enqueued in a
            /// transaction of the application, the layer's [`enqueue`](Self::enqueue) is not
            /// called.
            fn transactions(&self) -> Option<&dyn TransactionStore> {
                self.inner().transactions()
            }

            $($(
                #[doc = concat!("Calls [`", stringify!($part), "::", stringify!($method), "`] of the inner store.")]
                async fn $method(&self, $($argument: $type),*) -> Result<$answer> {
                    part!($need, self.inner(), $accessor, $method).$method($($argument),*).await
                }
            )+)+
        }

        $(
            #[async_trait]
            impl<L: StoreLayer> $part for Layered<L> {$(
                async fn $method(&self, $($argument: $type),*) -> Result<$answer> {
                    self.layer.$method($($argument),*).await
                }
            )+}
        )+

        impl<L: StoreLayer> Store for Layered<L> {
            $(accessor!($need $accessor $part);)+

            fn info(&self) -> StoreInfo {
                self.layer.inner().info()
            }

            fn lacks(&self, feature: StoreFeature) -> Option<&'static str> {
                self.layer.inner().lacks(feature)
            }

            fn call_policy(&self) -> CallPolicy {
                self.layer.call_policy()
            }

            fn call_timed_out(&self) {
                self.layer.inner().call_timed_out();
            }

            fn is_checked(&self) -> bool {
                self.layer.inner().is_checked()
            }

            fn transactions(&self) -> Option<&dyn TransactionStore> {
                self.layer.transactions()
            }

            fn connections(&self) -> Option<u32> {
                self.layer.inner().connections()
            }

            fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
                self.layer.inner().coordinator()
            }

            fn close(&self) -> BoxFuture<'_, ()> {
                self.layer.inner().close()
            }
        }
    };
}

macro_rules! accessor {
    (required $accessor:ident $part:ident) => {
        fn $accessor(&self) -> &dyn $part {
            self
        }
    };
    (optional $accessor:ident $part:ident) => {
        fn $accessor(&self) -> Option<&dyn $part> {
            self.layer.inner().$accessor().is_some().then_some(self)
        }
    };
}

/// A store whose calls go through a [`StoreLayer`] to the layer's inner store.
///
/// See [`StoreLayer`] for an example.
#[derive(Clone, Debug)]
pub struct Layered<L> {
    layer: L,
}

impl<L: StoreLayer> Layered<L> {
    /// Creates a store from a layer.
    #[must_use]
    pub const fn new(layer: L) -> Self {
        Self { layer }
    }

    /// Returns the layer.
    #[must_use]
    pub const fn layer(&self) -> &L {
        &self.layer
    }
}

crate::store_calls!(layer);
