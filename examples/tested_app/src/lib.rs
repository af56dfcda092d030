//! A newsletter on Ratchet: the code that the program and its tests share.

pub mod jobs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratchet::{Claim, NodeBuilder, NodeHook, Outcome, Ratchet, Settlement, SharedStore};
use tower::timeout::TimeoutLayer;

use crate::jobs::{Letter, Office, Remind, SignUp};

/// A hook that counts the jobs that become dead letters.
#[derive(Clone, Debug, Default)]
pub struct DeadLetters(Arc<AtomicU64>);

impl DeadLetters {
    /// Returns the number of jobs that became dead letters on this node.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl NodeHook for DeadLetters {
    fn job_ended(&self, _claim: &Claim, end: &Settlement) {
        if matches!(end.outcome, Outcome::Failed { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns a builder for the node of the newsletter.
pub fn node(store: SharedStore, office: Office, dead_letters: DeadLetters) -> NodeBuilder {
    Ratchet::builder(store)
        .register::<(SignUp, Letter, Remind)>()
        .state(office)
        .queue_concurrency("post", 4)
        .layer(TimeoutLayer::new(Duration::from_secs(30)))
        .hook(dead_letters)
}
