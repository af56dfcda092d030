//! Runs one case: handles its deadline, its panics and its cleanup.

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

/// Returns how long a case of this group may take, setup included, before it counts as hanging.
/// This time plus [`CLEANING`] is less than `.config/nextest.toml` allows, so that the case itself
/// reports the failure. Random histories take longest.
pub(crate) fn time_limit(group: &str) -> Duration {
    let (variable, seconds) = match group {
        "differential" => ("RATCHET_HISTORY_SECONDS", 840),
        _ => ("RATCHET_CASE_SECONDS", 240),
    };
    let set = std::env::var(variable).ok();
    let set = set.and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(seconds))
}

/// How long a fixture may take to clean up after its case exceeded the time limit.
const CLEANING: Duration = Duration::from_secs(40);

/// The argument of a case.
#[async_trait]
pub(crate) trait Context: Send + Sync + Sized + 'static {
    /// Removes what the case used.
    async fn clean_up(&self);

    /// Returns the notes of the case.
    fn notes(&self) -> &Notes;
}

/// Creates the context of a case.
pub(crate) type Setup<C> = dyn Fn() -> BoxFuture<'static, Result<C, BoxError>> + Send + Sync;

/// Why a case failed: the message of its assertion, or what prevented it from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    cause: Cause,
    message: String,
    clauses: Vec<&'static str>,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The store broke a clause.
    Broken,
    /// The case did not end.
    Hanging,
    /// The fixture or the case itself is wrong; the failure proves nothing about the store.
    Setup,
    /// The store has an exemption from the case, but must not have one.
    Exemption,
}

impl Failure {
    pub(crate) const fn new(cause: Cause, message: String, clauses: Vec<&'static str>) -> Self {
        Self {
            cause,
            message,
            clauses,
        }
    }

    /// Returns the clauses that the failed assertion is about: all clauses of the case, unless the
    /// case named some of them.
    #[must_use]
    pub fn clauses(&self) -> &[&'static str] {
        &self.clauses
    }

    /// Adds a line to the message.
    pub(crate) fn with(mut self, line: &str) -> Self {
        self.message = format!("{}\n  {line}", self.message);
        self
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

/// How a case ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Result<(), Failure>,
    /// How many calls of the store were repeated.
    pub(crate) repeated: u64,
    /// Whether the failure shows that the store refused a call because of its server's setup.
    pub(crate) refused: bool,
}

impl Ended {
    /// Creates the result of a case that could not be run.
    pub(crate) fn without_running<C>(case: &Case<C>, message: String) -> Self {
        let failure = Failure::new(Cause::Setup, message, case.clauses.to_vec());
        Self {
            outcome: Err(failure),
            repeated: 0,
            refused: false,
        }
    }
}

/// Runs a case from its setup to its cleanup.
pub(crate) async fn run_case<C: Context>(case: &Case<C>, setup: &Setup<C>) -> Ended {
    let failure = |cause, message, clauses| Err(Failure::new(cause, message, clauses));
    let all = case.clauses.to_vec();
    let deadline = time_limit(case.group);
    let end = time::monotonic() + deadline;
    let context = match tokio::time::timeout_at(end, setup()).await {
        Ok(Ok(context)) => context,
        Ok(Err(error)) => {
            return Ended::without_running(case, format!("the fixture cannot be created: {error}"));
        }
        Err(_) => {
            let message = format!("the fixture was not made within {deadline:?}");
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
            let mut message =
                format!("the case names the clause {clause}, which it does not prove");
            match ended {
                Err(panic) => message = format!("{message}; and it failed: {panic}"),
                Ok(Err(_)) => message.push_str("; and it did not end"),
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
    let shown = outcome.as_ref().err().map(ToString::to_string);
    Ended {
        outcome,
        repeated,
        refused: shown.is_some_and(|failure| notes.shows_refusal(&failure)),
    }
}

thread_local! {
    /// Whether this thread is polling a case.
    static IN_CASE: Cell<bool> = const { Cell::new(false) };
    /// The message and location of the last panic of a case on this thread.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The message of a caught panic that is raised again on another thread.
struct PassedOn(String);

/// Awaits a future and converts a panic into its message, with the location.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    note_panics();
    let mut future = pin!(future);
    poll_fn(|context| {
        let before = IN_CASE.replace(true);
        // A future that has panicked is not polled again, so its broken state is never seen.
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

/// Installs a panic hook that does not print the panics of cases where they happen, so that they
/// are shown once: as the failure of their case.
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

/// Spawns the futures that `make` returns for 0..`count`, starts them all at the same moment, and
/// returns their results in order.
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
    // Awaits all tasks, even if one has failed, so that none outlives its database.
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

/// Creates a runtime with real parallelism, so that races can happen.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the operating system gives a few threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place_also_from_a_racer() {
        let told = runtime().block_on(caught(async {
            race(3, |racer| async move {
                assert_ne!(racer, 1, "this one is wrong");
            })
            .await
        }));
        let message = told.unwrap_err();
        assert!(message.contains("this one is wrong"), "{message}");
        assert!(message.contains("runner.rs:"), "{message}");
    }
}
