//! An [`Authorizer`] that checks one shared secret.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine};
use http::request::Parts;
use http::{HeaderMap, header};
use ratchet_core::time;
use tokio::time::Instant;

use crate::auth::{Access, Authorizer, Denied, same_secret};
use crate::client::ClientAddr;

/// An authorizer that requires one token, as `ratchet serve` does.
///
/// Programs send the token as `Authorization: Bearer …`. Browsers send it as the password of HTTP
/// Basic, with any user name. Writes and payloads always need the token. Other reads need it only
/// after [`protect_reads(true)`](Self::protect_reads).
///
/// Wrong tokens are throttled per client, as identified by [`ClientAddr`]:
///
/// - After ten different wrong tokens, every request of the client that needs and contains a token
///   gets 429, except for one attempt every 10 s.
/// - After the same wrong token ten times in a row, only requests with that token get 429. So a
///   program with an old token does not lock out other programs at the same address.
///
/// Each comparison with a wrong token is logged at `warn`. The log line does not contain the token.
///
/// ```
/// use ratchet_http::Token;
///
/// let authorizer = Token::new("open sesame").protect_reads(true);
/// # drop(authorizer);
/// ```
pub struct Token {
    secret: String,
    protect_reads: bool,
    wrong: WrongTokens,
}

impl Token {
    /// Creates an authorizer that accepts `secret` as the token. If the secret is empty, the
    /// authorizer accepts no token.
    #[must_use]
    pub fn new(secret: impl Into<String>) -> Self {
        Self {
            secret: secret.into(),
            protect_reads: false,
            wrong: WrongTokens::default(),
        }
    }

    /// Sets whether all reads need the token. If false, which is the default, only reads of
    /// payloads need the token.
    #[must_use]
    pub const fn protect_reads(mut self, protect: bool) -> Self {
        self.protect_reads = protect;
        self
    }

    fn is(&self, sent: &[u8]) -> bool {
        !self.secret.is_empty() && same_secret(sent, &self.secret)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("protect_reads", &self.protect_reads)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Authorizer for Token {
    async fn authorize(&self, request: &Parts, access: Access) -> Result<(), Denied> {
        if access == Access::Read && !self.protect_reads {
            return Ok(());
        }
        let Some(sent) = Credentials::of(&request.headers) else {
            return Err(Denied::unauthorized(CHALLENGE));
        };
        let client = ClientAddr::of(&request.extensions);
        let token = self.wrong.hash(&sent.secret);
        self.wrong.admit(client, token)?;
        if self.is(&sent.secret) {
            return Ok(());
        }
        self.wrong.count(client, token);
        let path = cut(request.uri.path());
        tracing::warn!(client = %shown(client), ?path, "a request has a wrong token");
        Err(match sent.name {
            // The challenge makes a browser that sent a wrong token ask its user again.
            Some(_) => Denied::unauthorized(CHALLENGE),
            None => Denied::forbidden(),
        })
    }
}

const CHALLENGE: &str = "Basic realm=\"ratchet\"";

/// Returns the address of a client as text for the log.
pub(crate) fn shown(client: Option<ClientAddr>) -> String {
    client.map_or_else(|| "unknown".to_owned(), |client| client.0.to_string())
}

/// The maximum number of characters in a log field that contains text from a client.
const LOGGED: usize = 256;

/// Shortens a text from a client to [`LOGGED`] characters, for the log.
pub(crate) fn cut(sent: &str) -> String {
    let mut cut: String = sent.chars().take(LOGGED).collect();
    if cut.len() < sent.len() {
        cut.push('…');
    }
    cut
}

/// The credentials of a request.
pub(crate) struct Credentials {
    /// The user name of HTTP Basic. `None` for a bearer token.
    pub(crate) name: Option<String>,
    secret: Vec<u8>,
}

impl Credentials {
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let sent = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, sent) = sent.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Self {
                name: None,
                secret: sent.trim().into(),
            });
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = BASE64_STANDARD.decode(sent.trim()).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        Some(Self {
            name: Some(String::from_utf8_lossy(&decoded[..colon]).into_owned()),
            secret: decoded[colon + 1..].to_vec(),
        })
    }
}

/// Counts the wrong tokens of each client.
#[derive(Debug, Default)]
struct WrongTokens {
    clients: Mutex<HashMap<Option<IpAddr>, Spent>>,
    hashes: RandomState,
}

/// The used parts of a client's two allowances, as of the time `at`. One allowance is for different
/// wrong tokens, and the other for repeats of the same wrong token.
///
/// After each [`REFILL`], both allowances regain one attempt.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// Number of wrong tokens that differed from the previous wrong token, minus the refills.
    attempts: u32,
    /// The hash of the last wrong token.
    last: u64,
    /// Number of times that the client sent the last wrong token in a row, minus the refills.
    repeats: u32,
    at: Instant,
}

/// The number of wrong tokens that a client may send before it is throttled.
const ALLOWANCE: u32 = 10;
/// The time until a throttled client may send one more token.
const REFILL: Duration = Duration::from_secs(10);
/// The maximum number of clients whose wrong tokens are counted.
const CLIENTS: usize = 4_096;

impl Spent {
    /// Returns whether a part of at least one allowance is used.
    const fn any(&self) -> bool {
        self.attempts > 0 || self.repeats > 0
    }

    /// Returns the used allowances as of now. They are reduced by the refills since `at`.
    fn now(self) -> Self {
        let elapsed = time::monotonic().saturating_duration_since(self.at);
        let back = elapsed.as_secs() / REFILL.as_secs();
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        let back = back.min(self.attempts.max(self.repeats));
        Self {
            attempts: self.attempts.saturating_sub(back),
            repeats: self.repeats.saturating_sub(back),
            at: self.at + REFILL * back,
            ..self
        }
    }
}

impl WrongTokens {
    /// Returns the hash of a token, which is kept instead of the token.
    fn hash(&self, token: &[u8]) -> u64 {
        self.hashes.hash_one(token)
    }

    /// Admits an attempt with `token`, unless the client has used up one of its allowances: the one
    /// for different wrong tokens, or the one for repeats of this token.
    fn admit(&self, client: Option<ClientAddr>, token: u64) -> Result<(), Denied> {
        let spent = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let own = spent.get(&client.map(ClientAddr::key));
        match own.map(|spent| spent.now()) {
            Some(spent)
                if spent.attempts >= ALLOWANCE
                    || (spent.last == token && spent.repeats >= ALLOWANCE) =>
            {
                let next = spent.at + REFILL;
                let wait = next.saturating_duration_since(time::monotonic());
                Err(Denied::throttled(wait))
            }
            _ => Ok(()),
        }
    }

    /// Counts a wrong token of this client.
    fn count(&self, client: Option<ClientAddr>, token: u64) {
        let mut all = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = client.map(ClientAddr::key);
        if all.len() >= CLIENTS && !all.contains_key(&client) {
            all.retain(|_, spent| spent.now().any());
            // If the table is still full, the client with the oldest entry is forgotten, so that an
            // attacker with thousands of addresses cannot exhaust the memory.
            let oldest = all.iter().min_by_key(|(_, spent)| spent.at);
            let oldest = oldest.map(|(client, _)| *client);
            if let Some(oldest) = oldest.filter(|_| all.len() >= CLIENTS) {
                all.remove(&oldest);
            }
        }
        let untouched = Spent {
            attempts: 0,
            last: token,
            repeats: 0,
            at: time::monotonic(),
        };
        let before = all.get(&client).map(|spent| spent.now());
        // If the repeats of the last token have been refilled to zero, the next request with this
        // token counts as a different token again.
        let mut spent = before.filter(Spent::any).unwrap_or(untouched);
        if spent.last == token && spent.repeats > 0 {
            spent.repeats += 1;
        } else {
            (spent.last, spent.repeats) = (token, 1);
            spent.attempts += 1;
        }
        // `at` stays as it was, so this wrong token does not postpone the next refill.
        all.insert(client, spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: u8, authorization: Option<&str>) -> Parts {
        let mut request = http::Request::new(());
        let client = ClientAddr([192, 0, 2, client].into());
        request.extensions_mut().insert(client);
        if let Some(value) = authorization {
            let value = value.parse().unwrap();
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        request.into_parts().0
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_are_throttled_by_client() {
        let token = Token::new("open sesame").protect_reads(true);
        let ask = async |client, authorization| {
            let asked = request(client, authorization);
            token.authorize(&asked, Access::Read).await
        };
        let right = Some("Bearer open sesame");
        let guesses: Vec<String> = (0..=ALLOWANCE)
            .map(|number| format!("Bearer guess {number}"))
            .collect();
        let (wrong, guesses) = guesses.split_last().unwrap();
        let wrong = Some(wrong.as_str());
        for _ in 0..100 {
            assert_eq!(ask(1, right).await, Ok(()));
            let asked = ask(1, None).await;
            assert_eq!(asked, Err(Denied::unauthorized(CHALLENGE)));
        }
        for guess in guesses {
            assert_eq!(ask(1, Some(guess)).await, Err(Denied::forbidden()));
        }
        let throttled = Err(Denied::throttled(REFILL));
        assert_eq!(ask(1, wrong).await, throttled);
        assert_eq!(
            ask(1, right).await,
            throttled,
            "expected even the right token to be refused while the client is throttled"
        );
        assert_eq!(ask(2, right).await, Ok(()));
        tokio::time::advance(REFILL).await;
        assert_eq!(ask(1, wrong).await, Err(Denied::forbidden()));
        assert_eq!(ask(1, right).await, throttled);
        tokio::time::advance(REFILL * 2).await;
        assert_eq!(ask(1, right).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_token_that_is_repeated_locks_out_itself_only() {
        let token = Token::new("open sesame");
        let ask = async |authorization| {
            let asked = request(1, Some(authorization));
            token.authorize(&asked, Access::Payload).await
        };
        let (right, old) = ("Bearer open sesame", "Bearer old");
        for _ in 0..ALLOWANCE {
            assert_eq!(ask(old).await, Err(Denied::forbidden()));
        }
        for _ in 0..100 {
            assert_eq!(ask(old).await, Err(Denied::throttled(REFILL)));
            assert_eq!(ask(right).await, Ok(()));
        }
        // A program that sends the old token once a minute is never throttled.
        for _ in 0..100 {
            tokio::time::advance(REFILL * 6).await;
            assert_eq!(ask(old).await, Err(Denied::forbidden()));
            assert_eq!(ask(right).await, Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_clients_is_bounded() {
        let wrong = WrongTokens::default();
        for client in 0..u32::try_from(CLIENTS).unwrap() * 2 {
            wrong.count(Some(ClientAddr(client.to_be_bytes().into())), 1);
        }
        assert_eq!(wrong.clients.lock().unwrap().len(), CLIENTS);
        tokio::time::advance(REFILL * 2).await;
        wrong.count(None, 1);
        assert_eq!(wrong.clients.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn payloads_and_writes_need_the_token_always() {
        let open = Token::new("s");
        let write = Access::Write(crate::auth::Action::DrainNode);
        for (access, sent, passes) in [
            (Access::Read, None, true),
            (Access::Payload, None, false),
            (Access::Payload, Some("Bearer s"), true),
            (write, None, false),
            (write, Some("Basic bWU6cw=="), true),
            (write, Some("Basic bWU6cg=="), false),
            (write, Some("Digest s"), false),
            (write, Some("Bearer"), false),
        ] {
            let answer = open.authorize(&request(1, sent), access).await;
            assert_eq!(answer.is_ok(), passes, "{access:?} {sent:?}");
        }
        let none = Token::new("")
            .authorize(&request(1, Some("Bearer ")), write)
            .await;
        assert!(none.is_err());
    }
}
