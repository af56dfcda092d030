//! Reads the output of nextest. Replaces the lines of passed tests by progress lines, and collects
//! the tests with their times.

use std::fmt;

/// How many tests end between two progress lines.
const STRIDE: u64 = 250;

/// A test that ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    /// The test binary, as nextest names it: `ratchet-store-sqlite::conformance`.
    pub(super) binary: String,
    /// The name of the test in its binary.
    pub(super) name: String,
    pub(super) seconds: f64,
    pub(super) passed: bool,
}

impl Ended {
    /// Returns the nextest options that select this test alone.
    pub(super) fn filter(&self) -> String {
        format!("-E 'binary_id({}) & test(={})'", self.binary, self.name)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6.1} s  {} {}", self.seconds, self.binary, self.name)
    }
}

/// Reads the output of nextest line by line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The tests that have ended, in the order in which they ended.
    pub(super) ended: Vec<Ended>,
    /// Whether the closing line was read. The lines after it repeat failures.
    closed: bool,
}

impl Reader {
    /// Reads a line, and returns the text to show, if any. Shows all lines except those of passed
    /// tests, and from time to time the progress of the run.
    pub(super) fn read(&mut self, line: &str) -> Option<String> {
        let line = line.trim_end();
        if line.trim_start().starts_with("Summary [") {
            self.closed = true;
        }
        if self.closed {
            return Some(line.to_owned());
        }
        let Some((ended, number, total)) = parse(line) else {
            // This skips the divider above the first test.
            return (!line.trim().is_empty()).then(|| line.to_owned());
        };
        let passed = ended.passed;
        self.ended.push(ended);
        let failed = self.ended.iter().filter(|test| !test.passed).count();
        let progress = || {
            let left = total - number;
            format!("tests: {number} of {total} ended, {left} left, {failed} failed")
        };
        match passed {
            false => Some(line.to_owned()),
            true if number % STRIDE == 0 => Some(progress()),
            true => None,
        }
    }
}

/// Parses a line such as `PASS [   0.412s] ( 109/4147) crate::binary group::name`, and returns the
/// test, its number, and how many tests there are.
fn parse(line: &str) -> Option<(Ended, u64, u64)> {
    let (status, rest) = line.trim_start().split_once(" [")?;
    let (seconds, rest) = rest.split_once("s] (")?;
    let (counter, test) = rest.split_once(") ")?;
    let (number, total) = counter.split_once('/')?;
    let (binary, name) = test.split_once(' ')?;
    let ended = Ended {
        binary: binary.to_owned(),
        name: name.trim().to_owned(),
        seconds: seconds.trim().parse().ok()?,
        passed: status == "PASS" || status == "LEAK",
    };
    Some((
        ended,
        number.trim().parse().ok()?,
        total.trim().parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str =
        "        PASS [   0.412s] ( 109/4147) ratchet-cli::command help::each_command_has_one";
    const FAILED: &str = "        FAIL [  12.100s] ( 110/4147) ratchet-core id::tests::a";

    #[test]
    fn a_test_that_passed_is_counted_and_not_shown() {
        let mut reader = Reader::default();
        assert_eq!(reader.read(PASSED), None);
        let expected = Ended {
            binary: "ratchet-cli::command".to_owned(),
            name: "help::each_command_has_one".to_owned(),
            seconds: 0.412,
            passed: true,
        };
        assert_eq!(reader.ended, [expected]);
    }

    #[test]
    fn a_failure_and_its_output_are_shown() {
        let mut reader = Reader::default();
        assert_eq!(reader.read(FAILED).as_deref(), Some(FAILED));
        assert!(!reader.ended[0].passed);
        let told = "    thread 'a' panicked at src/id.rs:7";
        assert_eq!(reader.read(told).as_deref(), Some(told));
        assert_eq!(
            reader.ended[0].filter(),
            "-E 'binary_id(ratchet-core) & test(=id::tests::a)'"
        );
    }

    #[test]
    fn progress_is_shown_now_and_then() {
        let mut reader = Reader::default();
        reader.read(FAILED);
        let line = PASSED.replace(" 109/4147", " 250/4147");
        assert_eq!(
            reader.read(&line).as_deref(),
            Some("tests: 250 of 4147 ended, 3897 left, 1 failed")
        );
    }

    #[test]
    fn what_follows_the_closing_line_is_no_further_test() {
        let mut reader = Reader::default();
        reader.read(FAILED);
        reader.read("     Summary [   1.204s] 1 test run: 0 passed, 1 failed");
        assert_eq!(reader.read(FAILED).as_deref(), Some(FAILED));
        assert_eq!(reader.ended.len(), 1);
    }
}
