//! Daemons: bodies of which one instance runs in the whole cluster, on the leader of their role.

use std::any::type_name;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::roles::Candidacy;
use crate::client::{Client, RetryDelays};
use crate::cluster::Leadership;
use crate::engine::common::Common;
use crate::engine::panic_text::panic_text;
use crate::handler::StateMap;
use crate::id::Fence;
use crate::metrics;
use crate::model::Guard;
use crate::name::Name;
use crate::time;

/// The result of a daemon's body. `Ok` ends the daemon for this term; after an error it is
/// restarted.
pub type DaemonResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

type Body = Pin<Box<dyn Future<Output = DaemonResult> + Send>>;
type Start = dyn Fn(DaemonContext) -> Body + Send + Sync;

/// After how many failures in a row the node of a daemon leaves the role to other nodes.
const MAX_FAILURES: u32 = 5;
/// How long a daemon must run until its earlier failures no longer count.
const RECOVERED: Duration = Duration::from_secs(60);
/// How long a node does not campaign for the role after its daemon kept failing.
const SIT_OUT: Duration = Duration::from_secs(300);

/// A daemon of a node.
#[derive(Clone)]
pub(crate) struct Daemon {
    pub(crate) role: Name,
    start: Arc<Start>,
}

impl Daemon {
    pub(crate) fn new<B, F>(role: Name, body: B) -> Self
    where
        B: Fn(DaemonContext) -> F + Send + Sync + 'static,
        F: Future<Output = DaemonResult> + Send + 'static,
    {
        Self {
            role,
            start: Arc::new(move |context| Box::pin(body(context))),
        }
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Daemon").field(&self.role).finish()
    }
}

/// The context of a daemon's body.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet::{DaemonContext, Ratchet};
///
/// // Runs on one node at a time.
/// let watch = |ctx: DaemonContext| async move {
///     while !ctx.is_stopped() {
///         println!("term {:?} looks", ctx.term());
///         tokio::select! {
///             () = ctx.stopped() => {}
///             () = tokio::time::sleep(Duration::from_secs(10)) => {}
///         }
///     }
///     Ok(())
/// };
/// let store = ratchet::connect("memory:").await?;
/// let node = Ratchet::builder(store).daemon("watch", watch).build()?;
/// # let _ = node;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DaemonContext {
    term: Fence,
    guard: Option<Guard>,
    leadership: Leadership,
    stop: CancellationToken,
    state: Arc<StateMap>,
    client: Client,
}

impl DaemonContext {
    /// Returns the term in which this instance runs. An instance on another node has another term,
    /// which is larger if that instance began later. An instance that is restarted on the same node
    /// may have the same term.
    #[must_use]
    pub const fn term(&self) -> Fence {
        self.term
    }

    /// Returns the guard for writes that only this instance may make.
    #[must_use]
    pub const fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Waits until the body must stop, because the node drains or no longer leads. The body then
    /// has the teardown time of the [`LeaderTimings`](crate::cluster::LeaderTimings) to end, after
    /// which it is dropped.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Returns whether the body must stop, because the node drains or no longer leads in this
    /// [`term`](Self::term).
    ///
    /// Synchronous, and without I/O. Like [`Leadership::is_leader`] it compares the deadline of the
    /// tenure with the clock. So a process that was suspended past that deadline sees the end at
    /// once, before [`stopped`](Self::stopped) resolves.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() || self.leadership.term() != Some(self.term)
    }

    /// Returns the shared value of type `T` that was given to the node's builder.
    ///
    /// # Panics
    /// If the node has no value of this type.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        match self.state.get::<T>() {
            Some(value) => value,
            None => panic!(
                "the node has no state of type {}; add it with NodeBuilder::state",
                type_name::<T>()
            ),
        }
    }

    /// Returns the node's client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

/// The handles that the loops of daemons use.
pub(crate) struct DaemonHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) client: Client,
    pub(crate) state: Arc<StateMap>,
    /// The running instances.
    pub(crate) instances: TaskTracker,
    /// Cancelled when the run stops claiming.
    pub(crate) draining: CancellationToken,
}

/// Runs the daemon whenever this node leads in its role.
pub(crate) async fn run(run: Arc<DaemonHandles>, daemon: Daemon, candidacy: Arc<Candidacy>) {
    let mut watch = candidacy.leadership.watch();
    loop {
        let term = tokio::select! {
            biased;
            () = run.draining.cancelled() => break,
            term = watch.elected() => term,
        };
        serve(&run, &daemon, &candidacy, term).await;
        tokio::select! {
            biased;
            () = run.draining.cancelled() => break,
            () = watch.lost(term) => {}
        }
    }
    // The role is released as soon as its daemon has stopped, before the node has drained.
    candidacy.resign(&run.client).await;
}

/// Runs the daemon in one term, until it ends, fails too often, or must stop.
async fn serve(run: &DaemonHandles, daemon: &Daemon, candidacy: &Candidacy, term: Fence) {
    let role = &daemon.role;
    let (mut failures, mut backoff) = (0, RetryDelays::default());
    loop {
        let begun = time::monotonic();
        tracing::info!(%role, term = term.0, "daemon starts");
        metrics::daemon_started(role);
        let Some(ended) = instance(run, daemon, candidacy, term).await else {
            tracing::info!(%role, term = term.0, "daemon stopped");
            return;
        };
        let Err(error) = ended else {
            tracing::info!(%role, term = term.0, "daemon ended");
            return;
        };
        if begun.elapsed() >= RECOVERED {
            failures = 0;
            backoff.reset();
        }
        failures += 1;
        metrics::daemon_failed(role);
        tracing::warn!(%role, %error, failures, "daemon failed");
        if failures >= MAX_FAILURES {
            tracing::error!(%role, "a daemon failed too often in a row; this node leaves its role to other nodes");
            candidacy.sit_out(SIT_OUT, &run.client).await;
            return;
        }
        let mut watch = candidacy.leadership.watch();
        tokio::select! {
            biased;
            () = run.draining.cancelled() => return,
            () = watch.lost(term) => return,
            () = tokio::time::sleep(backoff.next(run.common.random())) => {}
        }
    }
}

/// Runs one instance of the daemon and returns its result. Returns `None` if the instance was
/// stopped because the node drains or no longer leads.
async fn instance(
    run: &DaemonHandles,
    daemon: &Daemon,
    candidacy: &Candidacy,
    term: Fence,
) -> Option<Result<(), String>> {
    let _alive = run.instances.token();
    let _in_use = candidacy.in_use.lock().await;
    let stop = CancellationToken::new();
    // Also cancels if this future is dropped, so that tasks that the body has spawned see the end.
    let _stop_at_the_end = stop.clone().drop_guard();
    let context = DaemonContext {
        term,
        guard: candidacy.leadership.guard(),
        leadership: candidacy.leadership.clone(),
        stop: stop.clone(),
        state: Arc::clone(&run.state),
        client: run.client.clone(),
    };
    let body = async {
        (daemon.start)(context)
            .await
            .map_err(|error| error.to_string())
    };
    let body = AssertUnwindSafe(body).catch_unwind();
    tokio::pin!(body);
    let mut watch = candidacy.leadership.watch();
    let ended = tokio::select! {
        biased;
        () = run.draining.cancelled() => None,
        () = watch.lost(term) => None,
        ended = &mut body => Some(ended),
    };
    match ended {
        Some(Ok(ended)) => Some(ended),
        Some(Err(panic)) => Some(Err(format!("panicked: {}", panic_text(&*panic)))),
        None => {
            stop.cancel();
            let teardown = run.common.config.leadership.teardown;
            if tokio::time::timeout(teardown, body).await.is_err() {
                tracing::warn!(role = %daemon.role, "a daemon did not stop within the teardown \
                    time and was dropped");
            }
            None
        }
    }
}
