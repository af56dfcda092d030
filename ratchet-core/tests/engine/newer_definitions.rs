//! Recurring definitions that only some of the nodes can read, as during a deploy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{DueRecurring, JobFilter, PageRequest, RecurringClaimRequest};
use ratchet_core::store::{Layered, RecurringStore, Store, StoreLayer};
use ratchet_core::{MemoryStore, Ratchet, Recurring, Result};
use tokio::time::sleep;

use crate::kit::{Scripted, Scripts, Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// The store as a node of an older version sees it: the node cannot read any definition.
#[derive(Debug)]
struct Old {
    store: MemoryStore,
    /// How many times this node claimed a definition that it could not fire.
    met: Arc<AtomicUsize>,
}

#[async_trait]
impl StoreLayer for Old {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        let mut due = self.store.claim_due_recurring(request).await?;
        due.unreadable = due.definitions.len();
        due.definitions.clear();
        self.met.fetch_add(due.unreadable, Ordering::SeqCst);
        Ok(due)
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_read_a_definition_leaves_it_to_those_that_can() {
    const SLOTS: usize = 60;
    let world = World::new();
    let met = Arc::new(AtomicUsize::new(0));
    let old = Old {
        store: world.store.clone(),
        met: Arc::clone(&met),
    };
    let old = Ratchet::builder(Arc::new(Layered::new(old)))
        .register::<Scripted>()
        .state(Scripts::default())
        .seed(8);
    let old = Started::new(old.build().unwrap());
    let new = world.start();
    let client = new.node.client().clone();
    let job = ratchet_core::NewJob::new("for another", &());
    let often = Recurring::every(10 * SECOND).job(job).named("often");
    client.recurring().put(often).await.unwrap();
    sleep(605 * SECOND).await;
    let page = PageRequest::first(1_000);
    let jobs = client.list(&JobFilter::all(), &page).await.unwrap().jobs;
    assert_eq!(jobs.len(), SLOTS, "expected one job for every slot");
    // The old node may claim the definition at most once a minute. Without this limit, it would
    // claim about half of the slots.
    let met = met.load(Ordering::SeqCst);
    assert!((1..=SLOTS / 6 + 1).contains(&met), "{met}");
    old.stop().await.unwrap();
    new.stop().await.unwrap();
}
