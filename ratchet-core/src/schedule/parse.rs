//! Parses cron expressions. Every error names the field, the value, and the values that the field
//! allows.

use super::pattern::{Days, FIRST_YEAR, LAST_YEAR, Pattern, Weekdays};

/// The short forms of crontab, such as `@daily`, each with its full expression.
const SHORT: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The definition of a field of cron expressions: its name and its allowed values.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// The names of the values in order. The first name belongs to the value `first`. Empty if the
    /// values have no names.
    names: &'static [&'static str],
    /// The allowed values, as error messages show them.
    expected: &'static str,
}

const SECOND: Field = Field {
    name: "second",
    first: 0,
    last: 59,
    names: &[],
    expected: "0-59",
};
const MINUTE: Field = Field {
    name: "minute",
    ..SECOND
};
const HOUR: Field = Field {
    name: "hour",
    first: 0,
    last: 23,
    names: &[],
    expected: "0-23",
};
const DAY_OF_MONTH: Field = Field {
    name: "day of month",
    first: 1,
    last: 31,
    names: &[],
    expected: "1-31, L, LW or 1W-31W",
};
const MONTH: Field = Field {
    name: "month",
    first: 1,
    last: 12,
    names: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
    expected: "1-12 or jan-dec",
};
const DAY_OF_WEEK: Field = Field {
    name: "day of week",
    first: 0,
    last: 6,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    expected: "0-7 or sun-sat, optionally followed by #1 to #5 or L",
};
const YEAR: Field = Field {
    name: "year",
    first: FIRST_YEAR,
    last: LAST_YEAR,
    names: &[],
    expected: "1970-9999",
};

/// Parses a cron expression of 5 to 7 fields, or a short form such as `@daily`.
///
/// An error is the rest of a sentence that begins with "cron", such as "has 4 fields; expected 5
/// to 7".
pub(super) fn parse(expression: &str) -> Result<Pattern, String> {
    let mut fields: Vec<&str> = expression.split_whitespace().collect();
    if let [short] = fields[..]
        && short.starts_with('@')
    {
        let plain = SHORT
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(short));
        let (_, plain) = plain.ok_or_else(|| {
            let names: Vec<&str> = SHORT.iter().map(|(name, _)| *name).collect();
            format!("has `{short}`; expected {}", names.join(", "))
        })?;
        fields = plain.split(' ').collect();
    }
    match fields.len() {
        5 => {
            fields.insert(0, "0");
            fields.push("*");
        }
        6 => fields.push("*"),
        7 => {}
        other => return Err(format!("has {other} fields; expected 5 to 7")),
    }
    let [second, minute, hour, day, month, weekday, year] = fields[..] else {
        unreachable!("there are seven fields")
    };
    let seconds = SECOND.values(second)?;
    let minutes = MINUTE.values(minute)?;
    let hours = HOUR.values(hour)?;
    let is_one = |bits: u64| bits.is_power_of_two();
    let is_open = |text: &str| text.starts_with(['*', '?']);
    let (weekday, is_and) = match weekday.strip_prefix('+') {
        Some(weekday) => (weekday, true),
        None => (weekday, false),
    };
    Ok(Pattern {
        seconds,
        minutes,
        hours,
        days: days(day)?,
        months: MONTH.values(month)?,
        weekdays: weekdays(weekday)?,
        years: years(year)?,
        both: is_and || is_open(day) || is_open(weekday),
        once_a_day: [seconds, minutes, hours].into_iter().all(is_one)
            && ![second, minute, hour].into_iter().any(is_open),
    })
}

fn days(text: &str) -> Result<Days, String> {
    let field = &DAY_OF_MONTH;
    let mut days = Days::default();
    for item in text.split(',') {
        let upper = item.to_ascii_uppercase();
        match (upper.as_str(), upper.strip_suffix('W')) {
            ("L", _) => days.last = true,
            ("LW", _) => days.last_weekday = true,
            (_, Some(day)) => days.nearest |= 1 << field.value(item, day)?,
            (other, None) => days.listed |= field.bits(item, &open(other))?,
        }
    }
    Ok(days)
}

fn weekdays(text: &str) -> Result<Weekdays, String> {
    let field = &DAY_OF_WEEK;
    let mut weekdays = Weekdays::default();
    for item in text.split(',') {
        let upper = item.to_ascii_uppercase();
        if let Some((base, nth)) = upper.split_once('#') {
            let bits = match base.contains(['*', '?', '/']) {
                true => return Err(field.refusal(item, "`#` needs a day or a range of days")),
                false => field.bits(item, base)?,
            };
            match nth {
                "L" => weekdays.last |= bits,
                "1" | "2" | "3" | "4" | "5" => {
                    weekdays.nth[usize::from(nth.as_bytes()[0] - b'1')] |= bits;
                }
                _ => return Err(field.refusal(item, "`#` must be followed by 1 to 5 or L")),
            }
        } else if let Some(day) = upper.strip_suffix('L') {
            weekdays.last |= 1 << (field.value(item, day)? % 7);
        } else {
            weekdays.every |= field.bits(item, &open(&upper))?;
        }
    }
    Ok(weekdays)
}

/// Replaces a leading `?` by `*`. Both mean the same in the fields for days.
fn open(item: &str) -> String {
    match item.strip_prefix('?') {
        Some(rest) => format!("*{rest}"),
        None => item.to_owned(),
    }
}

fn years(text: &str) -> Result<Option<Vec<u32>>, String> {
    if text == "*" {
        return Ok(None);
    }
    let mut is_listed = vec![false; LAST_YEAR as usize + 1];
    for item in text.split(',') {
        if item.starts_with('*') {
            let problem = "a list or step of years needs a first year, as in 2026-2099/2";
            return Err(YEAR.refusal(item, problem));
        }
        for year in YEAR.items(item, item)? {
            is_listed[year as usize] = true;
        }
    }
    let listed = (0..).zip(is_listed).filter(|(_, is_listed)| *is_listed);
    Ok(Some(listed.map(|(year, _)| year).collect()))
}

impl Field {
    /// Returns the values of a comma-separated list, as a set of bits.
    fn values(&self, text: &str) -> Result<u64, String> {
        let mut bits = 0;
        for item in text.split(',') {
            bits |= self.bits(item, &item.to_ascii_uppercase())?;
        }
        Ok(bits)
    }

    fn bits(&self, written: &str, item: &str) -> Result<u64, String> {
        let values = self.items(written, item)?;
        Ok(values.into_iter().fold(0, |bits, value| bits | 1 << value))
    }

    /// Returns the values of one item of a list. An item is `*`, a value or a range, with an
    /// optional step. `written` is the item as the user wrote it, for errors.
    fn items(&self, written: &str, item: &str) -> Result<Vec<u32>, String> {
        let (base, step) = match item.split_once('/') {
            Some((base, step)) => (base, Some(self.step(written, step)?)),
            None => (item, None),
        };
        let (first, last) = match base.split_once('-') {
            _ if base == "*" => (self.first, self.last),
            Some((first, last)) => {
                let (first, last) = (self.value(written, first)?, self.value(written, last)?);
                (first, self.end_of_range(written, first, last)?)
            }
            None => {
                let first = self.value(written, base)?;
                match step {
                    // A step without a range continues to the last value of the field. If the first
                    // value is Sunday, written as 7, the values start at 0.
                    Some(_) if first > self.last => (self.first, self.last),
                    Some(_) => (first, self.last),
                    None => (first, first),
                }
            }
        };
        let values = (first..=last).step_by(step.unwrap_or(1));
        // Values above the last value of the field wrap around to its first value.
        let wrap = |value| match value > self.last {
            true => value - (self.last - self.first + 1),
            false => value,
        };
        Ok(values.map(wrap).collect())
    }

    /// Returns the last value of a range from `first` to `last`. If the range wraps around, the
    /// result exceeds the last value of the field. For example, the range of hours `22-6` ends at
    /// 30.
    fn end_of_range(&self, written: &str, first: u32, last: u32) -> Result<u32, String> {
        if first <= last {
            return Ok(last);
        }
        // Days of the month cannot wrap because months have different lengths; years do not repeat.
        if self.last == DAY_OF_MONTH.last || self.last == YEAR.last {
            let problem = format!("{first} is more than {last}");
            return Err(self.refusal(written, &problem));
        }
        Ok(last + self.last - self.first + 1)
    }

    fn step(&self, written: &str, step: &str) -> Result<usize, String> {
        let number = number(step).and_then(|step| usize::try_from(step).ok());
        number.filter(|step| *step > 0).ok_or_else(|| {
            self.refusal(
                written,
                &format!(
                    "expected a step of 1 or more, found \
                     `{step}`"
                ),
            )
        })
    }

    /// Parses a value of this field, which is a number or a name. Sunday may be written as 7.
    fn value(&self, written: &str, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| *name == text);
        if let Some(value) = named.and_then(|position| u32::try_from(position).ok()) {
            return Ok(self.first + value);
        }
        let last = self.last + u32::from(self.name == DAY_OF_WEEK.name);
        let problem = match number(text) {
            Some(value) if (self.first..=last).contains(&value) => return Ok(value),
            Some(_) => format!("{text} is out of range"),
            None if written.is_empty() => {
                let Self { name, expected, .. } = self;
                return Err(format!(
                    "lacks a {name} next to a comma; expected {expected}"
                ));
            }
            None if text.is_empty() => "a value is missing".to_owned(),
            None => format!("`{}` is not a value", text.to_ascii_lowercase()),
        };
        Err(self.refusal(written, &problem))
    }

    fn refusal(&self, written: &str, problem: &str) -> String {
        let Self { name, expected, .. } = self;
        format!("has the {name} `{written}`: {problem}; expected {expected}")
    }
}

/// Parses a number that consists of digits only. A number that is too large for `u32` becomes
/// `u32::MAX`.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u32::MAX))
}
