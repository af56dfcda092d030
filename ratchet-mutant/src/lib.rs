//! Replaces one SQL statement of a store at run time, for `cargo xtask mutants`.
//!
//! A store calls this crate only if its feature `mutants` is enabled. Without the variable
//! [`DIRECTORY`] the crate changes nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Once};

/// The variable that names the directory with the three files below.
pub const DIRECTORY: &str = "RATCHET_MUTANT";
/// The file with the name of the statement to replace.
pub const STATEMENT: &str = "statement";
/// The file with the text to run instead, which ends with [`MARK`].
pub const REPLACEMENT: &str = "mutant.sql";
/// The file that this process creates when it runs the replacement.
pub const REACHED: &str = "reached";
/// The comment at the end of a replacement. It stays when the store renders the statement, so it
/// identifies the replacement in the rendered SQL.
pub const MARK: &str = "\n/* mutant */";

struct Mutant {
    statement: String,
    replacement: String,
    reached: PathBuf,
}

static MUTANT: LazyLock<Option<Mutant>> = LazyLock::new(|| {
    let directory = PathBuf::from(env::var_os(DIRECTORY)?);
    Some(Mutant {
        statement: read(&directory.join(STATEMENT)),
        replacement: read(&directory.join(REPLACEMENT)),
        reached: directory.join(REACHED),
    })
});

fn read(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Returns the text to run for the statement with this name: the replacement if the statement is
/// the one to replace, otherwise `text`.
///
/// # Panics
/// If the variable is set and a file cannot be read. Otherwise the tests would run without the
/// mutant, and the mutant would appear to survive.
#[must_use]
pub fn text<'a>(name: &str, text: &'a str) -> &'a str {
    match &*MUTANT {
        Some(mutant) if mutant.statement == name => &mutant.replacement,
        _ => text,
    }
}

/// Creates the file [`REACHED`] if this text is the replacement. A store calls this with each text
/// that it is about to run. If the file cannot be created, `cargo xtask mutants` reports the mutant
/// as never reached, and not as killed or survived.
pub fn note_use(rendered: &str) {
    static NOTED: Once = Once::new();
    if rendered.ends_with(MARK)
        && let Some(mutant) = &*MUTANT
    {
        NOTED.call_once(|| drop(fs::write(&mutant.reached, "")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_variable_no_statement_changes() {
        assert_eq!(text("one", "SELECT 1"), "SELECT 1");
        note_use(MARK);
    }
}
