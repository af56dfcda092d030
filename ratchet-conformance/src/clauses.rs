//! The text of the clauses.

/// The id and the first sentence of every clause, one clause per line. The test `tests/clauses.rs`
/// compares this text with the documentation of the traits that define the clauses.
const SENTENCES: &str = include_str!("clauses.txt");

/// Returns the first sentence of the clause with the id `clause`, such as `claim.order`. A clause
/// is a requirement in the documentation of a store or coordinator trait. Returns `None` if no
/// clause has this id.
#[must_use]
pub fn sentence(clause: &str) -> Option<&'static str> {
    SENTENCES.lines().find_map(|line| {
        let (id, sentence) = line.split_once(": ")?;
        (id == clause).then_some(sentence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_found_by_the_whole_id() {
        let said = sentence("claim.limit").unwrap();
        assert!(said.contains("`limit`"), "{said}");
        assert_eq!(sentence("claim"), None);
        assert_eq!(sentence("claim.limits"), None);
    }
}
