//! Runs one case, and handles its deadline, its panics and its cleanup.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ratchet_core::time;
use tokio::runtime::{Builder, Runtime};

use crate::Case;
use crate::fixture::BoxError;
use crate::notes::Notes;

/// Returns the maximum duration of a case of `group`, including its setup. A case that takes longer
/// counts as hanging. Cases with random histories have the longest limit.
///
/// The limit plus [`CLEANING`] is shorter than the timeout in `.config/nextest.toml`. The suite
/// therefore reports a hanging case before nextest ends the test.
pub(crate) fn time_limit(group: &str) -> Duration {
    let (variable, seconds) = match group {
        "differential" => ("RATCHET_HISTORY_SECONDS", 840),
        _ => ("RATCHET_CASE_SECONDS", 240),
    };
    let set = std::env::var(variable).ok();
    let set = set.and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(seconds))
}

/// Maximum time that a fixture may take to clean up after its case has reached the time limit.
const CLEANING: Duration = Duration::from_secs(40);

/// The argument of a test case.
#[async_trait]
pub(crate) trait Context: Send + Sync + Sized + 'static {
    /// Removes the databases or the transport that the case used.
    async fn clean_up(&self);

    fn notes(&self) -> &Notes;
}

/// A function that creates the [`Context`] of a case.
pub(crate) type Setup<C> = dyn Fn() -> BoxFuture<'static, Result<C, BoxError>> + Send + Sync;

/// The reason why a case failed: the message of the failed assertion, or the error that prevented
/// the case from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    cause: Cause,
    message: String,
    clauses: Vec<&'static str>,
}

/// The kind of a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An assertion of the case failed: the store broke a clause.
    Broken,
    /// The case did not end within its time limit.
    Hanging,
    /// The fixture or the case itself is faulty. The failure shows nothing about the store.
    Setup,
}

impl Failure {
    pub(crate) const fn new(cause: Cause, message: String, clauses: Vec<&'static str>) -> Self {
        Self {
            cause,
            message,
            clauses,
        }
    }

    /// Returns the ids of the clauses that the failed assertion checks. These are all clauses of
    /// the case, unless the case named some of them for this assertion.
    #[must_use]
    pub fn clauses(&self) -> &[&'static str] {
        &self.clauses
    }

    pub(crate) const fn cause(&self) -> Cause {
        self.cause
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The result of running a case.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Result<(), Failure>,
    /// Number of store calls that were repeated.
    pub(crate) repeated: u64,
}

impl Ended {
    /// Creates the result of a case that could not run, with `message` as the reason.
    pub(crate) fn without_running<C>(case: &Case<C>, message: String) -> Self {
        let failure = Failure::new(Cause::Setup, message, case.clauses.to_vec());
        Self {
            outcome: Err(failure),
            repeated: 0,
        }
    }
}

/// Runs the setup of a case, the case itself and its cleanup, each with a time limit.
pub(crate) async fn run_case<C: Context>(case: &Case<C>, setup: &Setup<C>) -> Ended {
    let failure = |cause, message, clauses| Err(Failure::new(cause, message, clauses));
    let all = case.clauses.to_vec();
    let deadline = time_limit(case.group);
    let end = time::monotonic() + deadline;
    let context = match tokio::time::timeout_at(end, setup()).await {
        Ok(Ok(context)) => context,
        Ok(Err(error)) => {
            return Ended::without_running(
                case,
                format!(
                    "the factory could not create the fixture: \
                     {error}"
                ),
            );
        }
        Err(_) => {
            let message = format!("the fixture was not created within {deadline:?}");
            return Ended::without_running(case, message);
        }
    };
    context.notes().set_time_limit(deadline);
    let body = tokio::time::timeout_at(end, (case.body)(&context));
    let ended = caught(body).await;
    let notes = context.notes();
    let (repeated, last_repeated) = notes.repeats();
    let blamed = notes.blamed(case.clauses);
    let cleaned = tokio::time::timeout_at(end + CLEANING, context.clean_up()).await;
    let told = |message: String| match &last_repeated {
        Some(error) => {
            format!(
                "{message}\n  {repeated} calls were repeated, the last one after this error: {error}"
            )
        }
        None => message,
    };
    let outcome = match (ended, notes.unproved(case.clauses)) {
        (ended, Some(clause)) => {
            let mut message = format!(
                "the case names the clause {clause}, but does not list it among the \
                 clauses that it proves"
            );
            match ended {
                Err(panic) => message = format!("{message}; the case also failed: {panic}"),
                Ok(Err(_)) => message.push_str("; the case also did not end"),
                Ok(Ok(())) => {}
            }
            failure(Cause::Setup, message, all)
        }
        (Ok(Ok(())), None) if cleaned.is_err() => {
            let message = "the fixture's teardown did not end in time".to_owned();
            failure(Cause::Setup, message, all)
        }
        (Ok(Ok(())), None) => Ok(()),
        (Ok(Err(_)), None) => {
            let message = format!("the case did not end within {deadline:?}");
            failure(Cause::Hanging, told(message), blamed)
        }
        (Err(message), None) => failure(Cause::Broken, told(message), blamed),
    };
    Ended { outcome, repeated }
}

thread_local! {
    /// Whether this thread is currently polling the future of a case.
    static IN_CASE: Cell<bool> = const { Cell::new(false) };
    /// Message and location of the last panic of a case on this thread.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The message of a panic that was caught in one task and is raised again in another task.
struct PassedOn(String);

/// Awaits a future. If the future panics, returns the message and the location of the panic as the
/// error.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    note_panics();
    let mut future = pin!(future);
    poll_fn(|context| {
        let before = IN_CASE.replace(true);
        // `AssertUnwindSafe` is sound here, because a future that has panicked is not polled again.
        let poll = AssertUnwindSafe(|| future.as_mut().poll(context));
        let polled = panic::catch_unwind(poll);
        IN_CASE.set(before);
        match polled {
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(payload) => Poll::Ready(Err(message(&*payload))),
        }
    })
    .await
}

fn message(payload: &(dyn Any + Send)) -> String {
    let noted = LAST_PANIC.take();
    match payload.downcast_ref() {
        Some(PassedOn(message)) => message.clone(),
        None => noted.unwrap_or_else(|| "a panic without a message".to_owned()),
    }
}

/// Installs a panic hook that records the panic of a case instead of printing it. The suite prints
/// the panic later, as the failure of the case.
fn note_panics() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IN_CASE.get() {
                return usual(info);
            }
            let place = info.location().map(ToString::to_string);
            let text = info.payload_as_str().unwrap_or("a panic without a message");
            let note = format!("{text}\n  at {}", place.unwrap_or_default());
            LAST_PANIC.set(Some(note));
        }));
    });
}

/// Spawns one task for each index below `count`, with the future that `make` returns for the index.
/// Starts all futures at the same time and returns their results in the order of the indexes.
pub(crate) async fn race<F, T>(count: usize, make: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let start = Arc::new(tokio::sync::Barrier::new(count));
    let spawn = |index| {
        let (start, racer) = (Arc::clone(&start), make(index));
        tokio::spawn(async move {
            start.wait().await;
            caught(racer).await
        })
    };
    let racers: Vec<_> = (0..count).map(spawn).collect();
    let mut ended = Vec::with_capacity(count);
    // Awaits all tasks, even if one task has failed, so that no task outlives its database.
    for racer in racers {
        ended.push(racer.await);
    }
    let answer = |ended| match ended {
        Ok(Ok(answer)) => answer,
        Ok(Err(message)) => panic::resume_unwind(Box::new(PassedOn(message))),
        Err(error) => panic::resume_unwind(Box::new(PassedOn(format!("a racer {error}")))),
    };
    ended.into_iter().map(answer).collect()
}

/// Creates a Tokio runtime with two worker threads, so that race conditions can occur.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the operating system should allow a few more threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place_also_from_a_racer() {
        let told = runtime().block_on(caught(async {
            race(3, |racer| async move {
                assert_ne!(racer, 1, "planned failure of one racer");
            })
            .await
        }));
        let message = told.unwrap_err();
        assert!(
            message.contains("planned failure of one racer"),
            "{message}"
        );
        assert!(message.contains("runner.rs:"), "{message}");
    }
}
