//! Looks for jobs that this process enqueued in transactions of the application.
//!
//! Such a job exists only once its transaction commits, and the process is not notified of the
//! commit. Usually the store wakes nodes at the commit. A node with an idle interval receives no
//! wakeups of the store, so it looks for such jobs itself: [`FIRST`] after the enqueue, and again
//! after delays that double up to [`LAST`]. So the time from the commit to the look that finds the
//! job is at most [`FIRST`] longer than the time from the enqueue to the commit.

use std::sync::Arc;
use std::time::Duration;

use super::poller::PollerHandles;
use crate::time;

/// The time from an enqueue to the first look.
const FIRST: Duration = Duration::from_millis(100);
/// The longest delay between two looks. In total, the node looks for about twice as long after an
/// enqueue.
const LAST: Duration = Duration::from_secs(60);

/// Looks for jobs after each enqueue in a transaction, as long as the node runs.
pub(crate) async fn run(run: Arc<PollerHandles>) {
    if run.common.config.idle_interval.is_none() {
        return std::future::pending().await;
    }
    loop {
        run.wake_queue.until_commit_expected().await;
        let mut delay = FIRST;
        let mut next = time::monotonic() + delay;
        while delay <= LAST {
            tokio::select! {
                () = run.wake_queue.until_commit_expected() => {
                    delay = FIRST;
                    next = next.min(time::monotonic() + delay);
                }
                () = tokio::time::sleep_until(next) => {
                    run.wake_queue.wake(None);
                    delay *= 2;
                    next = time::monotonic() + delay;
                }
            }
        }
    }
}
