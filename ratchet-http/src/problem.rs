//! Errors as they are answered: `application/problem+json`.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use ratchet_core::{InvalidInput, JobState, StoreError, StoreErrorKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::view::State;

/// The code of a problem, for programs. Each has one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// 400: not JSON, not UTF-8, or cut off.
    Malformed,
    /// 401: say who you are.
    Unauthorized,
    /// 403: the API only reads: it was built without an authorizer, or as read-only.
    ReadOnly,
    /// 403: the authorizer said no, or a browser asked on behalf of another site.
    Denied,
    /// 404: there is no such thing.
    NotFound,
    /// 405: the path is right and the method is not.
    MethodNotAllowed,
    /// 408: the body of the request did not arrive in time.
    TooSlow,
    /// 409: what was asked for is not possible in the present state.
    Conflict,
    /// 413: the body of the request is too long.
    TooLarge,
    /// 415: the body of the request is not `application/json`.
    UnsupportedMediaType,
    /// 421: the `Host` of the request is none of this server's.
    WrongHost,
    /// 422: a field or a parameter is unknown or has a bad value; `field` names it.
    Invalid,
    /// 429: all clients together began too many writes.
    TooManyRequests,
    /// 429: this client sent too many wrong tokens.
    TooManyAttempts,
    /// 500: a fault of the program.
    Internal,
    /// 501: the store cannot do this.
    Unsupported,
    /// 503: the store failed.
    Unavailable,
    /// 503: the answer took too long.
    Timeout,
    /// 503: as many clients listen to events, or read from the store, as may at once.
    TooManyClients,
}

/// ```
/// use ratchet_http::Code;
///
/// let may_retry = |code: Code| code.status().is_server_error();
/// assert!(may_retry(Code::Timeout));
/// assert!(!may_retry(Code::Conflict));
/// ```
impl Code {
    /// The status it is answered with.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::ReadOnly | Self::Denied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyRequests | Self::TooManyAttempts => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable | Self::Timeout | Self::TooManyClients => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Malformed => "The request cannot be read",
            Self::Unauthorized => "Authentication is required",
            Self::ReadOnly => "Read-only",
            Self::Denied => "Denied",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "The method is not allowed here",
            Self::TooSlow => "The request came too slowly",
            Self::Conflict => "Not possible in the present state",
            Self::TooLarge => "The request is too large",
            Self::UnsupportedMediaType => "The content type is not supported",
            Self::WrongHost => "The host is not served here",
            Self::Invalid => "Invalid input",
            Self::TooManyRequests => "Too many requests",
            Self::TooManyAttempts => "Too many wrong tokens",
            Self::Internal => "Internal error",
            Self::Unsupported => "The store cannot do this",
            Self::Unavailable => "The store is not available",
            Self::Timeout => "The answer took too long",
            Self::TooManyClients => "Too many clients",
        }
    }
}

/// An error as it is answered, per RFC 9457.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Problem {
    /// Always `about:blank`: `code` says what it is.
    pub r#type: &'static str,
    /// The kind of problem, for people.
    pub title: &'static str,
    /// The status of the response.
    pub status: u16,
    /// This problem, for people.
    pub detail: Cow<'static, str>,
    /// The kind of problem, for programs.
    pub code: Code,
    /// The field or parameter that is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The state that does not allow what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    #[serde(skip)]
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

/// ```
/// use axum::{Router, extract::Path, routing::get};
/// use ratchet_http::Problem;
///
/// /// A route of the application that reports problems as the API does.
/// async fn order(Path(id): Path<u64>) -> Result<String, Problem> {
///     match id {
///         7 => Ok("shipped".to_owned()),
///         _ => Err(Problem::not_found(format!("there is no order {id}"))),
///     }
/// }
/// let app: Router = Router::new().route("/orders/{id}", get(order));
/// # drop(app);
/// # assert_eq!(Problem::not_found("no").status, 404);
/// ```
impl Problem {
    /// A problem of this kind.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            r#type: "about:blank",
            title: code.title(),
            status: code.status().as_u16(),
            detail: detail.into(),
            code,
            field: None,
            state: None,
            headers: Vec::new(),
        }
    }

    /// Input that is invalid in this field.
    #[must_use]
    pub fn invalid(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(Code::Invalid, detail);
        problem.field = Some(field.into());
        problem
    }

    /// There is no such job, queue, …
    #[must_use]
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::NotFound, detail)
    }

    /// Something that this state does not allow.
    #[must_use]
    pub fn conflict(state: JobState, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(Code::Conflict, detail);
        problem.state = Some(state.into());
        problem
    }

    /// Something that the store cannot do.
    #[must_use]
    pub fn unsupported(what: &str) -> Self {
        Self::new(Code::Unsupported, format!("this store has no {what}"))
    }

    /// Says when to try again: `Retry-After`, in whole seconds, rounded up.
    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (code, headers) = (self.code, std::mem::take(&mut self.headers));
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response.headers_mut().extend(headers);
        // For the log of writes.
        response.extensions_mut().insert(code);
        response
    }
}

impl From<InvalidInput> for Problem {
    fn from(invalid: InvalidInput) -> Self {
        Self::invalid(invalid.field(), invalid.to_string())
    }
}

/// The text of a driver may name hosts and statements: it goes to the log, and the answer has the
/// kind of failure only.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if let Some(invalid) = error.invalid_input() {
            return invalid.clone().into();
        }
        // While the database is away every request fails: the sampler logs the outage once.
        if error.is_transient() {
            tracing::debug!(%error, "a request failed in the store");
        } else {
            tracing::warn!(%error, "a request failed in the store");
        }
        let detail = match error.kind() {
            StoreErrorKind::Unavailable => "the database cannot be reached",
            StoreErrorKind::Timeout => "the database did not answer in time",
            StoreErrorKind::Contention => "the database gave up because of other work",
            StoreErrorKind::Full => "the database has no room left",
            StoreErrorKind::ReadOnly => "the database accepts no writes at present",
            StoreErrorKind::SchemaMismatch(_) => {
                "the schema of the database does not fit this program"
            }
            StoreErrorKind::Corrupt => "what is stored cannot be read",
            _ => "the database failed; the log of the server says why",
        };
        let problem = Self::new(Code::Unavailable, detail);
        if error.is_transient() {
            problem.retry_after(Duration::from_secs(1))
        } else {
            problem
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_driver_stays_inside() {
        let error = StoreError::new(StoreErrorKind::Unavailable, "get")
            .with_source("no route to db-7.internal");
        let problem = Problem::from(error);
        assert_eq!((problem.status, problem.code), (503, Code::Unavailable));
        assert!(!problem.detail.contains("db-7"));
        let response = problem.into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/problem+json"
        );
    }

    #[test]
    fn refused_input_names_its_field() {
        let error = StoreError::from(InvalidInput::new("queue", "is empty"));
        let problem = Problem::from(error);
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "about:blank", "title": "Invalid input", "status": 422,
                "detail": "queue is empty", "code": "invalid", "field": "queue",
            })
        );
    }
}
