use std::fmt;

use crate::name::Name;

/// The key under which a rate limiter counts starts: a kind of jobs, and optionally a text that
/// some of its jobs share, such as the name of a tenant.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::BoxError> {
/// use std::time::Duration;
/// use ratchet::{Name, Rate, RateAnswer, RateKey, RateLimiter as _};
/// # use std::sync::Arc;
/// use ratchet::LocalLimiter;
///
/// let limiter = LocalLimiter::new();
/// let key = RateKey::global(Name::new("kind", "mail")?);
/// let rate = Rate::new(1, Duration::from_secs(60));
/// assert_eq!(limiter.take(&key, &rate).await?, RateAnswer::Granted);
/// assert!(matches!(limiter.take(&key, &rate).await?, RateAnswer::Wait(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateKey {
    kind: Name,
    key: Option<String>,
}

/// The character between the kind and the key in a stored name.
const SEPARATOR: char = '␟';

impl RateKey {
    /// Creates the global key, which all jobs of this kind share.
    #[must_use]
    pub const fn global(kind: Name) -> Self {
        Self { kind, key: None }
    }

    /// Creates a key for some jobs of this kind, such as the jobs of one tenant. `key` identifies
    /// them.
    #[must_use]
    pub fn of(kind: Name, key: impl Into<String>) -> Self {
        Self {
            kind,
            key: Some(key.into()),
        }
    }

    /// Returns the kind of the jobs.
    #[must_use]
    pub const fn kind(&self) -> &Name {
        &self.kind
    }

    /// Returns the text that some jobs of the kind share, such as the name of a tenant. `None` for
    /// the global key of the kind.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the name under which stores count this key. The name joins the kind and the key. If
    /// the name would be too long or contain control characters, it is shortened and ends with a
    /// hash. The hash keeps different keys distinct.
    #[must_use]
    pub fn name(&self) -> Name {
        let Some(key) = &self.key else {
            return self.kind.clone();
        };
        let whole = format!("{}{SEPARATOR}{key}", self.kind);
        Name::new("key", &whole).unwrap_or_else(|_| folded(&whole))
    }
}

impl fmt::Display for RateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.name(), f)
    }
}

/// Returns a valid name for a text that is too long or contains control characters. The name is the
/// beginning of the text, followed by a hash of the whole text.
fn folded(whole: &str) -> Name {
    let hash = format!("{SEPARATOR}{:016x}", fnv1a(whole.as_bytes()));
    let mut text = String::with_capacity(Name::MAX_BYTES);
    for character in whole.chars() {
        if text.len() + character.len_utf8() + hash.len() > Name::MAX_BYTES {
            break;
        }
        text.push(if character.is_control() {
            ' '
        } else {
            character
        });
    }
    text.push_str(&hash);
    match Name::new("key", &text) {
        Ok(name) => name,
        Err(_) => unreachable!("a name that begins with a kind and ends with a hash is valid"),
    }
}

/// Returns the 64-bit FNV-1a hash of `bytes`. All releases must use the same hash, because stores
/// keep names that contain hashes.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> Name {
        Name::new("kind", "mail").unwrap()
    }

    #[test]
    fn keys_that_fit_are_kept_and_all_others_told_apart() {
        assert_eq!(RateKey::global(kind()).name(), "mail");
        assert_eq!(RateKey::of(kind(), "acme").name(), "mail␟acme");
        let long = "ä".repeat(500);
        let odd = [
            String::new(),
            " ".to_owned(),
            "a\0b".to_owned(),
            "a\nb".to_owned(),
            long.clone(),
            long + "b",
        ];
        let mut names: Vec<Name> = odd
            .iter()
            .map(|key| RateKey::of(kind(), key.as_str()).name())
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), odd.len());
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
