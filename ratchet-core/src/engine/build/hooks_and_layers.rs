//! What an application puts around its bodies and beside them: layers and hooks.

use super::builder::NodeBuilder;
use crate::engine::hooks::NodeHook;
#[cfg(feature = "tower")]
use crate::handler::{Job, JobLayer};

impl NodeBuilder {
    /// Lets this hook hear what happens on the node; see [`NodeHook`] for what it can rely on.
    pub fn hook(mut self, hook: impl NodeHook) -> Self {
        self.hooks.add(hook);
        self
    }

    /// Puts a layer of tower around the bodies of all jobs: metrics, tracing, limits, anything that
    /// wraps a `tower::Service` of [`JobRequest`](crate::JobRequest) and
    /// [`JobResponse`](crate::JobResponse). Needs the feature `tower`.
    ///
    /// The layer that was added first is the outermost. Layers of one kind
    /// ([`layer_for`](Self::layer_for)) are inside those of all kinds. A layer is made once, when
    /// the node is built, and its service is cloned for every job: what its clones share, such as
    /// the permits of a `ConcurrencyLimit`, they share for all jobs of the node.
    ///
    /// # What a layer is part of
    /// Layers run where the body runs: in its slot, its tracing span and its timeout, whose end
    /// drops them together with the body. What waits in a layer therefore keeps a slot; limits by
    /// queue or kind are better kept by a [`Pool`](crate::Pool). The error of a layer is a failed
    /// attempt like that of a body, its panic too. Jobs whose payload does not decode never come to
    /// a layer.
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

    /// Puts a layer around the bodies of one kind, which must be registered; see
    /// [`layer`](Self::layer).
    #[cfg(feature = "tower")]
    pub fn layer_for<J: Job>(mut self, layer: impl JobLayer) -> Self {
        self.layers.add_for(J::KIND, layer);
        self
    }
}
