//! Cron expressions in a zone. The search is croner's; what it lets through and means something else
//! to its writer is refused here.

use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Duration, TimeZone, Utc};
use chrono_tz::Tz;

use crate::error::InvalidInput;
use crate::time;

/// The most bytes of an expression.
const MAX_BYTES: usize = 256;

/// Short forms, as in crontab.
const SHORT: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];

/// An expression and the zone whose wall clock it is about.
#[derive(Clone)]
pub(super) struct Cron {
    expression: Arc<str>,
    zone: Tz,
    pattern: Arc<croner::Cron>,
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.expression == other.expression && self.zone == other.zone
    }
}

impl Eq for Cron {}

impl Cron {
    pub(super) fn new(expression: &str, zone: &str) -> Result<Self, InvalidInput> {
        let zone = Tz::from_str(zone).map_err(|_| {
            InvalidInput::new("zone", format!("{zone:?} is not in the IANA database"))
        })?;
        let refused = |problem: String| InvalidInput::new("cron", problem);
        if expression.len() > MAX_BYTES {
            let bytes = expression.len();
            return Err(refused(format!(
                "has {bytes} bytes, {MAX_BYTES} are allowed"
            )));
        }
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let expression = fields.join(" ");
        let plain = match fields.as_slice() {
            [short] if short.starts_with('@') => SHORT
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(short))
                .map(|(_, plain)| (*plain).to_owned())
                .ok_or_else(|| refused(format!("{short:?} is not known")))?,
            fields => {
                check_fields(fields).map_err(refused)?;
                expression.clone()
            }
        };
        let pattern = croner::Cron::from_str(&plain)
            .map_err(|error| refused(format!("{expression:?} cannot be read: {error}")))?;
        let cron = Self {
            expression: expression.into(),
            zone,
            pattern: Arc::new(pattern),
        };
        match cron.next_after(0) {
            Some(_) => Ok(cron),
            None => Err(refused(format!("{:?} never comes", cron.expression))),
        }
    }

    pub(super) fn expression(&self) -> &str {
        &self.expression
    }

    pub(super) fn zone(&self) -> &'static str {
        self.zone.name()
    }

    /// The first match after a time, in milliseconds.
    pub(super) fn next_after(&self, after: i64) -> Option<i64> {
        let mut from = self
            .zone
            .from_utc_datetime(&time::from_millis(after).naive_utc());
        let mut inclusive = false;
        // More than one round only where a clock skipped a whole day or more.
        for _ in 0..4 {
            match self.pattern.find_next_occurrence(&from, inclusive) {
                Ok(next) if next.timestamp_millis() > after => {
                    return Some(next.timestamp_millis());
                }
                Ok(_) => from = from.checked_add_signed(Duration::seconds(1))?,
                // There is no more, or it is in a gap so long that the search gave up.
                Err(_) => {
                    from = self.day_after_gap(&from, inclusive)?;
                    inclusive = true;
                }
            }
        }
        None
    }

    /// The beginning of the day after the next match, in a gap, of a clock that is never changed;
    /// none if there is no match.
    fn day_after_gap(&self, from: &DateTime<Tz>, inclusive: bool) -> Option<DateTime<Tz>> {
        let wall: DateTime<Utc> = from.naive_local().and_utc();
        let skipped = self.pattern.find_next_occurrence(&wall, inclusive).ok()?;
        let midnight = skipped.date_naive().succ_opt()?.and_hms_opt(0, 0, 0)?;
        (0..48).find_map(|hours| {
            let begin = midnight.checked_add_signed(Duration::hours(hours))?;
            self.zone.from_local_datetime(&begin).earliest()
        })
    }
}

/// What a field may have beside numbers, `*` and names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Plain,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

/// Refuses fields that croner reads more generously than anybody writes them: empty items, names run
/// together or in fields that have none, letters where they do nothing.
fn check_fields(fields: &[&str]) -> Result<(), String> {
    use Field::{DayOfMonth, DayOfWeek, Month, Plain, Year};
    let kinds: &[Field] = match fields.len() {
        5 => &[Plain, Plain, DayOfMonth, Month, DayOfWeek],
        6 => &[Plain, Plain, Plain, DayOfMonth, Month, DayOfWeek],
        7 => &[Plain, Plain, Plain, DayOfMonth, Month, DayOfWeek, Year],
        other => return Err(format!("has {other} fields, 5 to 7 are needed")),
    };
    for (text, field) in fields.iter().zip(kinds) {
        let upper = text.to_ascii_uppercase();
        let items = match field {
            DayOfWeek => upper.strip_prefix('+').unwrap_or(&upper),
            _ => &upper,
        };
        if !items.split(',').all(|item| is_item(item, *field)) {
            return Err(format!("has {text:?}, which cannot be read"));
        }
    }
    Ok(())
}

/// Whether an item of a list is made of numbers, names and signs that its field may have.
fn is_item(item: &str, field: Field) -> bool {
    let (base, nth) = match item.split_once('#') {
        Some((base, nth)) => (base, Some(nth)),
        None => (item, None),
    };
    // A step through all years would begin with the year 1.
    if field == Field::Year && base.starts_with("*/") {
        return false;
    }
    let is_nth = |nth: &str| field == Field::DayOfWeek && (nth == "L" || is_number(nth));
    nth.is_none_or(is_nth) && base.split(['-', '/']).all(|atom| is_atom(atom, field))
}

fn is_atom(atom: &str, field: Field) -> bool {
    let is_day = |text: &str| is_number(text) || DAYS.contains(&text);
    is_number(atom)
        || atom == "*"
        || match field {
            Field::Plain | Field::Year => false,
            Field::Month => MONTHS.contains(&atom),
            Field::DayOfWeek => {
                atom == "?" || is_day(atom) || atom.strip_suffix('L').is_some_and(is_day)
            }
            Field::DayOfMonth => {
                ["?", "L", "LW"].contains(&atom) || atom.strip_suffix('W').is_some_and(is_number)
            }
        }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
