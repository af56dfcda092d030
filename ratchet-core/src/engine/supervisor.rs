use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::panic_text::panic_text;
use crate::metrics;

/// The time between a panic of a loop and its restart.
const REST: Duration = Duration::from_secs(1);

/// Spawns a task that runs a loop, and restarts the loop whenever it panics. The task ends when the
/// loop returns or when `tasks` is dropped.
pub(super) fn keep<T, F>(
    tasks: &mut JoinSet<()>,
    handles: &Arc<T>,
    name: &'static str,
    task: impl Fn(Arc<T>) -> F + Send + 'static,
) where
    T: Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let handles = Arc::clone(handles);
    tasks.spawn(async move {
        while let Err(panic) = AssertUnwindSafe(task(Arc::clone(&handles)))
            .catch_unwind()
            .await
        {
            metrics::loop_panicked(name);
            tracing::error!(
                name,
                panic = panic_text(&*panic),
                "a loop of the engine panicked; restarting it"
            );
            tokio::time::sleep(REST).await;
        }
    });
}
