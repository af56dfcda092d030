//! What a setting may be: how it is read from a file and from a variable, and how it is written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ratchet_core::Retain;

use crate::redact::redact_url;
use crate::secret::{HIDDEN, Secret};

/// A value as it was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw {
    /// A variable or an argument: text without a type.
    Text(String),
    /// A string of the file.
    String(String),
    Integer(String),
    Boolean(bool),
    Array(Vec<Self>),
    /// What no setting is, with its name.
    Other(&'static str),
    /// What is no TOML, which was told already.
    Broken,
}

impl Raw {
    /// What it is, in a sentence.
    fn name(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::String(_) => "a string",
            Self::Integer(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::Array(_) => "a list",
            Self::Other(name) => name,
            Self::Broken => "unreadable",
        }
    }

    /// How it would stand in a file.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Text(text) | Self::String(text) => quoted(text),
            Self::Integer(digits) => digits.clone(),
            Self::Boolean(value) => value.to_string(),
            Self::Array(items) => {
                let items: Vec<String> = items.iter().map(Self::show).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Other(_) | Self::Broken => self.name().to_owned(),
        }
    }

    fn text(&self, meant: &str) -> Result<&str, String> {
        match self {
            Self::Text(text) | Self::String(text) => Ok(text),
            other => Err(format!("is {}; {meant} is meant", other.name())),
        }
    }
}

/// A string as it stands in a file.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// The type of a setting.
pub(crate) trait Value: Sized {
    /// What people are told to write.
    const MEANT: &'static str;
    /// Whether the value must not be shown as it is.
    const SECRET: bool = false;

    /// # Errors
    /// What is wrong, as the end of a sentence, without the value.
    fn read(raw: &Raw) -> Result<Self, String>;

    /// As it would stand in a file, with secrets hidden; none if it is not set.
    fn show(&self) -> Option<String>;

    /// The value where nothing is set, given its text in the table.
    fn initial(default: Option<&str>) -> Self;
}

/// Where nothing is set, the value that the text of the table means.
pub(crate) fn tabled<T: Value>(default: Option<&str>) -> T {
    let text = default.unwrap_or_default();
    let bare = text.trim_matches('"').to_owned();
    match T::read(&Raw::Text(bare)) {
        Ok(value) => value,
        Err(problem) => unreachable!("the default {text} {problem}"),
    }
}

impl<T: Value> Value for Option<T> {
    const MEANT: &'static str = T::MEANT;
    const SECRET: bool = T::SECRET;

    fn read(raw: &Raw) -> Result<Self, String> {
        T::read(raw).map(Some)
    }

    fn show(&self) -> Option<String> {
        self.as_ref().and_then(T::show)
    }

    /// None, whatever the table says: then the value is whoever's it is for.
    fn initial(_default: Option<&str>) -> Self {
        None
    }
}

impl Value for String {
    const MEANT: &'static str = "a string";

    fn read(raw: &Raw) -> Result<Self, String> {
        raw.text(Self::MEANT).map(str::to_owned)
    }

    fn show(&self) -> Option<String> {
        Some(quoted(self))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

impl Value for Secret<String> {
    const MEANT: &'static str = "a string";
    const SECRET: bool = true;

    fn read(raw: &Raw) -> Result<Self, String> {
        String::read(raw).map(Self::new)
    }

    fn show(&self) -> Option<String> {
        Some(quoted(HIDDEN))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

/// The URL of a database. It is shown without its password, by `Debug` and `Display` too.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(Secret<String>);

impl DatabaseUrl {
    /// Hides what is secret in a URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(Secret::new(url.into()))
    }

    /// The whole URL, for the one who connects.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// What stands before the first colon, if that can be a scheme.
    #[must_use]
    pub fn scheme(&self) -> Option<&str> {
        crate::redact::scheme(self.expose())
    }
}

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", redact_url(self.expose()))
    }
}

impl std::fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&redact_url(self.expose()))
    }
}

impl serde::Serialize for DatabaseUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Value for DatabaseUrl {
    const MEANT: &'static str = "a URL";
    const SECRET: bool = true;

    fn read(raw: &Raw) -> Result<Self, String> {
        raw.text(Self::MEANT).map(Self::new)
    }

    fn show(&self) -> Option<String> {
        Some(quoted(&redact_url(self.expose())))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

impl Value for PathBuf {
    const MEANT: &'static str = "a path";

    fn read(raw: &Raw) -> Result<Self, String> {
        match raw.text(Self::MEANT)? {
            "" => Err("is empty".to_owned()),
            path => Ok(Self::from(path)),
        }
    }

    fn show(&self) -> Option<String> {
        Some(quoted(&self.display().to_string()))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

impl Value for SocketAddr {
    const MEANT: &'static str = "an address and a port, as \"127.0.0.1:8080\" or \"[::1]:8080\"";

    fn read(raw: &Raw) -> Result<Self, String> {
        let parsed = raw.text(Self::MEANT)?.parse();
        parsed.map_err(|_| format!("is no address; {} is meant", Self::MEANT))
    }

    fn show(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

impl Value for bool {
    const MEANT: &'static str = "`true` or `false`";

    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Boolean(value) => Ok(*value),
            Raw::Text(text) if text == "true" => Ok(true),
            Raw::Text(text) if text == "false" => Ok(false),
            other => Err(format!("is {}; {} is meant", other.name(), Self::MEANT)),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const MEANT: &'static str = "a whole number";

            fn read(raw: &Raw) -> Result<Self, String> {
                let digits = match raw {
                    Raw::Integer(digits) | Raw::Text(digits) => digits,
                    other => return Err(format!("is {}; {} is meant", other.name(), Self::MEANT)),
                };
                digits.parse().map_err(|_| {
                    format!("is not {} from 0 to {}", Self::MEANT, Self::MAX)
                })
            }

            fn show(&self) -> Option<String> {
                Some(self.to_string())
            }

            fn initial(default: Option<&str>) -> Self {
                tabled(default)
            }
        }
    )*};
}

numbers!(u32, u64, usize);

impl Value for Duration {
    const MEANT: &'static str = "a duration with its units, as \"15s\", \"1m 30s\" or \"200ms\"";

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text(Self::MEANT)?;
        humantime::parse_duration(text)
            .map_err(|error| format!("is no duration ({error}); {} is meant", Self::MEANT))
    }

    fn show(&self) -> Option<String> {
        Some(quoted(&duration(*self)))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

/// A duration as people write it: in days and smaller, the units that are not zero.
pub(crate) fn duration(duration: Duration) -> String {
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

impl Value for Vec<String> {
    const MEANT: &'static str = "a list of strings";

    /// A variable has commas between the items; empty items do not count.
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Text(text) => {
                let items = text.split(',').map(str::trim);
                let items = items.filter(|item| !item.is_empty());
                Ok(items.map(str::to_owned).collect())
            }
            Raw::Array(items) => items
                .iter()
                .map(|item| match item {
                    Raw::String(text) => Ok(text.clone()),
                    other => Err(format!(
                        "has an item that is {}; {} is meant",
                        other.name(),
                        Self::MEANT
                    )),
                })
                .collect(),
            other => Err(format!("is {}; {} is meant", other.name(), Self::MEANT)),
        }
    }

    fn show(&self) -> Option<String> {
        let items: Self = self.iter().map(|item| quoted(item)).collect();
        Some(format!("[{}]", items.join(", ")))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

impl Value for Retain {
    const MEANT: &'static str = "\"forever\", a duration as \"90d\", or \"archive after 90d\"";

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text(Self::MEANT)?;
        let (archive, age) = match text.strip_prefix("archive after ") {
            _ if text == "forever" => return Ok(Self::Forever),
            Some(age) => (true, age),
            None => (false, text),
        };
        let age = humantime::parse_duration(age)
            .map_err(|error| format!("is not known ({error}); {} is meant", Self::MEANT))?;
        Ok(match archive {
            true => Self::Archive(age),
            false => Self::Delete(age),
        })
    }

    fn show(&self) -> Option<String> {
        Some(quoted(&match self {
            Self::Delete(age) => duration(*age),
            Self::Archive(age) => format!("archive after {}", duration(*age)),
            _ => "forever".to_owned(),
        }))
    }

    fn initial(default: Option<&str>) -> Self {
        tabled(default)
    }
}

/// A setting that is one of a few words.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $crate::value::Value for $name {
            const MEANT: &'static str = concat!("one of", $(" \"", $word, "\"",)+);

            fn read(raw: &$crate::value::Raw) -> Result<Self, String> {
                let text = <String as $crate::value::Value>::read(raw)?;
                match text.as_str() {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("is not known; {} is meant", Self::MEANT)),
                }
            }

            fn show(&self) -> Option<String> {
                Some($crate::value::quoted(match self {
                    $(Self::$variant => $word,)+
                }))
            }

            fn initial(default: Option<&str>) -> Self {
                $crate::value::tabled(default)
            }
        }
    };
}
pub(crate) use choice;
