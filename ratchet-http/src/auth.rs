//! Who may do what.

use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use http::request::Parts;

use crate::problem::{Code, Problem};

/// Decides who may read and who may act.
///
/// It is asked before every request but the probes `/health`, `/ready` and `/leader` and the files
/// of the dashboard, which hold nothing worth protecting; for a stream of events once, when it is
/// opened. It sees the head of the request: its headers, its path, and the extensions that layers
/// of the application put there. Without one, every caller that reaches the API may read it and
/// none may change anything.
///
/// ```
/// use ratchet_http::{Access, Authorizer, Denied, Parts, same_secret};
///
/// /// Everybody on the network may look; who knows the secret may act.
/// struct Token(String);
///
/// #[async_trait::async_trait]
/// impl Authorizer for Token {
///     async fn authorize(&self, request: &Parts, access: Access) -> Result<(), Denied> {
///         if access == Access::Read {
///             return Ok(());
///         }
///         let given = request.headers.get("authorization").and_then(|value| value.to_str().ok());
///         match given.and_then(|value| value.strip_prefix("Bearer ")) {
///             None => Err(Denied::unauthorized("Bearer")),
///             Some(given) if same_secret(given, &self.0) => Ok(()),
///             Some(_) => Err(Denied::forbidden()),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Lets the request pass, or says why not.
    ///
    /// It counts against the timeout of the request.
    ///
    /// # Errors
    /// [`Denied`].
    async fn authorize(&self, request: &Parts, access: Access) -> Result<(), Denied>;
}

/// Whether what was sent is the secret, found out in a time that does not tell where the two
/// differ. It may tell how long the secret is.
///
/// ```
/// use ratchet_http::same_secret;
///
/// assert!(same_secret("open sesame", "open sesame"));
/// assert!(!same_secret("open sesam", "open sesame"));
/// ```
#[must_use]
pub fn same_secret(sent: impl AsRef<[u8]>, secret: impl AsRef<[u8]>) -> bool {
    let (sent, secret) = (sent.as_ref(), secret.as_ref());
    let differences = sent.iter().zip(secret).fold(0, |all, (a, b)| all | (a ^ b));
    sent.len() == secret.len() && std::hint::black_box(differences) == 0
}

/// The access that a request asks for.
///
/// ```
/// use ratchet_http::{Access, Action, Denied};
///
/// /// Operators may retry jobs and do nothing else.
/// fn may(access: Access) -> Result<(), Denied> {
///     match access {
///         Access::Read | Access::Write(Action::RetryJob) => Ok(()),
///         _ => Err(Denied::forbidden()),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Reads of data without payloads.
    Read,
    /// To read the payload and the result of a job. Asked for after `Read`, and only if payloads
    /// are [shown](crate::Payloads::Shown) at all; if it is denied, the job is answered without
    /// them.
    Payload,
    /// A write.
    Write(Action),
}

/// The action of the call.
///
/// ```
/// use ratchet_http::{Access, Action};
///
/// let deletes = |access: Access| access == Access::Write(Action::DeleteJob);
/// assert!(deletes(Access::Write(Action::DeleteJob)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Make a job pending again.
    RetryJob,
    /// Cancel a job.
    CancelJob,
    /// Set a job aside.
    PauseJob,
    /// Take a job up again.
    ResumeJob,
    /// Delete a job.
    DeleteJob,
    /// Act on many jobs by one request. The action itself is asked for too.
    BulkJobs,
    /// Stop the claiming of a queue's jobs.
    PauseQueue,
    /// Let a queue's jobs be claimed again.
    ResumeQueue,
    /// Pause a recurring definition.
    PauseRecurring,
    /// Resume a recurring definition.
    ResumeRecurring,
    /// Run a recurring job now.
    TriggerRecurring,
    /// Cancel the jobs of a batch.
    CancelBatch,
    /// Ask a node to drain.
    DrainNode,
}

/// The refusal of a request.
///
/// ```
/// use ratchet_http::Denied;
///
/// // The browser asks for a user and a password.
/// let denied = Denied::unauthorized("Basic");
/// # drop(denied);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(Reason);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Forbidden,
    /// With the value of `WWW-Authenticate`.
    Unauthorized(Option<HeaderValue>),
    /// For this long.
    Throttled(Duration),
}

impl Denied {
    /// 403: this caller may not do this.
    #[must_use]
    pub const fn forbidden() -> Self {
        Self(Reason::Forbidden)
    }

    /// 401: say who you are. `challenge` is the value of `WWW-Authenticate`, such as
    /// `Basic realm="ratchet"`; one that cannot be sent is left out.
    #[must_use]
    pub fn unauthorized(challenge: &str) -> Self {
        Self(Reason::Unauthorized(HeaderValue::from_str(challenge).ok()))
    }

    /// 429: this caller failed too often; `wait` is the value of `Retry-After`.
    #[must_use]
    pub const fn throttled(wait: Duration) -> Self {
        Self(Reason::Throttled(wait))
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied.0 {
            Reason::Forbidden => Self::new(Code::Denied, "this caller may not do this"),
            Reason::Unauthorized(challenge) => {
                let problem = Self::new(Code::Unauthorized, "say who you are");
                match challenge {
                    Some(value) => problem.header(http::header::WWW_AUTHENTICATE, value),
                    None => problem,
                }
            }
            Reason::Throttled(wait) => Self::new(
                Code::TooManyAttempts,
                "too many wrong tokens; try again later",
            )
            .retry_after(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_is_the_secret() {
        assert!(same_secret("secret", b"secret"));
        for other in ["", "secre", "secrets", "Secret", "secreT"] {
            assert!(!same_secret(other, "secret"), "{other}");
        }
        assert!(!same_secret("secret", ""));
    }
}
