//! Runs one case: its deadline, its panics, its cleaning up, and the list that a test runner sees.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::fixture::BoxError;
use crate::report::{CaseResult, Recorder, Verdict};
use crate::{Case, Power, Provision};

/// How long a case may take before it counts as hanging; `RATCHET_CASE_SECONDS` says otherwise.
fn deadline() -> Duration {
    let seconds = std::env::var("RATCHET_CASE_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(300))
}

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
    let deadline = deadline();
    let body = tokio::time::timeout(deadline, (case.body)(&context));
    let ended = caught(body).await;
    let cleaned = tokio::time::timeout(deadline, context.clean_up()).await;
    match ended {
        Ok(Ok(())) if cleaned.is_err() => {
            Err(Failure(format!("its cleaning up hangs after {deadline:?}")))
        }
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Failure(format!("still not done after {deadline:?}"))),
        Err(message) => Err(Failure(message)),
    }
}

thread_local! {
    /// Whether this thread is running a part of a case.
    static IN_CASE: Cell<bool> = const { Cell::new(false) };
    /// Where and why a case last panicked on this thread.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The message of a panic that was caught elsewhere and is passed on.
struct PassedOn(String);

/// Awaits a future and turns its panic into the message, with the place.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    note_panics();
    let mut future = pin!(future);
    poll_fn(|context| {
        let before = IN_CASE.replace(true);
        // A future that has panicked is not polled again, so nothing sees it half changed.
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

/// Keeps the panics of cases from being printed where they happen, so that they show once: as the
/// failure of their case.
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
    let mut ended = Vec::with_capacity(count);
    // All of them, also when one has failed, so that none outlives its database.
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
    name: String,
    powers: Vec<Power>,
    /// What it refuses to do.
    without: Vec<Without>,
    /// Whether being unavailable is a failure.
    required: bool,
}

/// A group of cases, or a case, that a store cannot run.
#[derive(Clone, Debug)]
pub(crate) struct Without {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Subject {
    pub(crate) fn new(name: String, powers: Vec<Power>, without: Vec<Without>) -> Self {
        let required = std::env::var("RATCHET_REQUIRE").unwrap_or_default();
        Self {
            required: requires(&required, &name),
            name,
            powers,
            without,
        }
    }

    /// Why it cannot run this case, if it said so.
    fn refuses<C>(&self, case: &Case<C>) -> Option<String> {
        let names =
            |without: &&Without| without.name == case.group || without.name == case.full_name();
        let refused = self.without.iter().find(names)?;
        Some(refused.reason.clone())
    }
}

/// Whether a value of `RATCHET_REQUIRE` says that this store must be available: `1`, `true`, or a
/// list of names with this one in it.
fn requires(value: &str, name: &str) -> bool {
    value
        .split(',')
        .map(str::trim)
        .any(|word| word == "1" || word == "true" || word == name)
}

/// Lists or runs the cases as the command line says.
pub(crate) fn run<C: Context>(
    subject: Subject,
    cases: impl Iterator<Item = &'static Case<C>>,
    provision: &Provision<Arc<Setup<C>>>,
) -> ExitCode {
    let arguments = Arguments::from_args();
    let recorder = Recorder::new(&subject.name);
    // A listing, or a run of everything, begins a new report; nextest lists before it runs.
    let fresh = arguments.list || (arguments.filter.is_none() && arguments.skip.is_empty());
    if fresh {
        recorder.clear();
    }
    let subject = Arc::new(subject);
    let trials = cases
        .map(|case| match not_applicable(&subject, case, provision) {
            Some(reason) => {
                if fresh {
                    let verdict = Verdict::NotApplicable;
                    recorder.record(&result(&subject, case, verdict, Some(reason.clone())));
                }
                ignored(case, reason)
            }
            None => trial(&subject, case, provision, &recorder),
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Why the case cannot run here, if it cannot and need not.
fn not_applicable<C, T>(
    subject: &Subject,
    case: &Case<C>,
    provision: &Provision<T>,
) -> Option<String> {
    if let Some(reason) = subject.refuses(case) {
        return Some(reason);
    }
    match (case.lacks(&subject.powers), provision) {
        (Some(power), _) => Some(format!("needs {power:?}")),
        (None, Provision::Unavailable(reason)) => (!subject.required).then(|| reason.clone()),
        (None, Provision::Ready(_)) => None,
    }
}

/// A case that is listed as ignored, with the reason in front of its name.
fn ignored<C>(case: &Case<C>, reason: String) -> Trial {
    let kind = reason.clone();
    let run = move || Ok(Completion::ignored_with(reason));
    Trial::ignorable_test(case.full_name(), run)
        .with_kind(kind)
        .with_ignored_flag(true)
}

fn trial<C: Context>(
    subject: &Arc<Subject>,
    case: &'static Case<C>,
    provision: &Provision<Arc<Setup<C>>>,
    recorder: &Recorder,
) -> Trial {
    let (subject, provision) = (Arc::clone(subject), provision.clone());
    let recorder = recorder.clone();
    Trial::test(case.full_name(), move || {
        // What stays if the process is killed.
        let unfinished = Some("it did not come to an end".to_owned());
        recorder.record(&result(&subject, case, Verdict::Fail, unfinished));
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
        recorder.record(&result(&subject, case, verdict, detail));
        outcome.map_err(|failure| {
            let clauses = case.clauses.join(", ");
            Failed::from(format!("{} breaks [{clauses}]\n{failure}", subject.name))
        })
    })
}

fn result<C>(
    subject: &Subject,
    case: &Case<C>,
    verdict: Verdict,
    detail: Option<String>,
) -> CaseResult {
    CaseResult {
        store: subject.name.clone(),
        case: case.full_name(),
        clauses: case.clauses.iter().map(ToString::to_string).collect(),
        verdict,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::{Cx, Suite};

    const UNAVAILABLE: &str = "MYSTORE_TEST_URL is not set";

    fn subject(required: bool) -> Arc<Subject> {
        Arc::new(Subject {
            name: "mystore".to_owned(),
            powers: vec![Power::Clock],
            without: Vec::new(),
            required,
        })
    }

    #[test]
    fn a_case_the_store_refuses_is_listed_as_ignored_with_its_reason() {
        let refusing = |name: &str| Subject {
            name: "mystore".to_owned(),
            powers: Power::STORE.to_vec(),
            without: vec![Without {
                name: name.to_owned(),
                reason: "needs more".to_owned(),
            }],
            required: true,
        };
        let case = Suite::cases().next().unwrap();
        let ready = Provision::Ready(());
        let why = |name: &str| not_applicable(&refusing(name), case, &ready);
        assert_eq!(why(case.group).as_deref(), Some("needs more"));
        assert_eq!(why(&case.full_name()).as_deref(), Some("needs more"));
        assert_eq!(why("lock"), None);
    }

    fn case(needs: &[Power]) -> &'static Case<Cx> {
        Suite::cases().find(|case| case.needs == needs).unwrap()
    }

    #[test]
    fn a_case_without_its_power_is_listed_as_ignored_with_the_reason() {
        let ready = Provision::Ready(());
        assert_eq!(
            not_applicable(&subject(true), case(&[Power::Clock]), &ready),
            None
        );
        let vandal = case(&[Power::Vandal]);
        let reason = not_applicable(&subject(true), vandal, &ready).unwrap();
        let listed = ignored(vandal, reason);
        assert_eq!(
            (listed.kind(), listed.name()),
            ("needs Vandal", &*vandal.full_name())
        );
        assert!(listed.has_ignored_flag());
    }

    #[test]
    fn an_absent_database_ignores_every_case_unless_it_is_required() {
        let absent = Provision::<()>::unavailable(UNAVAILABLE);
        let reason = not_applicable(&subject(false), case(&[]), &absent);
        assert_eq!(reason.as_deref(), Some(UNAVAILABLE));
        assert_eq!(not_applicable(&subject(true), case(&[]), &absent), None);
    }

    #[test]
    fn an_absent_but_required_database_fails_every_case() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::in_dir(dir.path(), "mystore");
        let case = case(&[]);
        let trial = trial(
            &subject(true),
            case,
            &Provision::unavailable(UNAVAILABLE),
            &recorder,
        );
        let conclusion = libtest_mimic::run(&Arguments::default(), vec![trial]);
        assert_eq!(conclusion.num_failed, 1);
        let report = Report::read_dir(dir.path()).unwrap();
        assert_eq!(report.results[0].verdict, Verdict::Fail);
        assert!(
            report.results[0]
                .detail
                .as_ref()
                .unwrap()
                .contains(UNAVAILABLE)
        );
    }

    /// Reads its own report while it runs.
    struct Nosy(std::path::PathBuf);

    #[async_trait]
    impl Context for Nosy {
        async fn clean_up(&self) {}
    }

    static NOSY: Case<Nosy> = Case {
        group: "report",
        name: "a_case_is_failed_until_it_has_ended",
        clauses: &[],
        needs: &[],
        body: |nosy| {
            Box::pin(async {
                let report = Report::read_dir(&nosy.0).unwrap();
                assert_eq!(report.results[0].verdict, Verdict::Fail);
            })
        },
    };

    #[test]
    fn a_killed_case_leaves_a_failure_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let setup: Arc<Setup<Nosy>> = Arc::new(move || {
            let path = path.clone();
            Box::pin(async { Ok(Nosy(path)) })
        });
        let recorder = Recorder::in_dir(dir.path(), "mystore");
        let trial = trial(&subject(true), &NOSY, &Provision::Ready(setup), &recorder);
        let conclusion = libtest_mimic::run(&Arguments::default(), vec![trial]);
        assert_eq!(conclusion.num_passed, 1);
        let report = Report::read_dir(dir.path()).unwrap();
        assert_eq!(report.results[0].verdict, Verdict::Pass);
    }

    #[test]
    fn stores_are_required_all_or_by_name() {
        for (value, required) in [
            ("", false),
            ("0", false),
            ("other", false),
            ("1", true),
            ("true", true),
            ("mystore", true),
            ("other, mystore", true),
        ] {
            assert_eq!(requires(value, "mystore"), required, "{value:?}");
        }
    }

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
