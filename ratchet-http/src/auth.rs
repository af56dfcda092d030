//! Authorization: the [`Authorizer`] trait, the accesses it decides on, and its refusals.

use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use http::request::Parts;

use crate::problem::{Code, Problem};

/// Decides which requests may read and which may write.
///
/// The API calls the authorizer before every request. The exceptions are the probes `/health`,
/// `/ready` and `/leader`, and the files of the dashboard, which contain no confidential data. For
/// a stream of events, the API calls the authorizer once, when the stream is opened.
///
/// The authorizer sees the head of the request: its headers, its path, and the extensions that
/// layers of the application added. Without an authorizer, every client that can connect to the API
/// may read everything except payloads, and no client may write.
///
/// ```
/// use ratchet_http::{Access, Authorizer, Denied, Parts, same_secret};
///
/// /// Every client may read; clients that send the secret may also write.
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
    /// Decides whether the request may have this access.
    ///
    /// The duration of this call counts against the timeout of the request.
    ///
    /// # Errors
    /// [`Denied`] if the request may not have this access.
    async fn authorize(&self, request: &Parts, access: Access) -> Result<(), Denied>;
}

/// Compares a sent value with the secret in constant time.
///
/// The duration of the comparison does not depend on where the values differ, but may reveal the
/// length of the secret.
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

/// The access that a request needs.
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
    /// Reads data other than payloads.
    Read,
    /// Reads a job's payload, result, checkpoint and signal payload.
    ///
    /// The API asks the authorizer for this access after `Read`, and only if payloads are
    /// [shown](crate::Payloads::Shown) at all. If the authorizer denies this access, the response
    /// contains the job without these fields.
    Payload,
    /// Performs this action, which is a write.
    Write(Action),
}

/// The action that a write performs.
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
    /// Makes a dead letter pending again.
    RetryJob,
    /// Cancels a job.
    CancelJob,
    /// Pauses a pending job.
    PauseJob,
    /// Makes a paused job pending again.
    ResumeJob,
    /// Deletes a job.
    DeleteJob,
    /// Acts on many jobs with one request. The API then calls the authorizer a second time, for the
    /// action on the jobs, such as `CancelJob`.
    BulkJobs,
    /// Pauses a queue, so that its jobs are no longer claimed.
    PauseQueue,
    /// Resumes a queue, so that its jobs are claimed again.
    ResumeQueue,
    /// Pauses a kind, so that its jobs are no longer claimed.
    PauseKind,
    /// Resumes a kind, so that its jobs are claimed again.
    ResumeKind,
    /// Sets or removes a limit of fair keys.
    SetFairLimit,
    /// Pauses a recurring definition.
    PauseRecurring,
    /// Resumes a recurring definition.
    ResumeRecurring,
    /// Enqueues a job of a recurring definition now.
    TriggerRecurring,
    /// Cancels the jobs of a batch.
    CancelBatch,
    /// Asks a node to drain.
    DrainNode,
}

/// The refusal of a request by an [`Authorizer`].
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
    /// Status 401, with the value of the header `WWW-Authenticate`.
    Unauthorized(Option<HeaderValue>),
    /// Status 429, with the waiting time for the header `Retry-After`.
    Throttled(Duration),
}

impl Denied {
    /// Creates a refusal with status 403: the client does not have this access.
    #[must_use]
    pub const fn forbidden() -> Self {
        Self(Reason::Forbidden)
    }

    /// Creates a refusal with status 401: the client must authenticate.
    ///
    /// `challenge` is the value of the header `WWW-Authenticate`, such as `Basic realm="ratchet"`.
    /// If the value is not valid in a header, the response has no such header.
    #[must_use]
    pub fn unauthorized(challenge: &str) -> Self {
        Self(Reason::Unauthorized(HeaderValue::from_str(challenge).ok()))
    }

    /// Creates a refusal with status 429: the client failed to authenticate too often. `wait` is
    /// the waiting time in the header `Retry-After`.
    #[must_use]
    pub const fn throttled(wait: Duration) -> Self {
        Self(Reason::Throttled(wait))
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied.0 {
            Reason::Forbidden => {
                Self::new(Code::Denied, "the authorizer does not allow this request")
            }
            Reason::Unauthorized(challenge) => {
                let problem = Self::new(Code::Unauthorized, "this request needs credentials");
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
