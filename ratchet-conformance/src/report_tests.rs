//! Tests of the report. They are in a separate file because other programs compile `report.rs` too.

use std::collections::BTreeMap;

use crate::report::{CaseResult, Report, Verdict};

fn result(store: &str, case: &str, verdict: Verdict) -> CaseResult {
    CaseResult {
        store: store.to_owned(),
        case: case.to_owned(),
        clauses: vec!["claim.due".to_owned()],
        verdict,
        detail: None,
        blamed: Vec::new(),
        repeated: 0,
    }
}

fn verdicts(results: Vec<CaseResult>) -> Vec<Verdict> {
    let report = Report { results };
    let clauses = report.clauses().into_values();
    clauses.flat_map(BTreeMap::into_values).collect()
}

#[test]
fn a_clause_is_as_good_as_its_worst_case() {
    use Verdict::{Fail, Missing, NotApplicable, Partial, Pass};
    for (cases, expected) in [
        (&[Pass, Fail] as &[_], Fail),
        (&[Missing, Fail], Fail),
        (&[Pass, NotApplicable], Partial),
        (&[Pass, Missing], Partial),
        (&[NotApplicable], NotApplicable),
        (&[NotApplicable, Missing], Missing),
        (&[Missing, NotApplicable], Missing),
        (&[Missing], Missing),
        (&[Pass, Pass], Pass),
    ] {
        let of_case =
            |(number, verdict): (usize, &Verdict)| result("a", &number.to_string(), *verdict);
        let results = cases.iter().enumerate().map(of_case).collect();
        assert_eq!(verdicts(results), [expected], "{cases:?}");
    }
}

#[test]
fn a_failed_case_breaks_only_the_clauses_of_its_assertion() {
    let mut failed = result("a", "1", Verdict::Fail);
    failed.clauses.push("claim.order".to_owned());
    failed.blamed.push("claim.order".to_owned());
    let results = vec![failed, result("a", "2", Verdict::Pass)];
    assert_eq!(verdicts(results), [Verdict::Partial, Verdict::Fail]);
}

#[test]
fn the_table_lists_failures_reasons_and_repeats() {
    let why = |mut result: CaseResult, detail: &str| {
        result.detail = Some(detail.to_owned());
        result
    };
    let mut slow = result("a", "3", Verdict::Pass);
    slow.repeated = 12;
    let results = vec![
        why(
            result("a", "1", Verdict::Fail),
            "left is not right\n  at x.rs",
        ),
        why(result("a", "2", Verdict::NotApplicable), "needs Vandal"),
        slow,
        why(result("a", "4", Verdict::NotApplicable), "needs Vandal"),
        why(result("b", "1", Verdict::Missing), "URL is not set"),
    ];
    let expected = "| clause | a | b |\n|---|---|---|\n| claim.due | FAIL | MISSING |\n\
        \nFAIL:\n\n- a 1: left is not right\n\
        \nN-A:\n\n- a: needs Vandal (2 cases)\n\
        \nMISSING:\n\n- b: URL is not set (1 case)\n\
        \nRepeated after contention or a timeout:\n\n- a: 12 calls repeated in 1 case\n";
    assert_eq!(Report { results }.table(), expected);
}

#[test]
fn a_later_result_replaces_the_earlier_one() {
    let report = |verdict| Report {
        results: vec![result("a", "1", verdict)],
    };
    let mut merged = report(Verdict::Fail);
    merged.merge(report(Verdict::Pass));
    assert_eq!(merged, report(Verdict::Pass));
}
