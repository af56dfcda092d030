//! Mutants are of the language, too: a statement that the server rejects proves nothing.

use toml::{Table, Value};

use super::FILES;
use super::language::{parses, words};

#[test]
fn every_mutant_is_of_the_language() {
    let statements: Table = include_str!("../../mutants.toml").parse().unwrap();
    let words = words();
    for (statement, entries) in &statements {
        let (_, file) = FILES.iter().find(|(name, _)| name == statement).unwrap();
        let lines = file.lines().filter(|line| !line.starts_with("--"));
        let original = lines.collect::<Vec<_>>().join("\n");
        let mutants = entries["mutants"].as_array().unwrap();
        for mutant in mutants {
            let field = |name: &str| mutant.get(name).and_then(Value::as_str).unwrap();
            let text = words.render(&original.replacen(field("find"), field("replace"), 1));
            if let Err(error) = parses(&text) {
                panic!("{statement}: {}: {error}\n{text}", field("name"));
            }
        }
    }
}
