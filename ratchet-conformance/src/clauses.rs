//! The text of the clauses.

/// The first sentence of every clause, one per line. `tests/clauses.rs` compares it with the
/// documentation of the traits.
const SENTENCES: &str = include_str!("clauses.txt");

/// Returns the first sentence of a clause such as `claim.order`, as in the documentation of the
/// traits, or `None` if there is no such clause.
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
