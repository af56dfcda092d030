//! Error types for rejected input, invalid settings and failed store calls.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// A result whose error is a [`StoreError`].
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// The error for input that a call refused before it changed anything.
///
/// ```
/// use ratchet::{Name, NewJob};
///
/// let error = NewJob::new("mail", &1).queue("").validate().unwrap_err();
/// assert_eq!(error.field(), "queue");
/// assert!(error.to_string().contains("queue"));
/// # let _: Option<Name> = None;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{field} {problem}")]
pub struct InvalidInput {
    field: &'static str,
    problem: String,
}

impl<'de> Deserialize<'de> for InvalidInput {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Document {
            field: String,
            problem: String,
        }
        let Document { field, problem } = Document::deserialize(from)?;
        // The state machine of the in-memory store refuses a call only for one of these fields. A
        // later version may have other fields.
        let known = ["permit", "parent", "batch", "document"];
        let field = known.into_iter().find(|known| *known == field);
        Ok(Self::new(field.unwrap_or("input"), problem))
    }
}

impl InvalidInput {
    /// Creates an error from the name of a field and the problem with it. The two texts must form a
    /// sentence: `queue` and `is empty` become "queue is empty".
    #[must_use]
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self {
            field,
            problem: problem.into(),
        }
    }

    /// Creates the error for a job that needs a permit of `resource` if no limit has ever been set
    /// for this resource. All stores use this function, so they all report the same text.
    #[must_use]
    pub fn unknown_permit(resource: &impl fmt::Display) -> Self {
        let problem = format!(
            "names the resource {resource}, which has no limit in the store: set one with \
             Client::set_permits, or declare one with NodeBuilder::permits; a node stores the \
             limits that it declares when it joins, or earlier if Node::declare_permits is \
             called"
        );
        Self::new("permit", problem)
    }

    /// Returns the error text of a stored job that cannot be read because of this problem. Stores
    /// save it as the last error of the job.
    #[must_use]
    pub fn of_stored_job(&self) -> String {
        format!("the stored job cannot be read: {self}")
    }

    /// Returns the name of the invalid field: `payload`, `queue`, `timeout`, …
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }
}

/// A problem with the settings of a node: a text that describes it, and the names of the settings
/// that cause it.
///
/// ```
/// use ratchet::{MemoryStore, Ratchet};
///
/// let store = std::sync::Arc::new(MemoryStore::new());
/// let error = Ratchet::builder(store).concurrency(0).build().unwrap_err();
/// assert!(error.to_string().contains("concurrency is 0"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SettingProblem {
    settings: Vec<Cow<'static, str>>,
    text: String,
}

impl SettingProblem {
    /// Creates a problem that the named settings cause. The names are those of the builder, such as
    /// `heartbeat_interval` or `leader_timings.ttl`.
    #[must_use]
    pub fn new(settings: &[&'static str], text: impl Into<String>) -> Self {
        Self {
            settings: settings.iter().copied().map(Cow::Borrowed).collect(),
            text: text.into(),
        }
    }

    /// Creates a problem that a setting of a pool causes, such as `pool.gpu/concurrency`. If
    /// `setting` is empty, the pool itself causes the problem: `pool.gpu`.
    pub(crate) fn of_pool(pool: &str, setting: &str, text: impl Into<String>) -> Self {
        let slash = if setting.is_empty() { "" } else { "/" };
        Self {
            settings: vec![Cow::Owned(format!("pool.{pool}{slash}{setting}"))],
            text: text.into(),
        }
    }

    /// Returns the names of the settings that cause the problem. The builder uses the same names. A
    /// pool is named `pool.<name>`, and a setting of a pool `pool.<name>/<setting>`. The iterator
    /// is empty if no setting causes the problem, but the program itself.
    pub fn settings(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().map(Cow::as_ref)
    }
}

impl From<String> for SettingProblem {
    fn from(text: String) -> Self {
        Self::new(&[], text)
    }
}

impl From<InvalidInput> for SettingProblem {
    fn from(invalid: InvalidInput) -> Self {
        Self::new(&[invalid.field], invalid.to_string())
    }
}

/// The reason why this program cannot use a database's schema. Each reason needs a different
/// remedy.
///
/// ```
/// # async fn example(url: &str) {
/// use ratchet::{ConnectError, SchemaProblem, StoreErrorKind};
///
/// if let Err(ConnectError::Store(error)) = ratchet::connect(url).await
///     && error.kind() == StoreErrorKind::SchemaMismatch(SchemaProblem::Newer)
/// {
///     eprintln!("a newer version of Ratchet has migrated this database");
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SchemaProblem {
    /// The database file does not exist, and the program is not allowed to create it.
    NoFile,
    /// Migrations are missing, and the program is not allowed to apply them.
    Behind,
    /// A newer version of Ratchet has migrated the schema.
    Newer,
    /// Tables or indexes are missing, were changed, or do not belong to Ratchet. Migrations cannot
    /// repair this.
    Altered,
}

/// The kind of a [`StoreError`].
///
/// ```
/// use ratchet::StoreErrorKind;
///
/// assert!(StoreErrorKind::Unavailable.is_transient());
/// assert!(!StoreErrorKind::Invalid.is_transient());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The database cannot be reached, or the connection was lost.
    Unavailable,
    /// The call got no answer within its deadline. Whether the call took effect is unknown.
    Timeout,
    /// The database aborted the call because of concurrent transactions: a deadlock, a
    /// serialization failure, or a lock that was held for too long. Nothing has changed, and the
    /// call may be repeated.
    Contention,
    /// The database's disk is full.
    Full,
    /// The database currently accepts no writes.
    ReadOnly,
    /// The store refused the input. [`StoreError::invalid_input`] names the invalid part.
    Invalid,
    /// The URL or the settings of the store are wrong.
    Misconfigured,
    /// The schema of the database does not fit this program.
    SchemaMismatch(SchemaProblem),
    /// The database contains a value that this program cannot decode.
    Corrupt,
    /// Any other failure.
    Other,
}

impl StoreErrorKind {
    /// Returns whether the same call may succeed later without a change of the program or its
    /// settings. After such a failure, the engine waits and repeats the call. After any other
    /// failure, the engine reports the error at once and keeps running.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Unavailable | Self::Timeout | Self::Contention | Self::Full | Self::ReadOnly
        )
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timed out",
            Self::Contention => "contention",
            Self::Full => "disk full",
            Self::ReadOnly => "read-only",
            Self::Invalid => "invalid input",
            Self::Misconfigured => "misconfigured",
            Self::SchemaMismatch(_) => "schema mismatch",
            Self::Corrupt => "corrupt",
            Self::Other => "failed",
        }
    }
}

/// The error of a failed store call. A call that loses a race against another call does not fail:
/// it returns `Ok`, and its result reports the loss.
///
/// `Display` prints one line, `operation: kind: cause`. The line contains no credentials and no
/// parameters of the call.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{NewJob, Ratchet, StoreErrorKind};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let error = client.enqueue(NewJob::new("", &1)).await.unwrap_err();
/// assert_eq!(error.kind(), StoreErrorKind::Invalid);
/// assert_eq!(error.invalid_input().map(|input| input.field()), Some("kind"));
/// # Ok(()) }
/// ```
pub struct StoreError {
    kind: StoreErrorKind,
    operation: &'static str,
    source: Option<Source>,
}

impl StoreError {
    /// Creates the error of a failed call. `operation` is the name of the call.
    #[must_use]
    pub const fn new(kind: StoreErrorKind, operation: &'static str) -> Self {
        Self {
            kind,
            operation,
            source: None,
        }
    }

    /// Adds the cause of the failure. Stores must not put credentials or payloads into the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Replaces the name of the failed call. Use this method to report the call that the
    /// application made, and not an internal call.
    #[must_use]
    pub const fn during(mut self, operation: &'static str) -> Self {
        self.operation = operation;
        self
    }

    /// Returns the kind of the failure.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns the name of the failed call, such as `enqueue`.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns whether the same call may succeed later: [`StoreErrorKind::is_transient`] of this
    /// error's kind.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Returns the details of the invalid input, if the store refused the input. Otherwise `None`.
    #[must_use]
    pub fn invalid_input(&self) -> Option<&InvalidInput> {
        self.source.as_ref()?.downcast_ref()
    }
}

impl From<InvalidInput> for StoreError {
    fn from(invalid: InvalidInput) -> Self {
        Self::new(StoreErrorKind::Invalid, "check input").with_source(invalid)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.kind.as_str())?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("kind", &self.kind)
            .field("operation", &self.operation)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

/// The maximum length of a stored error text, in characters.
pub const MAX_ERROR_CHARS: usize = 2_000;

/// Prepares an error text for storage: cuts it to [`MAX_ERROR_CHARS`] characters, and replaces NUL
/// characters. Also replaces the credentials in every URL (`scheme://user:password@host`) with
/// `***`.
#[must_use]
pub fn storable_error(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_ERROR_CHARS * 4));
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        out.push_str(head);
        // Removes everything up to the last `@` of the word. A password may contain any character,
        // and removing too much is better than keeping part of it.
        let word = tail
            .find(|c: char| c.is_whitespace() || c == '"' || c == '\'')
            .unwrap_or(tail.len());
        rest = match tail[..word].rfind('@') {
            Some(user) => {
                out.push_str("***");
                &tail[user..]
            }
            None => tail,
        };
    }
    out.push_str(rest);
    out.chars()
        .map(|c| if c == '\0' { '\u{fffd}' } else { c })
        .take(MAX_ERROR_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_one_line_of_operation_kind_and_cause() {
        let error = StoreError::new(StoreErrorKind::Timeout, "settle").with_source("after 5 s");
        assert_eq!(error.to_string(), "settle: timed out: after 5 s");
        assert!(error.is_transient());
    }

    #[test]
    fn refused_input_can_be_found_again() {
        let error = StoreError::from(InvalidInput::new("queue", "is empty")).during("enqueue");
        assert_eq!(error.kind(), StoreErrorKind::Invalid);
        assert_eq!(error.invalid_input().unwrap().field(), "queue");
        assert_eq!(error.to_string(), "enqueue: invalid input: queue is empty");
    }

    #[test]
    fn stored_errors_lose_credentials_and_excess() {
        assert_eq!(
            storable_error("no route to db://bob:p/w@db:5432/x, not http://h/p or 'a://b@c'"),
            "no route to db://***@db:5432/x, not http://h/p or 'a://***@c'"
        );
        assert_eq!(storable_error("a\0b"), "a\u{fffd}b");
        assert_eq!(storable_error(&"ä".repeat(3_000)).chars().count(), 2_000);
    }
}
