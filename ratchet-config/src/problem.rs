use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::origin::Origin;

/// One of the values that cause a [`Problem`], with its key and its origin.
///
/// See [`ConfigError`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Place {
    /// Key of the value, such as `cluster.ttl`.
    pub key: String,
    /// The value in the syntax of the file. `None` if the value is not set or must not be shown.
    pub value: Option<String>,
    /// Origin of the value.
    pub origin: Origin,
}

impl Place {
    /// Creates a place that does not show its value.
    pub(crate) const fn unseen(key: String, origin: Origin) -> Self {
        Self {
            key,
            value: None,
            origin,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        match (&self.value, &self.origin) {
            (None, Origin::Default) => f.write_str(" (not set)"),
            (_, origin) => write!(f, " ({origin})"),
        }
    }
}

/// A problem of a configuration: a rule, and the values that break it.
///
/// See [`ConfigError`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// Values that break the rule. Empty if the problem concerns no particular key.
    pub places: Vec<Place>,
    /// The broken rule, as the end of a message that begins with the values.
    pub rule: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.places.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{place}")?;
        }
        let separator = if self.places.is_empty() { "" } else { ": " };
        write!(f, "{separator}{}", self.rule)
    }
}

/// The error for an invalid configuration. It contains every problem that was found.
///
/// ```
/// use ratchet_config::Config;
///
/// let loaded = Config::loader()
///     .text("ratchet.toml", "[worker]\nconcurrency = 'many'\n")
///     .load();
/// if let Err(error) = &loaded {
///     for problem in error.problems() {
///         eprintln!("{problem}");
///         assert_eq!(problem.places[0].key, "worker.concurrency");
///     }
/// }
/// # assert!(loaded.is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the configuration is invalid\n{}", lines(problems))]
pub struct ConfigError {
    file: Option<PathBuf>,
    problems: Vec<Problem>,
}

impl ConfigError {
    pub(crate) const fn new(file: Option<PathBuf>, problems: Vec<Problem>) -> Self {
        Self { file, problems }
    }

    /// Returns all problems of the configuration.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the path of the configuration file, or `None` if no file was read.
    #[must_use]
    pub fn file(&self) -> Option<&std::path::Path> {
        self.file.as_deref()
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}
