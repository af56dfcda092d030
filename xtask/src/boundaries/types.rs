//! Finds types of one crate that have the same name.

use std::collections::BTreeMap;

use super::source::{code_of, tokens_of};

/// Returns the structs, enums, traits and aliases that code outside of their module can name: those
/// with any `pub`, outside of unit tests. Associated types have no `pub`, so they are not included.
pub(super) fn types_in(source: &str) -> Vec<String> {
    let code = code_of(source);
    let tokens = tokens_of(&code);
    let mut types = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if *token != "pub" {
            continue;
        }
        let mut rest = &tokens[at + 1..];
        if rest.first() == Some(&"(") {
            let end = rest.iter().position(|token| *token == ")");
            rest = end.map_or(&[], |end| &rest[end + 1..]);
        }
        if let [keyword, name, ..] = rest
            && matches!(*keyword, "struct" | "enum" | "trait" | "type")
        {
            types.push((*name).to_owned());
        }
    }
    types
}

/// Returns the names that more than one declaration has, each with the files of all of them. A file
/// `no_x.rs` replaces `x.rs` if a feature is off, so both may declare the same names.
pub(super) fn duplicates<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<(String, Vec<&'a str>)> {
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (file, source) in files {
        let name = file.rsplit('/').next().unwrap_or(file);
        if name.starts_with("no_") {
            continue;
        }
        for name in types_in(source) {
            places.entry(name).or_default().push(file);
        }
    }
    places
        .into_iter()
        .filter(|(_, files)| files.len() > 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_types_of_one_name_are_found_whatever_their_visibility() {
        let one = "pub struct Rate;\nstruct State;\npub(in crate::a) enum Step {}\n";
        let two = "pub(crate) trait Step {}\nstruct State;\n// pub struct Rate;\n\
                   #[cfg(test)]\nmod tests {\n    pub(crate) struct Rate;\n}\n";
        assert_eq!(
            duplicates([("one.rs", one), ("two.rs", two)]),
            [("Step".to_owned(), vec!["one.rs", "two.rs"])]
        );
        assert_eq!(duplicates([("a/one.rs", one), ("a/no_one.rs", one)]), []);
    }
}
