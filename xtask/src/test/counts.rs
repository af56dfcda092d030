//! Counts how tests ended, from the output of test runners.

use std::fmt;

/// The numbers of tests that passed, failed or were skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Counts {
    /// Reads the closing line of nextest.
    pub(super) fn of_nextest(output: &str) -> Self {
        Self::of_lines(output, "Summary [")
    }

    /// Reads and adds up the closing lines of all test programs.
    pub(super) fn of_cargo_test(output: &str) -> Self {
        Self::of_lines(output, "test result:")
    }

    fn of_lines(output: &str, start: &str) -> Self {
        let mut counts = Self::default();
        for line in output
            .lines()
            .filter(|line| line.trim_start().starts_with(start))
        {
            let words: Vec<&str> = line
                .split(|c: char| !c.is_alphanumeric())
                .filter(|w| !w.is_empty())
                .collect();
            for pair in words.windows(2) {
                let Ok(number) = pair[0].parse::<u64>() else {
                    continue;
                };
                match pair[1] {
                    "passed" => counts.passed += number,
                    "failed" | "timed" | "exec" => counts.failed += number,
                    "ignored" | "skipped" => counts.skipped += number,
                    _ => {}
                }
            }
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_nextest_is_read() {
        let output = "test result: FAILED. 0 passed; 1 failed; 0 ignored\n     Summary [   1.204s] \
                      52 tests run: 48 passed (2 slow), 3 failed, 1 timed out, 7 skipped\n";
        let counts = Counts {
            passed: 48,
            failed: 4,
            skipped: 7,
        };
        assert_eq!(Counts::of_nextest(output), counts);
    }

    #[test]
    fn the_closing_lines_of_cargo_test_are_added() {
        let output = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out\n";
        let counts = Counts {
            passed: 7,
            failed: 1,
            skipped: 1,
        };
        assert_eq!(Counts::of_cargo_test(output), counts);
    }
}
