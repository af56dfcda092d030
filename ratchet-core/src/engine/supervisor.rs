use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::execute::outcome::panic_text;
use super::run::Run;
use crate::metrics;

/// How long a loop that panicked rests before it begins again.
const REST: Duration = Duration::from_secs(1);

/// Keeps a loop going whatever happens in it. It ends with the set.
pub(super) fn keep<F>(
    tasks: &mut JoinSet<()>,
    run: &Arc<Run>,
    name: &'static str,
    task: impl Fn(Arc<Run>) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let run = Arc::clone(run);
    tasks.spawn(async move {
        while let Err(panic) = AssertUnwindSafe(task(Arc::clone(&run)))
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
