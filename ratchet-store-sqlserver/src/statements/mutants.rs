//! Tests that every mutant, a statement with a deliberate mistake, is valid SQL. If the server
//! rejected a mutant, the mutant would not prove that the tests find the mistake.

use toml::{Table, Value};

use super::language::{parses, words};
use super::texts;

#[test]
fn every_mutant_is_of_the_language() {
    let statements: Table = include_str!("../../mutants.toml").parse().unwrap();
    let (words, texts) = (words(), texts());
    for (statement, entries) in &statements {
        let (_, text) = texts.iter().find(|(name, _)| name == statement).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let original = lines.collect::<Vec<_>>().join("\n");
        let mutants = entries["mutants"].as_array().unwrap();
        for mutant in mutants {
            let field = |name: &str| mutant.get(name).and_then(Value::as_str).unwrap();
            let mutant = original.replacen(field("find"), field("replace"), 1);
            let text = words.render(&ratchet_sql::render(statement, &mutant));
            if let Err(error) = parses(&text) {
                panic!("{statement}: {}: {error}\n{text}", field("name"));
            }
        }
    }
}
