//! The errors of the API, as `application/problem+json` (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use ratchet_core::{InvalidInput, JobState, StoreError, StoreErrorKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::view::State;

/// The machine-readable code of a problem. Each code has exactly one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// 400: the request is not valid JSON or UTF-8, or was cut off.
    Malformed,
    /// 401: the request needs credentials.
    Unauthorized,
    /// 403: the API refuses all writes, because it was built without an authorizer or as read-only.
    ReadOnly,
    /// 403: the authorizer refused the request, or a browser sent it on behalf of another site.
    Denied,
    /// 404: the path, job, queue or other item does not exist.
    NotFound,
    /// 405: the path exists, but does not support the method.
    MethodNotAllowed,
    /// 408: the body of the request did not arrive within the timeout.
    TooSlow,
    /// 409: the current state does not allow the action.
    Conflict,
    /// 413: the body of the request is too long.
    TooLarge,
    /// 415: the body of the request is not `application/json`.
    UnsupportedMediaType,
    /// 421: the server does not accept the `Host` of the request.
    WrongHost,
    /// 422: a field or a parameter is unknown or invalid. `field` contains its name.
    Invalid,
    /// 429: the limit on writes per second, which is for all clients together, is reached.
    TooManyRequests,
    /// 429: this client sent too many wrong tokens.
    TooManyAttempts,
    /// 500: the program has a bug.
    Internal,
    /// 501: the store does not support the requested feature.
    Unsupported,
    /// 503: the store failed.
    Unavailable,
    /// 503: the request exceeded its timeout.
    Timeout,
    /// 503: the limit on event listeners, or on concurrent reads from the store, is reached.
    TooManyClients,
}

/// Reads the HTTP status of a code.
///
/// ```
/// use ratchet_http::Code;
///
/// let may_retry = |code: Code| code.status().is_server_error();
/// assert!(may_retry(Code::Timeout));
/// assert!(!may_retry(Code::Conflict));
/// ```
impl Code {
    /// Returns the HTTP status of this code.
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
            Self::MethodNotAllowed => "The path does not support this method",
            Self::TooSlow => "The request body took too long to arrive",
            Self::Conflict => "Not possible in the current state",
            Self::TooLarge => "The request is too large",
            Self::UnsupportedMediaType => "The content type is not supported",
            Self::WrongHost => "The server does not accept this host name",
            Self::Invalid => "Invalid input",
            Self::TooManyRequests => "Too many requests",
            Self::TooManyAttempts => "Too many wrong tokens",
            Self::Internal => "Internal error",
            Self::Unsupported => "The store lacks this feature",
            Self::Unavailable => "The store is not available",
            Self::Timeout => "The request took too long",
            Self::TooManyClients => "Too many clients",
        }
    }
}

/// The body of an error response, as defined by RFC 9457.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Problem {
    /// Always `about:blank`. The field `code` identifies the kind of problem.
    pub r#type: &'static str,
    /// The kind of problem, as text for people.
    pub title: &'static str,
    /// The HTTP status of the response.
    pub status: u16,
    /// A description of this problem, as text for people.
    pub detail: Cow<'static, str>,
    /// The kind of problem, as a code for programs.
    pub code: Code,
    /// The name of the invalid field or parameter, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The state of the job, if this state does not allow the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    #[serde(skip)]
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

/// Creates problems, which a handler of an application can return like the API does.
///
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
    /// Creates a problem with this code. `detail` describes the problem.
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

    /// Creates a problem with [`Code::Invalid`], for an invalid `field`.
    #[must_use]
    pub fn invalid(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(Code::Invalid, detail);
        problem.field = Some(field.into());
        problem
    }

    /// Creates a problem with [`Code::NotFound`]. `detail` says what was not found.
    #[must_use]
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::NotFound, detail)
    }

    /// Creates a problem with [`Code::Conflict`], for a job whose `state` does not allow the
    /// action.
    #[must_use]
    pub fn conflict(state: JobState, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(Code::Conflict, detail);
        problem.state = Some(state.into());
        problem
    }

    /// Creates a problem with [`Code::Unsupported`]. `what` is the feature that the store lacks, in
    /// the plural.
    #[must_use]
    pub fn unsupported(what: &str) -> Self {
        Self::new(Code::Unsupported, format!("this store has no {what}"))
    }

    /// Adds the header `Retry-After` with the waiting time in whole seconds, rounded up.
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
        // Pass the code to the log of writes.
        response.extensions_mut().insert(code);
        response
    }
}

impl From<InvalidInput> for Problem {
    fn from(invalid: InvalidInput) -> Self {
        Self::invalid(invalid.field(), invalid.to_string())
    }
}

/// Logs the error. The response contains only the kind of the error, because the text of a driver
/// may contain host names and statements.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if let Some(invalid) = error.invalid_input() {
            return invalid.clone().into();
        }
        // While the database is unreachable, every request fails. The background reads log the
        // outage once, so the single requests are logged only at `debug`.
        if error.is_transient() {
            tracing::debug!(%error, "a request failed because of the store");
        } else {
            tracing::warn!(%error, "a request failed because of the store");
        }
        let detail = match error.kind() {
            StoreErrorKind::Unavailable => "the database cannot be reached",
            StoreErrorKind::Timeout => "the database did not answer in time",
            StoreErrorKind::Contention => "the call conflicted with other calls in the database",
            StoreErrorKind::Full => "the database has no space left",
            StoreErrorKind::ReadOnly => "the database accepts no writes at present",
            StoreErrorKind::SchemaMismatch(_) => {
                "the schema of the database does not match this program"
            }
            StoreErrorKind::Corrupt => "the stored data is invalid and cannot be read",
            _ => "the database failed; see the server's log for the cause",
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
