//! Values from the file, the environment and the arguments, and their conversion for serde.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ratchet_core::Retain;
use serde::de::{Deserialize, Deserializer, Error};

use crate::redact::{redact_url, scheme};
use crate::secret::{HIDDEN, Secret};
use crate::sections::{Encryption, Payloads, Synchronous};

/// A value before its conversion, from the file, a variable or an argument.
#[derive(Clone, PartialEq)]
pub(crate) enum Raw {
    /// Text of a variable or an argument. The type of the value is not known.
    Text(String),
    /// String from the file.
    String(String),
    Integer(String),
    Boolean(bool),
    Array(Vec<Self>),
    /// Value of a type that no setting can have. The field contains the name of the type.
    Other(&'static str),
    /// Value in a line that is not valid TOML. The loader reports this line separately.
    Broken,
}

impl Raw {
    /// An empty table. Tables with entries do not become values, because their entries have keys of
    /// their own.
    pub(crate) const TABLE: Self = Self::Other("a table");

    /// Returns the name of the type, for error messages.
    fn name(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::String(_) => "a string",
            Self::Integer(_) => "a number",
            Self::Boolean(_) => "a boolean",
            Self::Array(_) => "a list",
            Self::Other(name) => name,
            Self::Broken => "unreadable",
        }
    }

    /// Returns the value in the syntax of the file.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Text(text) | Self::String(text) => toml::Value::from(text.as_str()).to_string(),
            Self::Integer(digits) => digits.clone(),
            Self::Boolean(value) => value.to_string(),
            Self::Array(items) => {
                let items: Vec<String> = items.iter().map(Self::show).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Other(_) | Self::Broken => self.name().to_owned(),
        }
    }
}

/// The types of values that settings can have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Flag,
    /// A whole number from 0 to this maximum.
    Number(u64),
    List,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A text. The fields are a description for error messages, and a function that checks a text
    /// and returns it in the usual form.
    Text(&'static str, fn(&str) -> Result<String, String>),
    /// A secret. The fields are a description for error messages, and a function that returns the
    /// part of the secret that is safe to show.
    Secret(&'static str, fn(&str) -> String),
}

impl Kind {
    /// Converts a value to the type of the setting.
    ///
    /// # Errors
    /// Fails with a description of the problem if the value is invalid. The description does not
    /// contain the value.
    pub(crate) fn read(self, raw: &Raw) -> Result<toml::Value, String> {
        let other = |meant| Err(format!("expected {meant}, found {}", raw.name()));
        match (self, raw) {
            (Self::Flag, Raw::Boolean(value)) => Ok((*value).into()),
            (Self::Flag, Raw::Text(text)) if text == "true" => Ok(true.into()),
            (Self::Flag, Raw::Text(text)) if text == "false" => Ok(false.into()),
            (Self::Flag, _) => other("`true` or `false`"),
            (Self::Number(most), Raw::Integer(digits) | Raw::Text(digits)) => {
                let number = digits.parse::<u64>().ok().filter(|number| *number <= most);
                let number = number.ok_or(format!("is not a whole number from 0 to {most}"))?;
                // TOML integers are signed. A larger number becomes the maximum of `i64`, which as
                // a limit means no limit.
                Ok(i64::try_from(number).unwrap_or(i64::MAX).into())
            }
            (Self::Number(_), _) => other("a whole number"),
            // In a variable, commas separate the items. Empty items are ignored.
            (Self::List, Raw::Text(text)) => {
                let items = text.split(',').map(str::trim);
                let items = items.filter(|item| !item.is_empty());
                Ok(items.map(toml::Value::from).collect::<Vec<_>>().into())
            }
            (Self::List, Raw::Array(items)) => {
                let items = items.iter().map(|item| match item {
                    Raw::String(text) => Ok(toml::Value::from(text.as_str())),
                    odd => Err(format!(
                        "expected a list of strings, found an item that is {}",
                        odd.name()
                    )),
                });
                items.collect::<Result<Vec<_>, _>>().map(Into::into)
            }
            (Self::List, _) => other("a list of strings"),
            (Self::Choice(words), Raw::Text(text) | Raw::String(text)) => {
                if words.contains(&text.as_str()) {
                    return Ok(text.as_str().into());
                }
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                Err(format!("expected one of {}", words.join(" ")))
            }
            (Self::Choice(_), _) => other("a string"),
            (Self::Text(_, form), Raw::Text(text) | Raw::String(text)) => {
                form(text).map(Into::into)
            }
            (Self::Secret(..), Raw::Text(text) | Raw::String(text)) => Ok(text.as_str().into()),
            (Self::Text(meant, _) | Self::Secret(meant, _), _) => other(meant),
        }
    }

    /// Returns a value of this type in the syntax of the file, with secrets hidden.
    pub(crate) fn show(self, value: &toml::Value) -> String {
        match (self, value.as_str()) {
            (Self::Secret(_, show), Some(text)) => toml::Value::from(show(text)).to_string(),
            _ => value.to_string(),
        }
    }
}

/// A Rust type that a setting's value can have.
pub(crate) trait Setting {
    const KIND: Kind;
}

impl<T: Setting> Setting for Option<T> {
    const KIND: Kind = T::KIND;
}

macro_rules! kinds {
    ($($type:ty => $kind:expr;)*) => {
        $(impl Setting for $type {
            const KIND: Kind = $kind;
        })*
    };
}

kinds! {
    bool => Kind::Flag;
    u32 => Kind::Number(u32::MAX as u64);
    u64 => Kind::Number(u64::MAX);
    usize => Kind::Number(usize::MAX as u64);
    Vec<String> => Kind::List;
    Synchronous => Kind::Choice(&["full", "normal"]);
    Encryption => Kind::Choice(&["strict", "required", "login", "off"]);
    Payloads => Kind::Choice(&["hidden", "shown"]);
    String => Kind::Text("a string", |text| Ok(text.to_owned()));
    Secret<String> => Kind::Secret("a string", |_| HIDDEN.to_owned());
    DatabaseUrl => Kind::Secret("a URL", redact_url);
    PathBuf => Kind::Text("a path", |text| match text {
        "" => Err("is empty".to_owned()),
        path => Ok(path.to_owned()),
    });
    SocketAddr => Kind::Text(ADDRESS, |text| match text.parse::<Self>() {
        Ok(address) => Ok(address.to_string()),
        Err(_) => Err(format!("expected {ADDRESS}")),
    });
    Duration => Kind::Text(DURATION, |text| match humantime::parse_duration(text) {
        Ok(time) => Ok(in_words(time)),
        Err(error) => Err(format!("expected {DURATION} ({error})")),
    });
    Retain => Kind::Text(RETAIN, |text| match parse_retain(text) {
        Ok(Retain::Delete(age)) => Ok(in_words(age)),
        Ok(Retain::Archive(age)) => Ok(format!("{ARCHIVE}{}", in_words(age))),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("expected {RETAIN} ({error})")),
    });
}

const ADDRESS: &str = "an address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"";
const DURATION: &str = "a duration with its units, such as \"15s\", \"1m 30s\" or \"200ms\"";
const RETAIN: &str = "\"forever\", a duration such as \"90d\", or \"archive after 90d\"";
const ARCHIVE: &str = "archive after ";

/// Formats a duration with the units from days to nanoseconds, without the units that are zero,
/// such as `1d 2h`.
fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (u64::from(duration.subsec_millis()), "ms"),
        (u64::from(duration.subsec_micros() % 1_000), "us"),
        (u64::from(duration.subsec_nanos() % 1_000), "ns"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    match parts.is_empty() {
        true => "0s".to_owned(),
        false => parts.join(" "),
    }
}

fn parse_retain(text: &str) -> Result<Retain, humantime::DurationError> {
    match text.strip_prefix(ARCHIVE) {
        _ if text == "forever" => Ok(Retain::Forever),
        Some(age) => humantime::parse_duration(age).map(Retain::Archive),
        None => humantime::parse_duration(text).map(Retain::Delete),
    }
}

pub(crate) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let time = humantime::parse_duration(&String::deserialize(from)?);
    time.map(Some).map_err(Error::custom)
}

pub(crate) fn retain<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Retain>, D::Error> {
    let retain = parse_retain(&String::deserialize(from)?);
    retain.map(Some).map_err(Error::custom)
}

/// The URL of a database. `Debug` and `Display` show the URL without its password.
///
/// ```
/// use ratchet_config::DatabaseUrl;
///
/// let url = DatabaseUrl::new("postgres://ratchet:secret@db/jobs");
/// assert_eq!(url.scheme(), Some("postgres"));
/// assert!(!url.to_string().contains("secret"));
/// assert!(url.expose().contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
pub struct DatabaseUrl(Secret<String>);

impl DatabaseUrl {
    /// Creates a `DatabaseUrl` from the text of a URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(Secret::new(url.into()))
    }

    /// Returns the whole URL, including the password. Call this method only to connect to the
    /// database.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Returns the scheme of the URL: the text before the first colon. Returns `None` if this text
    /// is not a possible scheme.
    #[must_use]
    pub fn scheme(&self) -> Option<&str> {
        scheme(self.expose())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redact_url(self.expose()))
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_url(self.expose()))
    }
}

impl serde::Serialize for DatabaseUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
