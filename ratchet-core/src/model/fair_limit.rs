//! Limits of the running jobs of each fair key.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::model::document;
use crate::name::Name;
use crate::store::Changed;

/// The fair keys to which a limit applies: all keys of some queues, or one key of a queue.
///
/// ```
/// use ratchet::FairScope;
///
/// assert_eq!(FairScope::queues("render")?.to_string(), "each key of queue `render`");
/// assert_eq!(FairScope::queues("mail*")?.to_string(), "each key of queues `mail*`");
/// let vip = FairScope::key("render", "tenant:7")?;
/// assert_eq!(vip.to_string(), "key `tenant:7` of queue `render`");
/// # Ok::<(), ratchet::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "StoredScope", into = "StoredScope")]
pub struct FairScope {
    queues: Name,
    key: Option<Name>,
}

impl FairScope {
    /// Selects each key of a queue, or of all queues whose names begin with a prefix: `mail*` is a
    /// pattern for `mail` and `mail-bulk`, and `*` for all queues.
    ///
    /// # Errors
    /// [`InvalidInput`] for `queue` if the text is not a valid [`Name`].
    pub fn queues(pattern: impl AsRef<str>) -> Result<Self, InvalidInput> {
        let queues = Name::new("queue", pattern)?;
        Ok(Self { queues, key: None })
    }

    /// Selects one key of a queue. Its limit replaces that of all keys of the queue.
    ///
    /// # Errors
    /// [`InvalidInput`] for `queue` if the text is not a valid [`Name`] or a pattern, and for
    /// `fair_key` if the key is not a valid [`Name`].
    pub fn key(queue: impl AsRef<str>, key: impl AsRef<str>) -> Result<Self, InvalidInput> {
        let scope = Self {
            queues: Name::new("queue", queue)?,
            key: Some(Name::new("fair_key", key)?),
        };
        match scope.prefix() {
            None => Ok(scope),
            Some(_) => Err(InvalidInput::new(
                "queue",
                format!(
                    "`{}` is a pattern; a limit of one key needs the name of a queue",
                    scope.queues
                ),
            )),
        }
    }

    /// Creates the scope from its stored parts. An empty key means all keys.
    ///
    /// # Errors
    /// [`InvalidInput`] if a part is invalid.
    pub fn from_stored(queues: &str, key: &str) -> Result<Self, InvalidInput> {
        match key {
            "" => Self::queues(queues),
            key => Self::key(queues, key),
        }
    }

    /// Returns the name of the queue, or the pattern.
    #[must_use]
    pub const fn queue(&self) -> &Name {
        &self.queues
    }

    /// Returns the key; `None` if the scope has all keys.
    #[must_use]
    pub const fn fair_key(&self) -> Option<&Name> {
        self.key.as_ref()
    }

    /// Returns the key as stores save it: empty if the scope has all keys.
    #[must_use]
    pub fn key_text(&self) -> &str {
        self.key.as_ref().map_or("", Name::as_str)
    }

    /// Returns the prefix of a pattern; `None` if the scope names one queue.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.queues.as_str().strip_suffix('*')
    }

    /// Returns whether the scope has this queue.
    #[must_use]
    pub fn has_queue(&self, queue: &Name) -> bool {
        match self.prefix() {
            Some(prefix) => queue.as_str().starts_with(prefix),
            None => self.queues == *queue,
        }
    }
}

impl fmt::Display for FairScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = &self.queues;
        match (&self.key, self.prefix()) {
            (Some(key), _) => write!(f, "key `{key}` of queue `{queues}`"),
            (None, None) => write!(f, "each key of queue `{queues}`"),
            (None, Some(_)) => write!(f, "each key of queues `{queues}`"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredScope {
    queue: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    key: String,
}

impl TryFrom<StoredScope> for FairScope {
    type Error = InvalidInput;

    fn try_from(stored: StoredScope) -> Result<Self, InvalidInput> {
        Self::from_stored(&stored.queue, &stored.key)
    }
}

impl From<FairScope> for StoredScope {
    fn from(scope: FairScope) -> Self {
        Self {
            queue: scope.queues.as_str().to_owned(),
            key: scope.key_text().to_owned(),
        }
    }
}

/// A limit: how many jobs of each fair key of its scope may run at once. Each key of each queue has
/// this many places of its own.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for limit in client.fair_limits().await? {
///     println!("{}: at most {} at once", limit.scope, limit.max);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FairLimit {
    /// The keys.
    pub scope: FairScope,
    /// The maximum number of running jobs of each key. With 0, no job of the key is claimed.
    pub max: u32,
}

impl FairLimit {
    /// Creates a limit.
    #[must_use]
    pub const fn new(scope: FairScope, max: u32) -> Self {
        Self { scope, max }
    }

    /// Encodes the limit as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        document::encode(self)
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] naming `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        document::decode(document)
    }
}

/// The limits of a store. It decides which limit applies to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<FairLimit>", into = "Vec<FairLimit>")]
pub struct FairLimits {
    limits: BTreeMap<FairScope, u32>,
    /// The limits of patterns, by prefix.
    patterns: BTreeMap<String, u32>,
}

impl FairLimits {
    /// Sets the limit of a scope, or removes it if `max` is `None`.
    pub fn set(&mut self, scope: &FairScope, max: Option<u32>) -> Changed {
        if let Some(prefix) = scope.prefix() {
            match max {
                Some(max) => self.patterns.insert(prefix.to_owned(), max),
                None => self.patterns.remove(prefix),
            };
        }
        let before = match max {
            Some(max) => self.limits.insert(scope.clone(), max),
            None => self.limits.remove(scope),
        };
        Changed::when(before != max)
    }

    /// Returns the limit of exactly this scope.
    #[must_use]
    pub fn get(&self, scope: &FairScope) -> Option<u32> {
        self.limits.get(scope).copied()
    }

    /// Returns the limit that applies to a key of a queue: that of the key, or else that of the
    /// queue, or else that of the longest pattern. `None` if there is none.
    #[must_use]
    pub fn of(&self, queue: &Name, key: &Name) -> Option<u32> {
        if self.limits.is_empty() {
            return None;
        }
        let exact = |key: Option<&Name>| {
            let scope = FairScope {
                queues: queue.clone(),
                key: key.cloned(),
            };
            self.get(&scope)
        };
        exact(Some(key)).or_else(|| exact(None)).or_else(|| {
            if self.patterns.is_empty() {
                return None;
            }
            let ends = (0..=queue.as_str().len()).rev();
            let mut prefixes = ends.filter_map(|end| queue.as_str().get(..end));
            prefixes.find_map(|prefix| self.patterns.get(prefix).copied())
        })
    }

    /// Returns whether there is no limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Returns the limits in the order in which stores list them: by queue or pattern, and then by
    /// key. The limit of all keys comes first.
    #[must_use]
    pub fn into_list(self) -> Vec<FairLimit> {
        let limit = |(scope, max)| FairLimit::new(scope, max);
        self.limits.into_iter().map(limit).collect()
    }
}

impl FromIterator<FairLimit> for FairLimits {
    fn from_iter<T: IntoIterator<Item = FairLimit>>(limits: T) -> Self {
        let mut all = Self::default();
        for limit in limits {
            all.set(&limit.scope, Some(limit.max));
        }
        all
    }
}

impl From<Vec<FairLimit>> for FairLimits {
    fn from(limits: Vec<FairLimit>) -> Self {
        limits.into_iter().collect()
    }
}

impl From<FairLimits> for Vec<FairLimit> {
    fn from(limits: FairLimits) -> Self {
        limits.into_list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new("name", text).unwrap()
    }

    #[test]
    fn the_most_specific_limit_applies() {
        let mut limits = FairLimits::default();
        assert_eq!(limits.of(&name("mail"), &name("a")), None);
        for (scope, max) in [
            (FairScope::queues("*"), 9),
            (FairScope::queues("m*"), 8),
            (FairScope::queues("mail*"), 7),
            (FairScope::queues("mail"), 6),
            (FairScope::key("mail", "a"), 0),
        ] {
            let scope = scope.unwrap();
            assert_eq!(limits.set(&scope, Some(max)), Changed::Changed);
            assert_eq!(limits.set(&scope, Some(max)), Changed::Unchanged);
        }
        for (queue, key, max) in [
            ("mail", "a", 0),
            ("mail", "b", 6),
            ("mail2", "a", 7),
            ("mai", "a", 8),
            ("x", "a", 9),
        ] {
            assert_eq!(
                limits.of(&name(queue), &name(key)),
                Some(max),
                "{queue} {key}"
            );
        }
        let scope = FairScope::key("mail", "a").unwrap();
        assert_eq!(limits.set(&scope, None), Changed::Changed);
        assert_eq!(limits.set(&scope, None), Changed::Unchanged);
        assert_eq!(limits.of(&name("mail"), &name("a")), Some(6));
    }

    #[test]
    fn limits_are_listed_by_queue_and_then_by_key() {
        let scopes = [
            FairScope::key("b", "x"),
            FairScope::queues("b*"),
            FairScope::queues("b"),
            FairScope::key("a", "z"),
            FairScope::key("b", "a"),
        ];
        let limits = scopes.map(|scope| FairLimit::new(scope.unwrap(), 1));
        let limits: FairLimits = limits.into_iter().collect();
        let listed: Vec<String> = limits
            .into_list()
            .iter()
            .map(|limit| format!("{} {}", limit.scope.queue(), limit.scope.key_text()))
            .collect();
        assert_eq!(listed, ["a z", "b ", "b a", "b x", "b* "]);
    }

    #[test]
    fn bad_scopes_are_refused_by_field() {
        let long = "x".repeat(Name::MAX_BYTES + 1);
        for queue in ["", " a", "a\n", &long] {
            assert_eq!(FairScope::queues(queue).unwrap_err().field(), "queue");
            assert_eq!(FairScope::key(queue, "a").unwrap_err().field(), "queue");
            assert_eq!(FairScope::key("a", queue).unwrap_err().field(), "fair_key");
        }
        assert_eq!(FairScope::key("a*", "a").unwrap_err().field(), "queue");
    }

    #[test]
    fn a_limit_round_trips() {
        for scope in [FairScope::queues("a*"), FairScope::key("a", "b")] {
            let limit = FairLimit::new(scope.unwrap(), 3);
            let text = limit.encode().unwrap();
            assert_eq!(FairLimit::decode(&text), Ok(limit.clone()));
            let (queue, key) = (limit.scope.queue().as_str(), limit.scope.key_text());
            assert_eq!(FairScope::from_stored(queue, key), Ok(limit.scope.clone()));
        }
        let bad = "{\"v\":1,\"scope\":{\"queue\":\"a*\",\"key\":\"b\"},\"max\":1}";
        assert!(FairLimit::decode(bad).is_err());
    }
}
