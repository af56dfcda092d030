//! Parsers of values on the command line.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// Parses a duration such as `30s`, `5m`, `2h 30m` or `7d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a duration such as 500ms, 30s, 5m, 2h or 7d"))
}

/// Parses a time in the format of RFC 3339, such as `2030-12-31T23:59:00Z`.
pub(super) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text)
        .map(|at| at.to_utc())
        .map_err(|error| format!("{error}; expected a time such as 2030-12-31T23:59:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_understood() {
        assert_eq!(duration("2h 30m").unwrap(), Duration::from_secs(9_000));
        assert!(duration("soon").unwrap_err().contains("30s"));
        assert_eq!(
            time("2030-12-31T23:59:00Z").unwrap().timestamp(),
            1_924_991_940
        );
        assert!(time("tomorrow").unwrap_err().contains("2030"));
    }
}
