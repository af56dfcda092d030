//! Wakeups: between the clients and nodes of this process, and for jobs of other processes.
//!
//! Object storage does not announce new objects. While there is a subscriber, a task looks for new
//! segments, more and more rarely while there are none.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use tokio::runtime::Handle;

use crate::log::Log;

/// After how many looks the task also looks whether another process waits for a snapshot.
const LOOKS: u32 = 16;

/// The coordinator of the store. Clones share the task.
#[derive(Clone)]
pub(crate) struct ObjectCoordinator(Arc<Inside>);

struct Inside {
    log: Arc<Log>,
    /// The shortest and the longest pause between two looks.
    pauses: [Duration; 2],
    /// Whether the task runs.
    is_looking: Mutex<bool>,
}

impl ObjectCoordinator {
    pub(crate) fn new(log: Arc<Log>, pauses: [Duration; 2]) -> Self {
        Self(Arc::new(Inside {
            log,
            pauses,
            is_looking: Mutex::new(false),
        }))
    }

    fn start(&self) {
        let mut is_looking = lock(&self.0);
        if *is_looking {
            return;
        }
        // Without a runtime, nodes find the jobs of other processes only by polling.
        if let Ok(runtime) = Handle::try_current() {
            let news = self.0.log.news();
            runtime.spawn(look(Arc::downgrade(&self.0), self.0.pauses, news));
            *is_looking = true;
        }
    }
}

fn lock(inside: &Inside) -> std::sync::MutexGuard<'_, bool> {
    let is_looking = inside.is_looking.lock();
    is_looking.unwrap_or_else(PoisonError::into_inner)
}

/// Looks for new segments, until the coordinator is dropped or has no subscriber. The log itself
/// wakes the subscribers. `news` is [`Log::news`] at the beginning.
async fn look(inside: Weak<Inside>, [shortest, longest]: [Duration; 2], mut news: u64) {
    let mut pause = shortest;
    let mut looks = 0;
    loop {
        tokio::time::sleep(pause).await;
        let Some(inside) = inside.upgrade() else {
            return;
        };
        if !inside.log.wakeups.has_subscribers() {
            let mut is_looking = lock(&inside);
            // A subscriber that was added after the first check has found the task running.
            if !inside.log.wakeups.has_subscribers() {
                *is_looking = false;
                return;
            }
        }
        // Calls of this process look as well.
        if !inside.log.was_current_within(pause)
            && let Err(failure) = inside.log.look().await
        {
            tracing::debug!(?failure, "could not look for new jobs of other processes");
        }
        looks += 1;
        if looks >= LOOKS && inside.log.give_snapshot().await {
            looks = 0;
        }
        // Another call can have found the news during the pause.
        let before = mem::replace(&mut news, inside.log.news());
        pause = if news != before {
            shortest
        } else {
            (pause * 2).min(longest)
        };
    }
}

#[async_trait]
impl ClusterCoordinator for ObjectCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        self.0.log.wakeups.notify(wakeup).await;
    }

    fn subscribe(&self) -> WakeupStream {
        let wakeups = self.0.log.wakeups.subscribe();
        self.start();
        wakeups
    }

    fn reaches_all_nodes(&self) -> bool {
        false
    }
}

impl fmt::Debug for ObjectCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectCoordinator")
    }
}
