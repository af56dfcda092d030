//! Pauses of queues and kinds.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::limits::MAX_REASON_BYTES;
use crate::model::{DueRoute, document};
use crate::name::{Name, check_text};
use crate::route::Route;
use crate::time::{Timestamp, from_millis};

/// What a pause applies to: the jobs of a queue, or the jobs of a kind in all queues.
///
/// The kind is that of the stored job. Jobs that are stored under an earlier kind of their type (an
/// alias) have a pause of their own.
///
/// ```
/// use ratchet::PauseScope;
///
/// let mail = PauseScope::kind("mail")?;
/// assert_eq!(mail.to_string(), "kind `mail`");
/// # Ok::<(), ratchet::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseScope {
    /// The jobs of this queue.
    Queue(Name),
    /// The jobs of this kind.
    Kind(Name),
}

impl PauseScope {
    /// Selects the jobs of a queue.
    ///
    /// # Errors
    /// [`InvalidInput`] for `queue` if the text is not a valid [`Name`].
    pub fn queue(name: impl AsRef<str>) -> Result<Self, InvalidInput> {
        Name::new("queue", name).map(Self::Queue)
    }

    /// Selects the jobs of a kind.
    ///
    /// # Errors
    /// [`InvalidInput`] for `kind` if the text is not a valid [`Name`].
    pub fn kind(name: impl AsRef<str>) -> Result<Self, InvalidInput> {
        Name::new("kind", name).map(Self::Kind)
    }

    /// Returns the name of the queue or kind.
    #[must_use]
    pub const fn name(&self) -> &Name {
        match self {
            Self::Queue(name) | Self::Kind(name) => name,
        }
    }

    /// Returns the number that stores save: 0 for a queue, 1 for a kind.
    /// [`from_stored`](Self::from_stored) is the inverse.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Queue(_) => 0,
            Self::Kind(_) => 1,
        }
    }

    /// Creates the scope from its stored [`code`](Self::code) and name.
    ///
    /// # Errors
    /// [`InvalidInput`] if the code is unknown or the name is invalid.
    pub fn from_stored(code: i64, name: impl AsRef<str>) -> Result<Self, InvalidInput> {
        match code {
            0 => Self::queue(name),
            1 => Self::kind(name),
            _ => Err(InvalidInput::new("scope", format!("cannot be {code}"))),
        }
    }
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue `{name}`"),
            Self::Kind(name) => write!(f, "kind `{name}`"),
        }
    }
}

/// A request to pause a queue or a kind, with the name of the operator and the reason.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::{PauseRequest, PauseScope};
///
/// let kind = PauseScope::kind("charge_card")?;
/// let request = PauseRequest::new(kind.clone())
///     .by("alice")
///     .reason("the payment provider is down, incident 1234");
/// client.begin_pause(&request).await?;
/// for pause in client.pauses().await? {
///     let by = pause.by.as_deref().unwrap_or("an unknown operator");
///     println!("{} was paused by {by} at {}", pause.scope, pause.at);
/// }
/// client.end_pause(&kind).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PauseRequest {
    /// The queue or kind.
    pub scope: PauseScope,
    /// Who pauses it, such as a user name.
    pub by: Option<String>,
    /// Why it is paused.
    pub reason: Option<String>,
}

impl PauseRequest {
    /// Creates a request that names no operator and no reason.
    #[must_use]
    pub const fn new(scope: PauseScope) -> Self {
        Self {
            scope,
            by: None,
            reason: None,
        }
    }

    /// Sets who pauses the queue or kind: 1 to 128 bytes, with the rules of a [`Name`].
    #[must_use]
    pub fn by(mut self, by: impl Into<String>) -> Self {
        self.by = Some(by.into());
        self
    }

    /// Sets the reason: 1 to [`MAX_REASON_BYTES`] bytes, with the other rules of a [`Name`].
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Checks the texts. The door calls this method, so stores need not.
    ///
    /// # Errors
    /// [`InvalidInput`] for `by` or `reason`.
    pub fn validate(&self) -> Result<(), InvalidInput> {
        if let Some(by) = &self.by {
            check_text("by", by, Name::MAX_BYTES)?;
        }
        if let Some(reason) = &self.reason {
            check_text("reason", reason, MAX_REASON_BYTES)?;
        }
        Ok(())
    }

    /// Returns who pauses, as stores save it: empty if the request does not name anyone.
    #[must_use]
    pub fn by_text(&self) -> &str {
        self.by.as_deref().unwrap_or_default()
    }

    /// Returns the reason, as stores save it: empty if there is none.
    #[must_use]
    pub fn reason_text(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    /// Returns the pause that the store saves if this request takes effect at `at`.
    #[must_use]
    pub fn at(&self, at: Timestamp) -> PauseInfo {
        PauseInfo {
            by: self.by.clone(),
            reason: self.reason.clone(),
            ..PauseInfo::new(self.scope.clone(), at)
        }
    }
}

/// A pause that is in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PauseInfo {
    /// The queue or kind.
    pub scope: PauseScope,
    /// When the pause began, by the database's clock.
    pub at: Timestamp,
    /// Who paused it. `None` if the request did not name anyone.
    pub by: Option<String>,
    /// Why it is paused. `None` if the request had no reason.
    pub reason: Option<String>,
}

impl PauseInfo {
    /// Creates a pause that names no operator and no reason.
    #[must_use]
    pub const fn new(scope: PauseScope, at: Timestamp) -> Self {
        Self {
            scope,
            at,
            by: None,
            reason: None,
        }
    }

    /// Creates a pause from the [`code`](PauseScope::code) of its scope and its other stored values.
    /// `at` is in milliseconds since 1970. An empty text means that there is none.
    ///
    /// # Errors
    /// [`InvalidInput`] if the code is unknown or the name is invalid.
    pub fn from_stored(
        code: i64,
        name: &str,
        at: i64,
        by: &str,
        reason: &str,
    ) -> Result<Self, InvalidInput> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut pause = Self::new(PauseScope::from_stored(code, name)?, from_millis(at));
        pause.by = text(by);
        pause.reason = text(reason);
        Ok(pause)
    }

    /// Encodes the pause as a JSON document that [`decode`](Self::decode) of this version and of
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

/// The pauses of a store. It decides which jobs a claim skips.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<PauseInfo>", into = "Vec<PauseInfo>")]
pub struct Pauses {
    queues: BTreeMap<Name, PauseInfo>,
    kinds: BTreeMap<Name, PauseInfo>,
}

impl Pauses {
    /// Adds a pause. Returns false, and keeps the first pause, if the queue or kind is paused
    /// already.
    pub fn add(&mut self, pause: PauseInfo) -> bool {
        let pauses = match &pause.scope {
            PauseScope::Queue(_) => &mut self.queues,
            PauseScope::Kind(_) => &mut self.kinds,
        };
        let is_new = !pauses.contains_key(pause.scope.name());
        if is_new {
            pauses.insert(pause.scope.name().clone(), pause);
        }
        is_new
    }

    /// Ends a pause. Returns false if the queue or kind is not paused.
    pub fn remove(&mut self, scope: &PauseScope) -> bool {
        match scope {
            PauseScope::Queue(name) => self.queues.remove(name).is_some(),
            PauseScope::Kind(name) => self.kinds.remove(name).is_some(),
        }
    }

    /// Returns whether the queue or kind is paused.
    #[must_use]
    pub fn contains(&self, scope: &PauseScope) -> bool {
        match scope {
            PauseScope::Queue(name) => self.queues.contains_key(name),
            PauseScope::Kind(name) => self.kinds.contains_key(name),
        }
    }

    /// Returns whether this queue is paused.
    #[must_use]
    pub fn has_queue(&self, queue: &Name) -> bool {
        self.queues.contains_key(queue)
    }

    /// Returns whether no job of the route may be claimed, because its queue or kind is paused.
    #[must_use]
    pub fn cover(&self, route: &Route) -> bool {
        self.queues.contains_key(&route.queue) || self.kinds.contains_key(&route.kind)
    }

    /// Creates the entry of a route whose first pending job is due at `run_at`. `now` is the
    /// current time. Both times are in milliseconds since 1970.
    #[must_use]
    pub fn due(&self, route: &Route, run_at: i64, now: i64) -> DueRoute {
        let queue_paused = self.queues.contains_key(&route.queue);
        let due = DueRoute::at(route.clone(), queue_paused, run_at, now);
        due.kind_paused(self.kinds.contains_key(&route.kind))
    }

    /// Returns the paused queues, ordered by name.
    pub fn queues(&self) -> impl Iterator<Item = &Name> {
        self.queues.keys()
    }

    /// Returns the pause of a queue.
    #[must_use]
    pub fn of_queue(&self, queue: &Name) -> Option<&PauseInfo> {
        self.queues.get(queue)
    }

    /// Returns the pauses in the order in which stores list them: queues by name, then kinds by
    /// name.
    #[must_use]
    pub fn into_list(self) -> Vec<PauseInfo> {
        self.queues
            .into_values()
            .chain(self.kinds.into_values())
            .collect()
    }
}

impl FromIterator<PauseInfo> for Pauses {
    fn from_iter<T: IntoIterator<Item = PauseInfo>>(pauses: T) -> Self {
        let mut all = Self::default();
        for pause in pauses {
            all.add(pause);
        }
        all
    }
}

impl From<Vec<PauseInfo>> for Pauses {
    fn from(pauses: Vec<PauseInfo>) -> Self {
        pauses.into_iter().collect()
    }
}

impl From<Pauses> for Vec<PauseInfo> {
    fn from(pauses: Pauses) -> Self {
        pauses.into_list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(scope: PauseScope, by: &str) -> PauseInfo {
        PauseRequest::new(scope).by(by).at(from_millis(1))
    }

    #[test]
    fn the_first_pause_is_kept_and_queues_are_listed_before_kinds() {
        let scopes = || {
            [
                PauseScope::kind("a"),
                PauseScope::queue("b"),
                PauseScope::queue("a"),
            ]
        };
        let mut pauses = Pauses::default();
        for scope in scopes() {
            assert!(pauses.add(pause(scope.unwrap(), "first")));
        }
        for scope in scopes() {
            assert!(!pauses.add(pause(scope.unwrap(), "second")));
        }
        let listed: Vec<String> = (pauses.clone().into_list().iter())
            .map(|pause| format!("{} by {}", pause.scope, pause.by.as_deref().unwrap()))
            .collect();
        let expected = [
            "queue `a` by first",
            "queue `b` by first",
            "kind `a` by first",
        ];
        assert_eq!(listed, expected);
        for (index, scope) in scopes().into_iter().enumerate() {
            let scope = scope.unwrap();
            assert!(pauses.remove(&scope));
            assert!(!pauses.remove(&scope));
            assert_eq!(pauses.clone().into_list().len(), 2 - index);
        }
    }

    #[test]
    fn a_route_is_covered_by_its_queue_or_its_kind() {
        let route = |queue, kind| Route::from_texts(queue, kind, "", "").unwrap();
        let scopes = [
            PauseScope::queue("q").unwrap(),
            PauseScope::kind("k").unwrap(),
        ];
        let pauses: Pauses = scopes.map(|scope| pause(scope, "x")).into_iter().collect();
        for (queue, kind, covered) in [
            ("q", "k", true),
            ("q", "other", true),
            ("other", "k", true),
            ("other", "other", false),
            ("k", "q", false),
        ] {
            assert_eq!(pauses.cover(&route(queue, kind)), covered, "{queue} {kind}");
        }
    }

    #[test]
    fn texts_are_bounded() {
        let request = || PauseRequest::new(PauseScope::kind("k").unwrap());
        let longest = "x".repeat(MAX_REASON_BYTES);
        assert!(
            request()
                .by("x".repeat(128))
                .reason(&longest)
                .validate()
                .is_ok()
        );
        let field = |request: PauseRequest| request.validate().unwrap_err().field();
        for by in [
            String::new(),
            "x".repeat(129),
            "a\nb".to_owned(),
            " a".to_owned(),
        ] {
            assert_eq!(field(request().by(by)), "by");
        }
        for reason in [
            String::new(),
            longest + "x",
            "a\0b".to_owned(),
            "a ".to_owned(),
        ] {
            assert_eq!(field(request().reason(reason)), "reason");
        }
        assert_eq!(PauseScope::kind("").unwrap_err().field(), "kind");
        assert_eq!(PauseScope::queue("").unwrap_err().field(), "queue");
    }

    #[test]
    fn scopes_are_stored_by_number() {
        for scope in [
            PauseScope::queue("x").unwrap(),
            PauseScope::kind("x").unwrap(),
        ] {
            let stored = PauseScope::from_stored(scope.code().into(), scope.name());
            assert_eq!(stored.unwrap(), scope);
        }
        assert_eq!(
            PauseScope::from_stored(2, "x").unwrap_err().field(),
            "scope"
        );
    }
}
