//! Tests of parameters and variables: each is numbered, bound, declared and used as often as
//! needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sqlparser::tokenizer::Token;

use super::language::every_statement;

/// Returns the variables and parameters in a statement, such as `@got` and `@P1`.
fn variables(tokens: &[Token]) -> Vec<String> {
    let words = tokens.iter().filter_map(|token| match token {
        Token::Word(word) if word.value.starts_with('@') => Some(word.value.clone()),
        Token::Placeholder(name) => Some(name.clone()),
        _ => None,
    });
    words.filter(|name| !name.starts_with("@@")).collect()
}

fn parameters(tokens: &[Token]) -> BTreeSet<usize> {
    let all = variables(tokens);
    let numbers = all.iter().filter_map(|name| name.strip_prefix("@P"));
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Checks that the numbers of a statement's parameters have no gap. `bind` numbers the parameters
/// from 1, so a gap means that a parameter was forgotten.
#[test]
fn parameters_are_numbered_without_gaps() {
    for (name, tokens) in every_statement() {
        let parameters = parameters(&tokens);
        let expected: BTreeSet<usize> = (1..=parameters.len()).collect();
        assert_eq!(parameters, expected, "{name}");
    }
}

/// Statements whose parameters are bound in a loop, or in a function that gets the statement as an
/// argument. The tests cannot count these parameters. Debug builds check their number when the
/// statement runs.
const BOUND_ELSEWHERE: [&str; 27] = [
    "add_recurring",
    "beat_node",
    "change_recurring",
    "count_batch",
    "count_matching",
    "count_tagged",
    "enqueue_jobs",
    "enqueue_keyed",
    "find_keys",
    "held_permits",
    "list_archived_newest",
    "list_archived_oldest",
    "list_batch_newest",
    "list_batch_oldest",
    "list_ended_newest",
    "list_ended_oldest",
    "list_front_newest",
    "list_front_oldest",
    "list_newest",
    "list_oldest",
    "list_tagged_newest",
    "list_tagged_oldest",
    "list_unfinished_newest",
    "list_unfinished_oldest",
    "put_node",
    "renew_signals",
    "tags_of",
];

/// Returns, for each statement, the number of parameters at each place in the code that binds them.
/// Finds two forms of code: `.<name>.query().bind(…)`, and `let x = ….<name>.query(); … x.bind(…)`
/// without another query in between.
fn bound() -> BTreeMap<String, Vec<usize>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [own.join("src"), own.join("../ratchet-sql/src")];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut bound: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for entry in files {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = fs::read_to_string(path).unwrap();
        // Comments may contain parentheses.
        let code: String = source
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default().trim())
            .collect();
        for (place, _) in code.match_indices(".query()") {
            let before = &code[..place];
            let Some((before, name)) = before.rsplit_once('.') else {
                continue;
            };
            let (mut times, rest) = binds(&code[place + ".query()".len()..]);
            let variable = before
                .rsplit_once("let ")
                .map(|(_, rest)| rest.trim_start_matches("mut "))
                .and_then(|rest| rest.split_once(" = "))
                .filter(|(_, value)| !value.contains(';'))
                .map(|(variable, _)| variable);
            if let (0, Some(variable), Some(rest)) = (times, variable, rest.strip_prefix(';')) {
                let rest = rest.split(".query()").next().unwrap_or_default();
                let again = CALLS
                    .iter()
                    .filter_map(|(name, _)| rest.find(&format!("{variable}{name}")));
                if let Some(at) = again.min() {
                    times = binds(&rest[at + variable.len()..]).0;
                }
            }
            bound.entry(name.to_owned()).or_default().push(times);
        }
    }
    bound
}

/// Calls that bind parameters, each with the number of parameters that it binds.
const CALLS: [(&str, usize); 4] = [
    (".bind(", 1),
    (".table(", 1),
    (".states(", 1),
    (".any_of(", 2),
];

/// Returns the number of parameters that the calls at the beginning of `code` bind. Also returns
/// the code after these calls.
fn binds(code: &str) -> (usize, &str) {
    let (mut times, mut rest) = (0, code);
    let call = |rest: &'_ str| {
        let mut calls = CALLS.iter();
        calls.find(|(name, _)| rest.starts_with(name)).copied()
    };
    while let Some((name, parameters)) = call(rest) {
        let inside = &rest[name.len()..];
        let mut open = 1_usize;
        let end = inside.find(|c| {
            match c {
                '(' => open += 1,
                ')' => open -= 1,
                _ => {}
            }
            open == 0
        });
        rest = end.map_or("", |end| &inside[end + 1..]);
        times += parameters;
    }
    (times, rest)
}

#[test]
fn every_parameter_is_bound() {
    let bound = bound();
    let mut wrong = Vec::new();
    for (name, tokens) in every_statement() {
        let (wanted, times) = (parameters(&tokens).len(), bound.get(name));
        if name == "create_migrations" {
            continue; // a part of a script
        }
        let is_right = times.is_some_and(|times| times.iter().all(|times| *times == wanted));
        if is_right == BOUND_ELSEWHERE.contains(&name) {
            wrong.push(format!(
                "{name}: expected {wanted} bound parameters, found {times:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_variable_is_declared_once_and_used() {
    for (name, tokens) in every_statement() {
        let all = variables(&tokens);
        let own = all.iter().filter(|one| {
            let number = one.strip_prefix("@P").map(str::parse::<usize>);
            // The parameters of `sp_getapplock`, the only procedure that is called.
            let of_procedure = ["@Resource", "@LockMode", "@LockOwner", "@LockTimeout"];
            !matches!(number, Some(Ok(_))) && !of_procedure.contains(&one.as_str())
        });
        let own: Vec<&String> = own.collect();
        for variable in own.iter().copied().collect::<BTreeSet<_>>() {
            let uses = own.iter().filter(|one| **one == variable).count();
            assert!(
                uses > 1,
                "{name} either declares {variable} without using it, or uses it without declaring \
                 it"
            );
        }
    }
}
