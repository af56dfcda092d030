use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::panic_text::panic_text;
use crate::metrics;

/// How long a loop that panicked waits before it restarts.
const REST: Duration = Duration::from_secs(1);

/// Runs a loop with its handles, and restarts it whenever it panics. The loop ends when `tasks` is
/// dropped.
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
                "a loop panicked, restarting it"
            );
            tokio::time::sleep(REST).await;
        }
    });
}
