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
    /// Whether the suite runs the exempted cases. If `true`, each of these cases must fail.
    pub(crate) runs: bool,
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

    /// Returns the exemption that applies to `case`, or `None`. An exemption of the case itself
    /// takes precedence over an exemption of its group.
    fn exemption<C>(&self, case: &Case<C>) -> Option<&Exemption> {
        let of_case = |one: &&Exemption| one.name == case.full_name();
        let of_group = |one: &&Exemption| one.name == case.group;
        let all = || self.exemptions.iter();
        all().find(of_case).or_else(|| all().find(of_group))
    }
}

/// The way in which the suite handles a case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// The suite runs the case, which must pass.
    Run,
    /// The suite runs the case, which must fail because the store is exempted from it.
    Exempt(Exemption),
    /// The suite does not run the case, and reports this verdict and this reason.
    Skip(Verdict, String),
}

fn plan<C, T>(subject: &Subject, case: &Case<C>, provision: &Provision<T>) -> Plan {
    let exemption = subject.exemption(case);
    if let Some(power) = case.lacks(&subject.powers) {
        return Plan::Skip(Verdict::NotApplicable, format!("needs {power:?}"));
    }
    if let Some(never) = exemption.filter(|one| !one.runs) {
        return Plan::Skip(Verdict::NotApplicable, never.reason.clone());
    }
    match (provision, exemption) {
        (Provision::Unavailable(reason), _) if !subject.required => {
            Plan::Skip(Verdict::Missing, reason.clone())
        }
        (_, Some(exemption)) => Plan::Exempt(exemption.clone()),
        (_, None) => Plan::Run,
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
            Plan::Run => trial(&subject, case, None, provision, &recorder),
            Plan::Exempt(exemption) => trial(&subject, case, Some(exemption), provision, &recorder),
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

/// Creates a trial that runs `case`. If there is an `exemption`, the case must fail.
fn trial<C: Context>(
    subject: &Arc<Subject>,
    case: &'static Case<C>,
    exemption: Option<Exemption>,
    provision: &Provision<Arc<Setup<C>>>,
    recorder: &Recorder,
) -> Trial {
    let (subject, provision) = (Arc::clone(subject), provision.clone());
    let recorder = recorder.clone();
    Trial::ignorable_test(case.full_name(), move || {
        // Records a failure first. If the process is killed during the case, this result remains.
        let unfinished = Some("the process ended before the case did".to_owned());
        recorder.record(&result(&subject, case, Verdict::Fail, unfinished));
        let ended = match provision {
            Provision::Ready(setup) => runtime().block_on(run_case(case, &*setup)),
            Provision::Unavailable(reason) => {
                let message = format!("required, but not available: {reason}");
                Ended::without_running(case, message)
            }
        };
        let repeated = ended.repeated;
        let (outcome, excused) = match &exemption {
            Some(exemption) => judge_exempted(ended, case, exemption),
            None => (ended.outcome, None),
        };
        let (verdict, detail) = match (&outcome, &excused) {
            (Ok(()), None) => (Verdict::Pass, None),
            (Ok(()), Some(reason)) => (Verdict::NotApplicable, Some(reason.clone())),
            (Err(failure), _) => (Verdict::Fail, Some(failure.to_string())),
        };
        let mut result = result(&subject, case, verdict, detail);
        result.repeated = repeated;
        if let Err(failure) = &outcome {
            result.blamed = failure.clauses().iter().map(ToString::to_string).collect();
        }
        recorder.record(&result);
        match outcome {
            Ok(()) => Ok(excused.map_or(Completion::Completed, Completion::ignored_with)),
            Err(failure) => Err(Failed::from(explain(&subject.name, case, &failure))),
        }
    })
}

/// Checks the result of a case from which the store is exempted.
///
/// Returns the reason of the exemption if the case failed because the store refused a call. Returns
/// an error if the case passed or failed for another reason.
fn judge_exempted<C>(
    ended: Ended,
    case: &Case<C>,
    exemption: &Exemption,
) -> (Result<(), Failure>, Option<String>) {
    let Exemption { name, reason, .. } = exemption;
    let failed = |message: String| {
        let failure = Failure::new(Cause::Exemption, message, case.clauses.to_vec());
        (Err(failure), None)
    };
    let failure = match ended.outcome {
        Ok(()) if *name == case.full_name() => {
            return failed(format!(
                "the case passes although the store is exempted: remove `{name}` from \
                 `Suite::without`"
            ));
        }
        Ok(()) => {
            return failed(format!(
                "the case passes although the store is exempted: name the cases of `{name}` that \
                 fail in `Suite::without`, instead of the group"
            ));
        }
        Err(failure) => failure,
    };
    match failure.cause() {
        Cause::Broken if ended.refused => (Ok(()), Some(reason.clone())),
        Cause::Broken => {
            let beside = format!(
                "the exemption from `{name}` does not cover this: the failure shows no call that \
                 was refused with `Misconfigured`"
            );
            (Err(failure.with(&beside)), None)
        }
        Cause::Hanging => failed(format!(
            "{failure}; exempt it with `Suite::without_running`, which does not run it"
        )),
        Cause::Setup | Cause::Exemption => (Err(failure), None),
    }
}

/// Returns the text of a failure for the test runner. The text names the broken clauses, quotes the
/// contract, and describes the observed behavior.
fn explain<C>(store: &str, case: &Case<C>, failure: &Failure) -> String {
    match failure.cause() {
        Cause::Broken | Cause::Hanging => {}
        Cause::Exemption => {
            return format!("{store} has an exemption that it must not have\n{failure}");
        }
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
