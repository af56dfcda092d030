//! Suspects: jobs that have lost a claim before, and so may have killed their node.
//!
//! The body of a suspect begins only after the store has recorded that it begins. So if the node
//! dies, only the jobs that were running lose part of their crash budget. From
//! [`Config::isolate_from`](crate::engine::settings::config::Config::isolate_from) losses on, at
//! most one suspect runs on a node at a time. Then a job that kills its process uses up only its
//! own crash budget. The other suspects are snoozed without using an attempt, and any node may run
//! them in the meantime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a suspect is snoozed while another one runs.
pub(super) const PUT_OFF: Duration = Duration::from_secs(10);

/// Whether a suspect runs on this node.
#[derive(Default)]
pub(crate) struct Suspects(AtomicBool);

impl Suspects {
    /// Admits a suspect if no other runs. The suspect counts as running until the returned value is
    /// dropped.
    pub(crate) fn admit(&self) -> Option<Admitted<'_>> {
        let busy = self.0.swap(true, Ordering::AcqRel);
        (!busy).then(|| Admitted(&self.0))
    }
}

/// A running suspect.
pub(crate) struct Admitted<'a>(&'a AtomicBool);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
