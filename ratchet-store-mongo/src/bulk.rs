//! Determines how many updates fit into one update command, and reads the replies to such commands.

use mongodb::bson::{Document, doc};
use ratchet_core::StoreErrorKind;

use crate::error::{Failure, Loss, Result};

/// One update statement of an update command.
pub(crate) struct Statement {
    pub(crate) filter: Document,
    pub(crate) pipeline: Vec<Document>,
    /// Approximate size of the statement's strings, in bytes. [`fitting`] adds a fixed size for the
    /// rest of the statement.
    pub(crate) bytes: usize,
    /// Whether the statement changes all matching documents instead of only the first.
    pub(crate) multi: bool,
}

impl Statement {
    /// Builds a statement that changes one document, and assumes that its strings are short.
    pub(crate) const fn new(filter: Document, pipeline: Vec<Document>) -> Self {
        Self {
            filter,
            pipeline,
            bytes: 0,
            multi: false,
        }
    }

    /// Sets the approximate size of the statement's strings, in bytes.
    pub(crate) const fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    pub(crate) fn document(self) -> Document {
        doc! { "q": self.filter, "u": self.pipeline, "multi": self.multi }
    }
}

/// Maximum number of statements in one command.
pub(crate) const MOST: usize = 1_000;

/// Returns how many statements from the start of `statements` fit into one command. Returns at
/// least 1. The server limits a command to 16 MiB, like every document.
pub(crate) fn fitting(statements: &[Statement]) -> usize {
    const BYTES: usize = 8 * 1024 * 1024;
    const EACH: usize = 2_048;
    let mut bytes = 0;
    let fits = |statement: &&Statement| {
        bytes += statement.bytes + EACH;
        bytes <= BYTES
    };
    let count = statements.iter().take(MOST).take_while(fits).count();
    count.max(1)
}

/// Returns the number of matched documents that the reply to an update command reports. If the
/// reply contains a failure, returns this failure.
pub(crate) fn matched_in(reply: &Document) -> Result<u64> {
    let refused = |errors: &Document| {
        let code = errors.get_i32("code").unwrap_or_default();
        Failure::from_server(code, "", errors.get_str("errmsg").unwrap_or_default())
    };
    if let Ok(errors) = reply.get_array("writeErrors")
        && let Some(first) = errors.iter().find_map(|error| error.as_document())
    {
        return Err(refused(first));
    }
    if let Ok(error) = reply.get_document("writeConcernError") {
        let mut failure = refused(error);
        if failure.kind == StoreErrorKind::Unavailable {
            failure.loss = Loss::Silent;
        }
        return Err(failure.about("the write is not confirmed by a majority"));
    }
    let count = reply.get_i32("n").unwrap_or_default();
    Ok(u64::try_from(count).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(bytes: &[usize]) -> Vec<Statement> {
        let statement = |bytes: &usize| Statement::new(Document::new(), Vec::new()).bytes(*bytes);
        bytes.iter().map(statement).collect()
    }

    #[test]
    fn commands_stay_below_the_limit_of_documents() {
        assert_eq!(fitting(&statements(&[100; 10])), 10);
        assert_eq!(fitting(&statements(&[0; 5_000])), 1_000);
        assert_eq!(fitting(&statements(&[3 << 20; 5])), 2);
        assert_eq!(fitting(&statements(&[20 << 20, 1])), 1);
    }

    #[test]
    fn refusals_inside_an_answer_are_failures() {
        assert_eq!(matched_in(&doc! { "n": 3, "ok": 1 }).unwrap(), 3);
        let refused = doc! { "n": 0, "writeErrors": [{ "index": 0, "code": 112, "errmsg": "" }] };
        let failure = matched_in(&refused).unwrap_err();
        assert_eq!(failure.kind, StoreErrorKind::Contention);
        let late = doc! { "n": 1, "writeConcernError": { "code": 64, "errmsg": "late" } };
        let failure = matched_in(&late).unwrap_err();
        assert_eq!(failure.kind, StoreErrorKind::Timeout);
    }
}
