//! Suspects: jobs that were lost with their node before, and may be what killed it.
//!
//! A body of such a job begins only after the store knows that it does, so that a further loss
//! counts against the jobs that were running and no others. From
//! [`Config::isolate_from`](crate::engine::settings::config::Config::isolate_from) losses on, at
//! most one of them runs on a node at a time: then a job that kills its process kills it alone, and
//! uses up its own crash budget only. The others are put off, at no cost, and any node may run them
//! meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a suspect is put off while another runs.
pub(super) const PUT_OFF: Duration = Duration::from_secs(10);

/// Whether a suspect runs on this node.
#[derive(Default)]
pub(crate) struct Suspects(AtomicBool);

impl Suspects {
    /// Lets a suspect run if no other does, for as long as the answer is kept.
    pub(crate) fn admit(&self) -> Option<Admitted<'_>> {
        let busy = self.0.swap(true, Ordering::AcqRel);
        (!busy).then(|| Admitted(&self.0))
    }
}

/// A suspect that runs.
pub(crate) struct Admitted<'a>(&'a AtomicBool);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
