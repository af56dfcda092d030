//! Formats texts, times, sizes and numbers for people.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

/// Replaces characters that a terminal would interpret or hide.
///
/// Line breaks and tabs become spaces. The following characters become U+FFFD, which is visible:
/// other control characters, characters that change the direction of text, zero-width characters,
/// and Unicode tag characters. So two names that differ only in such a character do not look the
/// same.
pub(crate) fn clean(text: &str) -> String {
    let one = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() || turns(c) || is_invisible(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(one).collect()
}

/// Returns whether the character changes the direction of the text around it.
const fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns whether the character is invisible: a zero-width space or joiner, a soft hyphen, a byte
/// order mark, an invisible operator or filler, or a Unicode tag character.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Returns the text, shortened to at most `most` characters. A shortened text ends in `…`.
pub(crate) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

/// Formats a duration in its two largest units, such as `2 h 5 min`.
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

/// Formats the time that has passed since `at`, such as `5 s ago`. If `at` is in the future,
/// returns the text of [`until`].
pub(crate) fn ago(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match (now - at).to_std() {
        Ok(past) => format!("{} ago", since(past)),
        Err(_) => until(at, now),
    }
}

/// Formats the time until `at`, such as `in 5 s`. If `at` is in the past, returns the text of
/// [`ago`].
pub(crate) fn until(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match (at - now).to_std() {
        Ok(left) => format!("in {}", since(left)),
        Err(_) => ago(at, now),
    }
}

/// Formats a time as RFC 3339 with milliseconds.
pub(crate) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Formats a number with a comma after every group of three digits, such as `1,234,567`.
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

/// Formats a number of bytes in the largest fitting unit: B, KiB, MiB or GiB.
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
    fn what_a_terminal_obeys_or_hides_is_shown() {
        for hidden in "\0\u{1b}\u{9b}\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{202e}\u{2060}\u{2066}\u{feff}\u{ad}\u{e0001}\u{e0041}\u{e007f}".chars() {
            let text = format!("mail{hidden}er");
            assert_eq!(clean(&text), "mail\u{fffd}er", "{}", hidden.escape_unicode());
        }
        assert_eq!(clean("one\ttwo\r\nthree"), "one two  three");
        for seen in ["größe 日本語", "بريد", "✉️"] {
            assert_eq!(clean(seen), seen);
        }
    }

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
