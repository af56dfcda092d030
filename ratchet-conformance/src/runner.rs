//! Runs one case: its deadline, its panics, its cleaning up, and the list that a test runner sees.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::fixture::BoxError;
use crate::report::{CaseResult, Recorder, Verdict};
use crate::{Case, Power, Provision};

/// How long a case may take before it counts as hanging.
const DEADLINE: Duration = Duration::from_secs(300);

/// What a case is given.
#[async_trait]
pub(crate) trait Context: Send + Sync + Sized + 'static {
    /// Takes away what the case used.
    async fn clean_up(&self);
}

/// Makes the context of a case.
pub(crate) type Setup<C> = dyn Fn() -> BoxFuture<'static, Result<C, BoxError>> + Send + Sync;

/// Why a case failed: the message of its assertion, or what kept it from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Runs a case from its setup to its cleaning up.
pub(crate) async fn check<C: Context>(case: &Case<C>, setup: &Setup<C>) -> Result<(), Failure> {
    let context = setup()
        .await
        .map_err(|error| Failure(format!("the fixture cannot be made: {error}")))?;
    let body = tokio::time::timeout(DEADLINE, (case.body)(&context));
    let ended = caught(body).await;
    context.clean_up().await;
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Failure(format!("still not done after {DEADLINE:?}"))),
        Err(message) => Err(Failure(message)),
    }
}

thread_local! {
    /// Where and why this thread last panicked.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The message of a panic that was caught elsewhere and is passed on.
struct PassedOn(String);

/// Awaits a future and turns its panic into the message, with the place if the hook noted it.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(future)
        .catch_unwind()
        .await
        .map_err(|payload| message(&*payload))
}

fn message(payload: &(dyn Any + Send)) -> String {
    // The panic was caught on the thread it happened on, within the same poll.
    let noted = LAST_PANIC.take();
    if let Some(PassedOn(message)) = payload.downcast_ref() {
        return message.clone();
    }
    let text = || {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned())
    };
    noted
        .or_else(text)
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Notes panics in place of printing them, so that they show once: as the failure of their case.
fn note_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        let text = info.payload_as_str().unwrap_or("a panic without a message");
        let note = format!("{text}\n  at {}", place.unwrap_or_default());
        LAST_PANIC.set(Some(note));
    }));
}

/// Spawns the futures that `make` gives for 0..`count` and lets them all go at the same moment;
/// their answers, in order.
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
    let mut answers = Vec::with_capacity(count);
    for racer in racers {
        match racer.await {
            Ok(Ok(answer)) => answers.push(answer),
            Ok(Err(message)) => panic::resume_unwind(Box::new(PassedOn(message))),
            Err(error) => panic::resume_unwind(error.into_panic()),
        }
    }
    answers
}

/// A runtime with real parallelism, so that races are races.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the operating system gives a few threads")
}

/// What a suite is about.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) powers: Vec<Power>,
}

/// Lists or runs the cases as the command line says.
pub(crate) fn run<C: Context>(
    subject: Subject,
    cases: impl Iterator<Item = &'static Case<C>>,
    provision: Provision<Arc<Setup<C>>>,
) -> ExitCode {
    note_panics();
    let arguments = Arguments::from_args();
    let recorder = Recorder::new(&subject.name);
    // A listing, or a run of everything, begins a new report; nextest lists before it runs.
    let fresh = arguments.list || (arguments.filter.is_none() && arguments.skip.is_empty());
    if fresh {
        recorder.clear();
    }
    let subject = Arc::new(subject);
    let trials = cases
        .map(|case| trial(&subject, case, &provision, &recorder, fresh))
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial<C: Context>(
    subject: &Arc<Subject>,
    case: &'static Case<C>,
    provision: &Provision<Arc<Setup<C>>>,
    recorder: &Recorder,
    fresh: bool,
) -> Trial {
    let name = case.full_name();
    let result = {
        let store = subject.name.clone();
        move |verdict, detail| CaseResult {
            store,
            case: case.full_name(),
            clauses: case.clauses.iter().map(ToString::to_string).collect(),
            verdict,
            detail,
        }
    };
    let not_applicable = match (case.lacks(&subject.powers), provision) {
        (Some(power), _) => Some(format!("needs {power:?}")),
        (None, Provision::Unavailable(reason)) if !is_required(&subject.name) => {
            Some(reason.clone())
        }
        (None, _) => None,
    };
    if let Some(reason) = not_applicable {
        if fresh {
            recorder.record(&result(Verdict::NotApplicable, Some(reason.clone())));
        }
        let kind = reason.clone();
        return Trial::ignorable_test(name, move || Ok(Completion::ignored_with(reason)))
            .with_kind(kind)
            .with_ignored_flag(true);
    }
    let (subject, provision) = (Arc::clone(subject), provision.clone());
    let recorder = recorder.clone();
    Trial::test(name, move || {
        let outcome = match provision {
            Provision::Ready(setup) => runtime().block_on(check(case, &*setup)),
            Provision::Unavailable(reason) => {
                Err(Failure(format!("required, but not available: {reason}")))
            }
        };
        let (verdict, detail) = match &outcome {
            Ok(()) => (Verdict::Pass, None),
            Err(failure) => (Verdict::Fail, Some(failure.to_string())),
        };
        recorder.record(&result(verdict, detail));
        outcome.map_err(|failure| {
            let clauses = case.clauses.join(", ");
            Failed::from(format!("{} breaks [{clauses}]\n{failure}", subject.name))
        })
    })
}

/// Whether `RATCHET_REQUIRE` says that this store must be available: `1`, `true`, or a list of names
/// with this one in it.
fn is_required(name: &str) -> bool {
    let required = std::env::var("RATCHET_REQUIRE").unwrap_or_default();
    required
        .split(',')
        .map(str::trim)
        .any(|word| word == "1" || word == "true" || word == name)
}
