//! Loads statements from files.
//!
//! A file contains many statements. Each statement begins after a line `-- name: <name>` and ends
//! before the next such line. Its text includes the comments in between. Text before the first such
//! line describes the file. A line with two names begins a template, from which [`render`] makes
//! two statements.

use ratchet_core::fair::FIRST_PARKED;
use ratchet_core::model::JobFlags;

const MARK: &str = "-- name:";

/// Returns the text of the statement `name` in a file of SQL statements. The text includes the
/// comments of the statement.
///
/// Stores call this function in constants. A missing statement is then a compile error.
///
/// ```
/// use ratchet_sql::statement;
///
/// const FILE: &str = "
/// -- Queues.
///
/// -- name: pause_queue
/// -- Pauses the queue $1.
/// INSERT INTO paused_queues (name) VALUES ($1)
///
/// -- name: resume_queue
/// DELETE FROM paused_queues WHERE name = $1
/// ";
/// const RESUME_QUEUE: &str = statement(FILE, "resume_queue");
///
/// assert_eq!(RESUME_QUEUE, "DELETE FROM paused_queues WHERE name = $1");
/// ```
///
/// ```compile_fail
/// const STOP_QUEUE: &str = ratchet_sql::statement("-- name: pause_queue", "stop_queue");
/// ```
///
/// # Panics
/// Panics if the file has no statement with this name.
#[must_use]
pub const fn statement<'a>(file: &'a str, name: &str) -> &'a str {
    Reader::new(file).find(name)
}

/// Finds statements in a file of SQL statements. Each search begins at the statement that was found
/// last. So if the statements are requested in the order of the file, the reader scans the file
/// only once.
#[derive(Debug)]
pub struct Reader<'a> {
    file: &'a str,
    /// Offset, in bytes, of the line with the name of the statement that was found last.
    at: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader whose first search begins at the start of the file.
    #[must_use]
    pub const fn new(file: &'a str) -> Self {
        Self { file, at: 0 }
    }

    /// Returns the text of the statement `name`, including its comments. See [`statement`] for an
    /// example.
    ///
    /// # Panics
    /// Panics if the file has no statement with this name.
    #[must_use]
    pub const fn find(&mut self, name: &str) -> &'a str {
        let bytes = self.file.as_bytes();
        let (mut at, mut began_again) = (self.at, false);
        loop {
            if at == bytes.len() {
                assert!(!began_again, "{}", name);
                (at, began_again) = (0, true);
            }
            let next = next_line(bytes, at);
            if is_mark(bytes, at) && has_word(bytes, at + MARK.len(), next, name.as_bytes()) {
                self.at = at;
                let mut end = next;
                while end < bytes.len() && !is_mark(bytes, end) {
                    end = next_line(bytes, end);
                }
                let (text, _) = self.file.split_at(end);
                let (_, text) = text.split_at(next);
                return text.trim_ascii();
            }
            at = next;
        }
    }
}

/// Returns the offset of the first line that begins after the offset `at`. Returns the length of
/// the text if no line begins there.
const fn next_line(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'\n' {
        at += 1;
    }
    if at < bytes.len() { at + 1 } else { at }
}

const fn is_mark(bytes: &[u8], at: usize) -> bool {
    begins_with(bytes, at, MARK.as_bytes())
}

const fn begins_with(bytes: &[u8], at: usize, word: &[u8]) -> bool {
    let mut place = 0;
    while place < word.len() {
        if at + place >= bytes.len() || bytes[at + place] != word[place] {
            return false;
        }
        place += 1;
    }
    true
}

/// Returns whether the text between the offsets `at` and `end` contains `word` as a separate word.
const fn has_word(bytes: &[u8], mut at: usize, end: usize, word: &[u8]) -> bool {
    while at < end {
        while at < end && bytes[at].is_ascii_whitespace() {
            at += 1;
        }
        let start = at;
        while at < end && !bytes[at].is_ascii_whitespace() {
            at += 1;
        }
        if at - start == word.len() && begins_with(bytes, start, word) {
            return true;
        }
    }
    false
}

/// Returns the name and the text of each statement in a file, in the order of the file. A template
/// has two names. It is returned once under each name, with the same text.
pub fn split(file: &str) -> impl Iterator<Item = (&str, &str)> {
    let marks = file.lines().filter_map(|line| line.strip_prefix(MARK));
    let names = marks.flat_map(str::split_whitespace);
    let mut reader = Reader::new(file);
    names.map(move |name| (name, reader.find(name)))
}

/// Replaces the placeholders in the text of a statement. Handles the placeholders that exist in all
/// stores.
///
/// - `{behind}` and `{descending}` define the order in which the statement reads rows. If `name`
///   ends with `_newest`, they become `<` and ` DESC`, and the statement reads the newest row
///   first. Otherwise, they become `>` and an empty text, and the statement reads the oldest row
///   first.
/// - `{awaited}` becomes the bits of [`JobFlags::AWAITED`], as a number. In the same way, each
///   other name in [`JobFlags::WORDS`] becomes the bits of its flags.
///
/// ```
/// let text = "SELECT id FROM jobs WHERE id {behind} $1 AND flags & {tags} <> 0 ORDER BY id{descending}";
///
/// let oldest = ratchet_sql::render("list_oldest", text);
/// assert_eq!(oldest, "SELECT id FROM jobs WHERE id > $1 AND flags & 64 <> 0 ORDER BY id");
/// let newest = ratchet_sql::render("list_newest", text);
/// assert_eq!(newest, "SELECT id FROM jobs WHERE id < $1 AND flags & 64 <> 0 ORDER BY id DESC");
/// ```
#[must_use]
pub fn render(name: &str, text: &str) -> String {
    let (behind, descending) = if name.ends_with("_newest") {
        ("<", " DESC")
    } else {
        (">", "")
    };
    let text = text
        .replace("{behind}", behind)
        .replace("{descending}", descending)
        .replace("{parked}", &FIRST_PARKED.to_string());
    JobFlags::WORDS.iter().fold(text, |text, (word, flags)| {
        text.replace(&format!("{{{word}}}"), &flags.bits().to_string())
    })
}

/// Checks the files of SQL statements of a store. Returns a message for each statement that the
/// list of its file omits, and for each name that occurs more than once. Each store has a test that
/// expects no messages.
///
/// Each element of `files` contains the name of a file, the text of the file, and the names of its
/// listed statements.
#[must_use]
pub fn unlisted(files: &[(&str, &str, &[&str])]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for (file, text, listed) in files {
        for (name, _) in split(text) {
            if !listed.contains(&name) {
                problems.push(format!(
                    "{file}.sql: the statement {name} is not in the list of statements"
                ));
            }
            if seen.contains(&name) {
                problems.push(format!(
                    "{file}.sql: the statement {name} occurs more than once"
                ));
            }
            seen.push(name);
        }
    }
    problems
}

/// Declares the statements of a store, grouped by file. Loads their texts from the files
/// `sql/<file>.sql`, which are next to the source file that calls the macro.
///
/// ```text
/// ratchet_sql::statements! {
///     queues: pause_queue resume_queue;
///     nodes: now;
/// }
/// ```
///
/// The macro defines the following items:
///
/// - `Named<T>`, a struct with one field of type `T` for each statement
/// - `TEXTS`, the texts of the statements. This constant fails to compile if a file lacks a
///   statement.
/// - A test that checks that each statement in the files is listed exactly once
#[macro_export]
macro_rules! statements {
    ($($file:ident: $($name:ident)*;)*) => {
        /// A value of type `T` for each statement. The names of the fields are the names of the
        /// statements.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Named<T> {
            $($(pub(crate) $name: T,)*)*
        }

        impl Named<&'static str> {
            /// Number of statements.
            #[allow(dead_code, reason = "only stores with their own cache of statements need the \
                number")]
            pub(crate) const COUNT: usize = [$($(stringify!($name),)*)*].len();

            /// Calls `make` with the name and the text of each statement, and returns the results.
            pub(crate) fn map<T>(
                self,
                mut make: impl FnMut(&'static str, &'static str) -> T,
            ) -> Named<T> {
                Named {
                    $($($name: make(stringify!($name), self.$name),)*)*
                }
            }
        }

        /// Texts of the statements, from their files.
        pub(crate) const TEXTS: Named<&str> = {
            $(let mut $file =
                $crate::Reader::new(include_str!(concat!("sql/", stringify!($file), ".sql")));)*
            Named {
                $($($name: $file.find(stringify!($name)),)*)*
            }
        };

        #[cfg(test)]
        #[test]
        fn every_statement_is_listed_once() {
            let problems = $crate::unlisted(&[$((
                stringify!($file),
                include_str!(concat!("sql/", stringify!($file), ".sql")),
                &[$(stringify!($name)),*],
            )),*]);
            assert_eq!(problems, [""; 0]);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "-- A file.\n\n-- name: one\n-- Reads.\nSELECT 1\n\n--  not a name: four\n\
                        -- name: two_oldest two_newest\nSELECT 2\n-- name: three";

    #[test]
    fn a_statement_is_what_stands_between_two_names() {
        let one = "-- Reads.\nSELECT 1\n\n--  not a name: four";
        assert_eq!(statement(FILE, "one"), one);
        assert_eq!(statement(FILE, "two_newest"), "SELECT 2");
        assert_eq!(statement(FILE, "three"), "");
        let mut reader = Reader::new(FILE);
        assert_eq!(reader.find("three"), "");
        assert_eq!(
            reader.find("one"),
            one,
            "expected to find a statement before the one that was found last"
        );
        let all: Vec<_> = split(FILE).collect();
        let two = "SELECT 2";
        let expected = [
            ("one", one),
            ("two_oldest", two),
            ("two_newest", two),
            ("three", ""),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_part_of_a_name_is_not_the_name() {
        for name in ["two", "two_", "newest", "four", "name:"] {
            let found = std::panic::catch_unwind(|| statement(FILE, name));
            assert!(found.is_err(), "{name}");
        }
    }

    #[test]
    fn what_no_list_names_and_what_occurs_twice_is_a_problem() {
        let all = ["one", "two_oldest", "two_newest", "three"];
        let again = "-- name: three\nSELECT 3";
        assert_eq!(unlisted(&[("a", FILE, &all)]), [""; 0]);
        let problems = unlisted(&[("a", FILE, &all[1..]), ("b", again, &["three"])]);
        assert_eq!(
            problems,
            [
                "a.sql: the statement one is not in the list of statements",
                "b.sql: the statement three occurs more than once",
            ]
        );
    }
}
