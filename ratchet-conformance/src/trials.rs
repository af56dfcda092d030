//! Lists the cases for the test runner, and passes their results to the test runner and the report.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::recorder::Recorder;
use crate::report::{CaseResult, Verdict};
use crate::required::is_required;
use crate::runner::{Cause, Context, Ended, Failure, Setup, run_case, runtime};
use crate::{Case, Power, Provision, clauses};

/// The store or coordinator that a suite tests.
pub(crate) struct Subject {
    name: String,
    powers: Vec<Power>,
    exemptions: Vec<Exemption>,
    /// Whether the cases fail if the store or coordinator is not available. If `false`, the suite
    /// ignores the cases.
    required: bool,
}

/// An exemption of a store from a case or from a group of cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exemption {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Subject {
    pub(crate) fn new(name: String, powers: Vec<Power>, exemptions: Vec<Exemption>) -> Self {
        Self {
            required: is_required(&name),
            name,
            powers,
            exemptions,
        }
    }

    /// Returns the exemption that applies to `case`, or `None`.
    fn exemption<C>(&self, case: &Case<C>) -> Option<&Exemption> {
        let applies = |one: &&Exemption| one.name == case.group || one.name == case.full_name();
        self.exemptions.iter().find(applies)
    }
}

/// The way in which the suite handles a case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// The suite runs the case, which must pass.
    Run,
    /// The suite does not run the case, and reports this verdict and this reason.
    Skip(Verdict, String),
}

fn plan<C, T>(subject: &Subject, case: &Case<C>, provision: &Provision<T>) -> Plan {
    if let Some(power) = case.lacks(&subject.powers) {
        return Plan::Skip(Verdict::NotApplicable, format!("needs {power:?}"));
    }
    if let Some(exemption) = subject.exemption(case) {
        return Plan::Skip(Verdict::NotApplicable, exemption.reason.clone());
    }
    match provision {
        Provision::Unavailable(reason) if !subject.required => {
            Plan::Skip(Verdict::Missing, reason.clone())
        }
        _ => Plan::Run,
    }
}

/// Lists or runs the cases that the command-line arguments select, and records their results.
///
/// A listing, or a run of all cases, first runs the case `check`. If `check` fails, no other case
/// is listed. Otherwise every case would fail for the same reason.
pub(crate) fn run<C: Context>(
    subject: Subject,
    check: &'static Case<C>,
    cases: impl Iterator<Item = &'static Case<C>>,
    provision: &Provision<Arc<Setup<C>>>,
) -> ExitCode {
    let arguments = Arguments::from_args();
    let recorder = Recorder::new(&subject.name);
    // A listing, or a run of all cases, starts a new report. Nextest lists the cases before it runs
    // them, so its listing starts the report.
    let fresh = arguments.list || (arguments.filter.is_none() && arguments.skip.is_empty());
    if fresh {
        recorder.clear();
    }
    let subject = Arc::new(subject);
    let usable = !fresh || is_usable(&subject, check, provision);
    let trials = std::iter::once(check)
        .chain(cases.filter(|_| usable))
        .map(|case| match plan(&subject, case, provision) {
            Plan::Skip(verdict, reason) => {
                if fresh {
                    recorder.record(&result(&subject, case, verdict, Some(reason.clone())));
                }
                ignored(case, reason)
            }
            Plan::Run => trial(&subject, case, provision, &recorder),
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns whether `check` passes, or need not pass because the store is not available.
fn is_usable<C: Context>(
    subject: &Subject,
    check: &Case<C>,
    provision: &Provision<Arc<Setup<C>>>,
) -> bool {
    match (plan(subject, check, provision), provision) {
        (Plan::Run, Provision::Ready(setup)) => {
            let ended = runtime().block_on(run_case(check, &**setup));
            ended.outcome.is_ok()
        }
        (Plan::Run, Provision::Unavailable(_)) => false,
        _ => true,
    }
}

/// Creates a trial that the test runner lists as ignored, with `reason` before the name of the
/// case.
fn ignored<C>(case: &Case<C>, reason: String) -> Trial {
    let kind = reason.clone();
    let run = move || Ok(Completion::ignored_with(reason));
    Trial::ignorable_test(case.full_name(), run)
        .with_kind(kind)
        .with_ignored_flag(true)
}

/// Creates a trial that runs `case`.
fn trial<C: Context>(
    subject: &Arc<Subject>,
    case: &'static Case<C>,
    provision: &Provision<Arc<Setup<C>>>,
    recorder: &Recorder,
) -> Trial {
    let (subject, provision) = (Arc::clone(subject), provision.clone());
    let recorder = recorder.clone();
    Trial::ignorable_test(case.full_name(), move || {
        // Records a failure first. If the process is killed during the case, this result remains.
        let unfinished = Some("the process ended before the case ended".to_owned());
        recorder.record(&result(&subject, case, Verdict::Fail, unfinished));
        let ended = match provision {
            Provision::Ready(setup) => runtime().block_on(run_case(case, &*setup)),
            Provision::Unavailable(reason) => {
                let message = format!("this place is required, but not available: {reason}");
                Ended::without_running(case, message)
            }
        };
        let (verdict, detail) = match &ended.outcome {
            Ok(()) => (Verdict::Pass, None),
            Err(failure) => (Verdict::Fail, Some(failure.to_string())),
        };
        let mut result = result(&subject, case, verdict, detail);
        result.repeated = ended.repeated;
        if let Err(failure) = &ended.outcome {
            result.blamed = failure.clauses().iter().map(ToString::to_string).collect();
        }
        recorder.record(&result);
        match ended.outcome {
            Ok(()) => Ok(Completion::Completed),
            Err(failure) => Err(Failed::from(explain(&subject.name, case, &failure))),
        }
    })
}

/// Returns the text of a failure for the test runner. The text names the broken clauses, quotes the
/// contract, and describes the observed behavior.
fn explain<C>(store: &str, case: &Case<C>, failure: &Failure) -> String {
    match failure.cause() {
        Cause::Broken | Cause::Hanging => {}
        Cause::Setup => {
            return format!(
                "{store} could not be tested with {}\n{failure}",
                case.full_name()
            );
        }
    }
    let broken = failure.clauses();
    let mut text = format!("{store} breaks [{}]\n", broken.join(", "));
    for clause in broken {
        if let Some(sentence) = clauses::sentence(clause) {
            let _ = writeln!(text, "  [{clause}] {sentence}");
        }
    }
    text + &failure.to_string()
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
        blamed: Vec::new(),
        repeated: 0,
    }
}

#[cfg(test)]
mod tests;
