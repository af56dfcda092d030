use std::fmt;
use std::path::{Path, PathBuf};

/// The origin of a setting's value.
///
/// ```
/// use ratchet_config::{Config, Origin};
///
/// let config = Config::loader().text("ratchet.toml", "[cluster]\nttl = '20s'\n").load()?;
/// match config.origin("cluster.ttl") {
///     Origin::File { line, .. } => assert_eq!(line, 2),
///     other => println!("cluster.ttl is from {other}"),
/// }
/// # Ok::<(), ratchet_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The default. The value is not set anywhere.
    Default,
    /// A line of the configuration file.
    File {
        /// Path of the file, as the user gave it.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
    },
    /// An environment variable. The field contains its name.
    Variable(String),
    /// An argument of the program that loaded the configuration. The field contains its name, such
    /// as `--url`.
    Argument(String),
}

impl Origin {
    /// Returns the rank of the origin. If a key has several values, the value whose origin has the
    /// highest rank takes effect. From high to low, the ranks are: argument, variable, file,
    /// default.
    pub(crate) const fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Variable(_) => 2,
            Self::Argument(_) => 3,
        }
    }

    pub(crate) fn file(path: &Path, line: usize) -> Self {
        Self::File {
            path: path.to_owned(),
            line,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) | Self::Argument(name) => f.write_str(name),
        }
    }
}

impl serde::Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
