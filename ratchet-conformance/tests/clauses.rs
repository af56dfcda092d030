//! The documented contract and the cases promise the same: no clause without a case, no case
//! without a clause, and no trait that is too large to implement.

use std::collections::BTreeSet;

use ratchet_conformance::{CoordinatorSuite, Suite};

/// Every source that documents clauses.
const SOURCES: &[&str] = &[
    include_str!("../../ratchet-core/src/store/mod.rs"),
    include_str!("../../ratchet-core/src/store/jobs.rs"),
    include_str!("../../ratchet-core/src/store/queues.rs"),
    include_str!("../../ratchet-core/src/store/nodes.rs"),
    include_str!("../../ratchet-core/src/store/locks.rs"),
    include_str!("../../ratchet-core/src/store/recurring.rs"),
    include_str!("../../ratchet-core/src/store/versions.rs"),
    include_str!("../../ratchet-core/src/store/archive.rs"),
    include_str!("../../ratchet-core/src/store/permits.rs"),
    include_str!("../../ratchet-core/src/store/rates.rs"),
    include_str!("../../ratchet-core/src/store/workflows.rs"),
    include_str!("../../ratchet-core/src/store/signals.rs"),
    include_str!("../../ratchet-core/src/store/diagnostics.rs"),
    include_str!("../../ratchet-core/src/cluster/mod.rs"),
];

/// The ids of the clauses, which stand in the documentation as `**[claim.order]**`.
fn documented() -> Vec<&'static str> {
    let clauses = |source: &'static str| {
        source
            .split("**[")
            .skip(1)
            .filter_map(|rest| rest.split_once("]**").map(|(id, _)| id))
    };
    SOURCES.iter().copied().flat_map(clauses).collect()
}

fn proved() -> BTreeSet<&'static str> {
    let stores = Suite::cases().flat_map(|case| case.clauses);
    let coordinators = CoordinatorSuite::cases().flat_map(|case| case.clauses);
    stores.chain(coordinators).copied().collect()
}

#[test]
fn every_clause_is_documented_once() {
    let all = documented();
    let once: BTreeSet<_> = all.iter().collect();
    assert!(!all.is_empty());
    assert_eq!(all.len(), once.len(), "a clause id stands twice");
}

#[test]
fn every_clause_has_a_case() {
    let proved = proved();
    let unproved: Vec<_> = documented()
        .into_iter()
        .filter(|id| !proved.contains(id))
        .collect();
    assert_eq!(unproved, [""; 0], "documented, but no case proves it");
}

#[test]
fn every_case_proves_a_documented_clause() {
    let documented: BTreeSet<_> = documented().into_iter().collect();
    let unknown: Vec<_> = proved().difference(&documented).copied().collect();
    assert_eq!(unknown, [""; 0], "no trait documents it");
}

#[test]
fn case_names_are_unique_sentences() {
    let mut names = BTreeSet::new();
    for case in Suite::cases() {
        assert!(names.insert(case.full_name()), "{case:?} is declared twice");
        assert!(
            case.name.contains('_') && !case.name.starts_with("test_"),
            "{case:?}"
        );
    }
}
