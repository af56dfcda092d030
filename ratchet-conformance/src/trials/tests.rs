use async_trait::async_trait;
use ratchet_core::SharedStore;
use ratchet_core::StoreErrorKind::Contention;
use ratchet_core::memory::{Fault, MemoryStore};

use super::*;
use crate::notes::Notes;
use crate::report::Report;
use crate::{BoxError, Cx, Factory, Fixture, MemoryFixture, Suite};

const UNAVAILABLE: &str = "MYSTORE_TEST_URL is not set";

fn subject(required: bool) -> Arc<Subject> {
    Arc::new(Subject {
        name: "mystore".to_owned(),
        powers: vec![Power::Clock],
        exemptions: Vec::new(),
        required,
    })
}

fn case(needs: &[Power]) -> &'static Case<Cx> {
    Suite::cases().find(|case| case.needs == needs).unwrap()
}

#[test]
fn an_exempted_case_is_not_run() {
    let exempted = |name: &str| Subject {
        name: "mystore".to_owned(),
        powers: Power::STORE.to_vec(),
        exemptions: vec![Exemption {
            name: name.to_owned(),
            reason: "needs more".to_owned(),
        }],
        required: true,
    };
    let case = Suite::cases().next().unwrap();
    let ready = Provision::Ready(());
    for name in [case.group, &case.full_name()] {
        let skipped = Plan::Skip(Verdict::NotApplicable, "needs more".to_owned());
        assert_eq!(plan(&exempted(name), case, &ready), skipped);
    }
    assert_eq!(plan(&exempted("lock"), case, &ready), Plan::Run);
}

#[test]
fn a_case_without_its_power_is_listed_as_ignored_with_the_reason() {
    let ready = Provision::Ready(());
    assert_eq!(
        plan(&subject(true), case(&[Power::Clock]), &ready),
        Plan::Run
    );
    let vandal = case(&[Power::Vandal]);
    let Plan::Skip(verdict, reason) = plan(&subject(true), vandal, &ready) else {
        panic!("it cannot run");
    };
    assert_eq!(verdict, Verdict::NotApplicable);
    let listed = ignored(vandal, reason);
    assert_eq!(
        (listed.kind(), listed.name()),
        ("needs Vandal", &*vandal.full_name())
    );
    assert!(listed.has_ignored_flag());
}

#[test]
fn an_absent_database_is_missing_unless_it_is_required() {
    let absent = Provision::<()>::unavailable(UNAVAILABLE);
    assert_eq!(
        plan(&subject(false), case(&[]), &absent),
        Plan::Skip(Verdict::Missing, UNAVAILABLE.to_owned())
    );
    let vandal = plan(&subject(false), case(&[Power::Vandal]), &absent);
    let lacks = Plan::Skip(Verdict::NotApplicable, "needs Vandal".to_owned());
    assert_eq!(vandal, lacks);
    assert_eq!(plan(&subject(true), case(&[]), &absent), Plan::Run);
}

/// Runs one case. Returns the test runner's conclusion and the case's result from the report.
fn run_one<C: Context>(
    case: &'static Case<C>,
    provision: &Provision<Arc<Setup<C>>>,
) -> (libtest_mimic::Conclusion, CaseResult) {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::in_dir(dir.path(), "mystore");
    let trial = trial(&subject(true), case, provision, &recorder);
    let conclusion = libtest_mimic::run(&Arguments::default(), vec![trial]);
    let mut report = Report::read_dir(dir.path()).unwrap();
    (conclusion, report.results.remove(0))
}

#[test]
fn an_absent_but_required_database_fails_every_case() {
    let absent = Provision::unavailable(UNAVAILABLE);
    let (conclusion, result) = run_one(case(&[]), &absent);
    assert_eq!(conclusion.num_failed, 1);
    assert_eq!(result.verdict, Verdict::Fail);
    assert!(result.detail.unwrap().contains(UNAVAILABLE));
}

/// A context without any resources, for the cases in this file.
#[derive(Default)]
struct Probe(Notes);

#[async_trait]
impl Context for Probe {
    async fn clean_up(&self) {}

    fn notes(&self) -> &Notes {
        &self.0
    }
}

fn probe() -> Provision<Arc<Setup<Probe>>> {
    Provision::Ready(Arc::new(|| Box::pin(async { Ok(Probe::default()) })))
}

const BASE: Case<Probe> = Case {
    group: "probe",
    name: "passes_always",
    clauses: &["claim.due", "claim.order"],
    needs: &[],
    body: |_| Box::pin(async {}),
};

static PASSES: Case<Probe> = BASE;

static FAILS: Case<Probe> = Case {
    name: "fails_always",
    body: |probe| {
        Box::pin(async {
            probe.0.proving(&["claim.order"]);
            panic!("planned failure of the case");
        })
    },
    ..BASE
};

static HANGS: Case<Probe> = Case {
    name: "hangs_always",
    body: |_| Box::pin(std::future::pending()),
    ..BASE
};

static CONFUSED: Case<Probe> = Case {
    name: "names_another_clause",
    body: |probe| {
        Box::pin(async {
            probe.0.proving(&["claim.dew"]);
            panic!("planned failure of the case");
        })
    },
    ..BASE
};

#[test]
fn no_case_is_listed_for_a_subject_that_cannot_be_tested() {
    let usable =
        |required, check, provision: &Provision<_>| is_usable(&subject(required), check, provision);
    assert!(usable(true, &PASSES, &probe()));
    assert!(!usable(true, &FAILS, &probe()));
    let absent = Provision::unavailable(UNAVAILABLE);
    assert!(!usable(true, &PASSES, &absent));
    // A usable subject's cases are then all listed as ignored, with the reason.
    assert!(usable(false, &PASSES, &absent));
}

#[test]
fn every_power_that_differs_is_named_with_who_lacks_it() {
    let factory = Factory::new(|| async { Ok(MemoryFixture::new()) });
    let mut powers = Power::MEMORY.to_vec();
    powers.retain(|power| *power != Power::Rates);
    powers.push(Power::Vandal);
    let check = async |powers: &[Power]| {
        let checked = Suite::check(&crate::cases::SETUP, powers, factory.clone()).await;
        checked.err().map(|failure| failure.to_string())
    };
    runtime().block_on(async {
        assert_eq!(check(Power::MEMORY).await, None);
        let failure = check(&powers).await.unwrap();
        let lacks = "the suite lists the power Vandal, but the fixture lacks it";
        assert!(failure.contains(lacks), "{failure}");
        powers.retain(|power| *power != Power::Vandal);
        let failure = check(&powers).await.unwrap();
        let has = "the store has the power Rates, but the suite does not list it";
        assert!(failure.contains(has), "{failure}");
    });
}

#[test]
fn a_failure_breaks_the_clauses_of_its_assertion_and_quotes_them() {
    let ended = runtime().block_on(run_case(&FAILS, &|| {
        Box::pin(async { Ok(Probe::default()) })
    }));
    let failure = ended.outcome.unwrap_err();
    assert_eq!(failure.clauses(), ["claim.order"]);
    let told = explain("mystore", &FAILS, &failure);
    let sentence = clauses::sentence("claim.order").unwrap();
    let expected = format!(
        "mystore breaks [claim.order]\n  [claim.order] {sentence}\nplanned failure of the case\n  \
         at "
    );
    assert!(told.starts_with(&expected), "{told}");
    let (_, result) = run_one(&FAILS, &probe());
    assert_eq!(result.blamed, ["claim.order"]);
    assert_eq!(result.clauses, ["claim.due", "claim.order"]);
}

#[test]
fn a_case_that_names_a_clause_it_does_not_prove_fails_itself() {
    let (conclusion, result) = run_one(&CONFUSED, &probe());
    assert_eq!(conclusion.num_failed, 1);
    let detail = result.detail.unwrap();
    assert!(
        detail.contains(
            "claim.dew, but does not list it among the clauses that it proves; the \
             case also failed: planned failure of the case"
        ),
        "{detail}"
    );
}

/// A context whose cleanup never ends.
struct Untidy(Notes);

#[async_trait]
impl Context for Untidy {
    async fn clean_up(&self) {
        std::future::pending::<()>().await;
    }

    fn notes(&self) -> &Notes {
        &self.0
    }
}

static UNTIDY: Case<Untidy> = Case {
    group: "probe",
    name: "leaves_something_behind",
    clauses: &[],
    needs: &[],
    body: |_| Box::pin(async {}),
};

#[tokio::test(start_paused = true)]
async fn a_case_has_a_time_limit_for_each_of_its_parts() {
    let began = ratchet_core::time::monotonic();
    let stuck = run_case::<Probe>(&PASSES, &|| Box::pin(std::future::pending())).await;
    let stuck = stuck.outcome.unwrap_err();
    assert_eq!(stuck.cause(), Cause::Setup);
    assert!(
        stuck.to_string().contains("was not created within 240s"),
        "{stuck}"
    );
    let hanging = run_case(&HANGS, &|| Box::pin(async { Ok(Probe::default()) })).await;
    assert_eq!(hanging.outcome.unwrap_err().cause(), Cause::Hanging);
    let untidy = || {
        Box::pin(async { Ok(Untidy(Notes::default())) })
            as futures_util::future::BoxFuture<'static, _>
    };
    let untidy = run_case(&UNTIDY, &untidy).await.outcome.unwrap_err();
    assert_eq!(untidy.cause(), Cause::Setup);
    assert!(untidy.to_string().contains("teardown"), "{untidy}");
    // Nextest ends a test after 300 seconds, so each of the three cases must fail earlier.
    assert!(began.elapsed() < 3 * std::time::Duration::from_secs(285));
}

/// A fixture whose store fails every second call with contention.
struct Contended(MemoryStore);

#[async_trait]
impl Fixture for Contended {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(self.0.clone()))
    }
}

#[test]
fn the_report_says_how_many_calls_were_repeated() {
    let setup: Arc<Setup<Cx>> = Arc::new(|| {
        let factory = Factory::new(|| async {
            let calls = std::sync::atomic::AtomicU64::new(0);
            let store = MemoryStore::new().with_faults(move |_| {
                let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                match call % 2 {
                    0 => Fault::Failure(Contention),
                    _ => Fault::None,
                }
            });
            Ok(Contended(store))
        });
        let optional = &Power::MEMORY[1..];
        Box::pin(Cx::create(
            factory,
            optional.to_vec(),
            crate::suite::Settings::DEFAULT,
        ))
    });
    let case = Suite::case("page::every_id_is_answered_in_order").unwrap();
    let (conclusion, result) = run_one(case, &Provision::Ready(setup));
    // Two calls were repeated. The core answers the third, which has no ids, without the store.
    assert_eq!((conclusion.num_passed, result.repeated), (1, 2));
}

/// A context with the report's directory, so that a case can read its own result while it runs.
struct Nosy(std::path::PathBuf, Notes);

#[async_trait]
impl Context for Nosy {
    async fn clean_up(&self) {}

    fn notes(&self) -> &Notes {
        &self.1
    }
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
        Box::pin(async { Ok(Nosy(path, Notes::default())) })
    });
    let recorder = Recorder::in_dir(dir.path(), "mystore");
    let ready = Provision::Ready(setup);
    let trial = trial(&subject(true), &NOSY, &ready, &recorder);
    let conclusion = libtest_mimic::run(&Arguments::default(), vec![trial]);
    assert_eq!(conclusion.num_passed, 1);
    let report = Report::read_dir(dir.path()).unwrap();
    assert_eq!(report.results[0].verdict, Verdict::Pass);
}
