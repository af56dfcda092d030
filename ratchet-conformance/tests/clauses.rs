//! Compares the documented contract with the cases. Every clause has a case, every case proves
//! documented clauses, and no trait has too many methods.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::{env, fs};

use ratchet_conformance::{CoordinatorSuite, Suite, sentence};

/// Every source file that documents clauses.
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
    include_str!("../../ratchet-core/src/store/transactions.rs"),
    include_str!("../../ratchet-core/src/store/workflows.rs"),
    include_str!("../../ratchet-core/src/store/signals.rs"),
    include_str!("../../ratchet-core/src/store/diagnostics.rs"),
    include_str!("../../ratchet-core/src/cluster/mod.rs"),
];

/// Returns the id of each documented clause, and the text after the id. The documentation contains
/// clauses in the form `**[claim.order]** The jobs …`.
fn clauses() -> impl Iterator<Item = (&'static str, &'static str)> {
    let clauses = |source: &'static str| {
        let marked = source.split("**[").skip(1);
        marked.filter_map(|rest| rest.split_once("]**"))
    };
    SOURCES.iter().copied().flat_map(clauses)
}

fn documented() -> Vec<&'static str> {
    clauses().map(|(id, _)| id).collect()
}

/// Returns the first sentence of a clause, without line breaks and link targets.
fn first_sentence(text: &str) -> String {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
        // The first line has no comment marker, because it begins after the clause's id.
        let comment = if number == 0 { Some(line) } else { comment };
        let of_clause = |text: &&str| !text.is_empty() && !text.starts_with('-');
        let Some(text) = comment.map(str::trim).filter(of_clause) else {
            break;
        };
        words.extend(text.split_whitespace());
    }
    let mut sentence = String::new();
    for (number, word) in words.iter().enumerate() {
        if number > 0 {
            sentence.push(' ');
        }
        sentence.push_str(word);
        let next = words.get(number + 1).and_then(|next| next.chars().next());
        if word.ends_with('.') && next.is_none_or(|next| next == '`' || next.is_uppercase()) {
            break;
        }
    }
    without_links(&sentence)
}

/// Converts ``[`NewJob`](path)`` and ``[`NewJob`]`` to `` `NewJob` ``.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let (shown, behind) = after.split_once(']').expect("a link ends");
        out.push_str(shown);
        rest = match behind.strip_prefix('(') {
            Some(target) => target.split_once(')').expect("a target ends").1,
            None => behind,
        };
    }
    out + rest
}

/// Compares `clauses.txt`, whose sentences failures quote, with the documentation. With
/// `RATCHET_WRITE_CLAUSES=1`, writes that file instead.
#[test]
fn the_quoted_sentences_are_those_of_the_documentation() {
    let mut expected = String::new();
    for (id, text) in clauses() {
        let _ = writeln!(expected, "{id}: {}", first_sentence(text));
    }
    if env::var_os("RATCHET_WRITE_CLAUSES").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clauses.txt");
        fs::write(file, &expected).unwrap();
        return;
    }
    let lines = |text: &'static str| text.lines().collect::<BTreeSet<_>>();
    let expected = lines(expected.leak());
    let present = lines(include_str!("../src/clauses.txt"));
    let differing: Vec<_> = expected.symmetric_difference(&present).collect();
    assert!(
        differing.is_empty(),
        "src/clauses.txt differs from the documentation in {differing:#?}; \
         run this test with RATCHET_WRITE_CLAUSES=1 to write it"
    );
}

#[test]
fn every_clause_can_be_quoted() {
    for id in documented() {
        let sentence = sentence(id).unwrap_or_else(|| {
            panic!(
                "the clause {id} should have a \
                 sentence"
            )
        });
        assert!(sentence.ends_with('.'), "{id}: {sentence}");
        assert!(!sentence.contains("]("), "{id}: {sentence}");
    }
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
    assert_eq!(
        all.len(),
        once.len(),
        "expected every clause id once, found one twice"
    );
}

#[test]
fn every_clause_has_a_case() {
    let proved = proved();
    let unproved: Vec<_> = documented()
        .into_iter()
        .filter(|id| !proved.contains(id))
        .collect();
    assert_eq!(
        unproved, [""; 0],
        "expected a case for every documented clause"
    );
}

#[test]
fn every_case_proves_a_documented_clause() {
    let documented: BTreeSet<_> = documented().into_iter().collect();
    let unknown: Vec<_> = proved().difference(&documented).copied().collect();
    assert_eq!(
        unknown, [""; 0],
        "expected every proved clause to be documented in a trait"
    );
}

#[test]
fn case_names_are_unique_sentences() {
    let mut names = BTreeSet::new();
    for case in Suite::cases() {
        assert!(
            names.insert(case.full_name()),
            "expected every case once, found {case:?} twice"
        );
        assert!(
            case.name.contains('_') && !case.name.starts_with("test_"),
            "{case:?}"
        );
    }
}
