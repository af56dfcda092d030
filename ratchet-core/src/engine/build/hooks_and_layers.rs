//! Setters for hooks, and for the layers around bodies.

use super::builder::NodeBuilder;
use crate::engine::hooks::NodeHook;
#[cfg(feature = "tower")]
use crate::handler::{Job, JobLayer};

impl NodeBuilder {
    /// Adds a hook, which is notified about the jobs of the node. See [`NodeHook`] for its
    /// guarantees.
    pub fn hook(mut self, hook: impl NodeHook) -> Self {
        self.hooks.add(hook);
        self
    }

    /// Wraps the bodies of all jobs in a tower layer, such as metrics, tracing or limits: anything
    /// that wraps a `tower::Service` of [`JobRequest`](crate::JobRequest) and
    /// [`JobResponse`](crate::JobResponse). Needs the feature `tower`.
    ///
    /// The layer that was added first is the outermost. The layers of a single kind
    /// ([`layer_for`](Self::layer_for)) run inside the layers of all kinds. A layer is applied
    /// once, when the node is built, and its service is cloned for every job. So the state that its
    /// clones share, such as the permits of a `ConcurrencyLimit`, is shared by all jobs of the
    /// node.
    ///
    /// # What a layer is part of
    /// A layer runs where the body runs: in the slot, the tracing span and the timeout of the job.
    /// When the timeout ends, the layer is dropped together with the body. A job that waits in a
    /// layer therefore occupies a slot; to limit a queue or a kind, a [`Pool`](crate::Pool) is
    /// better. An error or a panic of a layer is a failed attempt, like that of a body. Jobs whose
    /// payload does not decode never reach a layer.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use ratchet::{MemoryStore, Ratchet};
    /// use tower::limit::ConcurrencyLimitLayer;
    /// use tower::timeout::TimeoutLayer;
    ///
    /// let builder = Ratchet::builder(Arc::new(MemoryStore::new()))
    ///     .layer(ConcurrencyLimitLayer::new(8)) // waits first,
    ///     .layer(TimeoutLayer::new(Duration::from_secs(60))); // and this time begins after
    /// # let _ = builder;
    /// ```
    #[cfg(feature = "tower")]
    pub fn layer(mut self, layer: impl JobLayer) -> Self {
        self.layers.add(layer);
        self
    }

    /// Wraps the bodies of one kind, which must be registered, in a layer; see
    /// [`layer`](Self::layer).
    #[cfg(feature = "tower")]
    pub fn layer_for<J: Job>(mut self, layer: impl JobLayer) -> Self {
        self.layers.add_for(J::KIND, layer);
        self
    }
}
