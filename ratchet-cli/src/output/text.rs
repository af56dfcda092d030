//! Times, sizes and numbers for people.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

/// The text without what a terminal would obey: line ends and tabs become spaces, other control
/// characters and those that turn the direction of writing become U+FFFD.
pub(crate) fn clean(text: &str) -> String {
    let one = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(one).collect()
}

/// The text, cut to so many characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

/// A duration in its two largest units.
pub(crate) fn since(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (large, small) = match seconds {
        0 => return format!("{} ms", duration.as_millis()),
        1..60 => return format!("{seconds} s"),
        60..3_600 => ((seconds / 60, "min"), (seconds % 60, "s")),
        3_600..86_400 => ((seconds / 3_600, "h"), (seconds % 3_600 / 60, "min")),
        _ => ((seconds / 86_400, "d"), (seconds % 86_400 / 3_600, "h")),
    };
    match small.0 {
        0 => format!("{} {}", large.0, large.1),
        _ => format!("{} {} {} {}", large.0, large.1, small.0, small.1),
    }
}

/// How long ago something was.
pub(crate) fn ago(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match (now - at).to_std() {
        Ok(past) => format!("{} ago", since(past)),
        Err(_) => until(at, now),
    }
}

/// How long it is until something.
pub(crate) fn until(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match (at - now).to_std() {
        Ok(left) => format!("in {}", since(left)),
        Err(_) => ago(at, now),
    }
}

/// A time as it is, to the millisecond.
pub(crate) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A number with its thousands apart.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size in bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes / 1_048_576),
        _ => format!("{} GiB", bytes / 1_073_741_824),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let table = [
            (Duration::from_millis(7), "7 ms"),
            (Duration::from_secs(59), "59 s"),
            (Duration::from_secs(60), "1 min"),
            (Duration::from_secs(3_725), "1 h 2 min"),
            (Duration::from_secs(90_000), "1 d 1 h"),
        ];
        for (duration, text) in table {
            assert_eq!(since(duration), text);
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(bytes(5_000_000), "4 MiB");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("äöü", 3), "äöü");
        assert_eq!(short("äöüß", 3), "äö…");
    }
}
