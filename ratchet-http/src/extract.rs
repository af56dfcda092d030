//! Strict extractors of request input: unknown fields and parameters are refused, not ignored.

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::Api;
use crate::problem::{Code, Problem};

/// Extracts the query parameters. If a field of `T` is a `Vec`, its key may occur more than once.
/// `T` should deny unknown fields.
///
/// If the query is not UTF-8, the request is refused with 400. If a parameter is invalid, the
/// request is refused with 422.
#[derive(Clone, Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, Problem> {
        query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn query<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    if percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .is_err()
    {
        return Err(Problem::new(Code::Malformed, "the query is not UTF-8"));
    }
    let pairs = serde_html_form::Deserializer::from_bytes(text.as_bytes());
    serde_path_to_error::deserialize(pairs).map_err(|error| invalid(&error))
}

/// Refuses query parameters on a route that has none.
pub(crate) async fn no_query(request: Request, next: Next) -> Response {
    match query::<NoParameters>(request.uri().query().unwrap_or_default()) {
        Ok(NoParameters {}) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

/// Extracts the body as JSON. `T` should deny unknown fields.
///
/// The extractor refuses a request with one of these statuses:
///
/// - 415 if the content type is not `application/json`
/// - 413 if the body is too long
/// - 408 if the body arrives too slowly
/// - 400 if the body is not JSON
/// - 422 if the JSON cannot be deserialized as `T`
#[derive(Clone, Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        if !is_json(&request) {
            return Err(not_json());
        }
        let bytes = body(request, api).await?;
        json(&bytes).map(Self)
    }
}

/// Extracts the body as [`Json`] does, or the default of `T` if there is no body.
#[derive(Clone, Debug)]
pub(crate) struct JsonOrNothing<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Api> for JsonOrNothing<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let is_json = is_json(&request);
        let bytes = body(request, api).await?;
        match (bytes.is_empty(), is_json) {
            (true, _) => Ok(Self(T::default())),
            (false, true) => json(&bytes).map(Self),
            (false, false) => Err(not_json()),
        }
    }
}

fn not_json() -> Problem {
    Problem::new(
        Code::UnsupportedMediaType,
        "the content type of the body must be application/json",
    )
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut text).map_err(|error| {
        // Serde reports some valid JSON of the wrong type as a syntax error, such as null for an
        // enum. So parse the body again to distinguish the two cases.
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
        if is_json || error.inner().is_data() {
            invalid(&error)
        } else {
            malformed(error.inner())
        }
    })?;
    text.end().map_err(|error| malformed(&error))?;
    Ok(value)
}

/// Refuses requests that have a body, so that no field of a body is silently ignored. The refusal
/// has the status 422. Extracts no value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoBody;

impl FromRequest<Api> for NoBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        if body(request, api).await?.is_empty() {
            Ok(Self)
        } else {
            Err(Problem::invalid("body", "this request must have no body"))
        }
    }
}

/// Extracts the last parameter of the path. No route of the API has more than one.
///
/// A parameter that cannot be decoded is refused with 422.
#[derive(Clone, Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: From<String>> FromRequestParts<Api> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let captured = RawPathParams::from_request_parts(parts, api).await;
        let captured =
            captured.map_err(|rejection| Problem::invalid("path", rejection.body_text()))?;
        // If this router is nested in others, the parameters of the outer routers come first. So
        // the last parameter belongs to this router.
        let own = captured.iter().last();
        let (_, value) =
            own.ok_or_else(|| Problem::invalid("path", "the path has no parameter"))?;
        Ok(Self(value.to_owned().into()))
    }
}

fn is_json(request: &Request) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE);
    let essence = value
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Reads the body, within the limits of size and time.
async fn body(request: Request, api: &Api) -> Result<bytes::Bytes, Problem> {
    let limits = api.limits();
    let too_large = || {
        let most = limits.body_bytes;
        Problem::new(
            Code::TooLarge,
            format!("the body is longer than the limit of {most} bytes"),
        )
        // The rest of the body is not read, so the connection cannot be reused.
        .header(header::CONNECTION, http::HeaderValue::from_static("close"))
    };
    let announced = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let most = u64::try_from(limits.body_bytes).unwrap_or(u64::MAX);
    if announced.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let limited = Limited::new(request.into_body(), limits.body_bytes);
    match tokio::time::timeout(limits.body_timeout, limited.collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(Code::Malformed, "the body is incomplete")),
        Err(_) => Err(
            Problem::new(Code::TooSlow, "the body did not arrive in time")
                .header(header::CONNECTION, http::HeaderValue::from_static("close")),
        ),
    }
}

fn malformed(error: &serde_json::Error) -> Problem {
    Problem::new(Code::Malformed, format!("the body is not JSON: {error}"))
}

/// Converts an error of serde to a problem. The field of the problem is the path of the error. If
/// the path is empty, the field is the name that is quoted in the error's message.
fn invalid<E: std::error::Error>(error: &serde_path_to_error::Error<E>) -> Problem {
    let message = error.inner().to_string();
    let path = error.path().to_string();
    let quoted = || message.split('`').nth(1).map(str::to_owned);
    let unnamed = path == "." || path == "?";
    let field = if unnamed { quoted() } else { Some(path) };
    Problem::invalid(field.unwrap_or_else(|| "body".to_owned()), message)
}

/// Returns the response to a request with an unknown path.
pub(crate) async fn not_found() -> Response {
    Problem::not_found("nothing is served at this path").into_response()
}

/// Returns the response to a request with a method that the path does not support.
pub(crate) async fn method_not_allowed() -> Response {
    Problem::new(
        Code::MethodNotAllowed,
        "the path does not support this method; the header Allow lists those it supports",
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        #[serde(default)]
        state: Vec<String>,
        limit: Option<u16>,
    }

    #[test]
    fn parameters_are_taken_strictly() {
        let wanted: Wanted = query("state=a&limit=3&state=b").unwrap();
        assert_eq!((wanted.state.len(), wanted.limit), (2, Some(3)));
        let refused = |text: &str| {
            let problem = query::<Wanted>(text).unwrap_err();
            (problem.code, problem.field)
        };
        assert_eq!(refused("sort=x"), (Code::Invalid, Some("sort".to_owned())));
        assert_eq!(
            refused("limit=x"),
            (Code::Invalid, Some("limit".to_owned()))
        );
        assert_eq!(refused("state=%ff"), (Code::Malformed, None));
    }

    #[test]
    fn bodies_are_taken_strictly() {
        let refused = |text: &str| {
            let problem = json::<Wanted>(text.as_bytes()).unwrap_err();
            (problem.code, problem.field)
        };
        assert_eq!(json::<Wanted>(b"{\"limit\":3}").unwrap().limit, Some(3));
        assert_eq!(refused("{\"limit\":"), (Code::Malformed, None));
        assert_eq!(refused("{} {}"), (Code::Malformed, None));
        assert_eq!(
            refused("{\"limit\":-1}"),
            (Code::Invalid, Some("limit".to_owned()))
        );
        assert_eq!(
            refused("{\"sort\":1}"),
            (Code::Invalid, Some("sort".to_owned()))
        );
    }
}
