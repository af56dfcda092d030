//! The middleware of every route: checks the access and the host of requests, applies the limits of
//! rate, reads and time, and adds security headers to responses.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use ratchet_core::host::{self, without_port};
use ratchet_core::time;
use tokio::time::Instant;

use crate::api::Api;
use crate::auth::{Access, Action};
use crate::client::ClientAddr;
use crate::problem::{Code, Problem};
use crate::token::{self, Credentials};

/// Passes a request to its handler if the client may have this access. Logs writes.
pub(crate) async fn access(
    State((api, access)): State<(Api, Access)>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let mut write = match access {
        Access::Write(action) => Some(Write::new(&api, &parts, action)),
        _ => None,
    };
    let admitted = admit(&api, &parts, access).await;
    if admitted.is_ok()
        && let Some(write) = &mut write
    {
        write.admitted(&parts);
    }
    if let Err(problem) = admitted {
        let response = problem.into_response();
        if let Some(write) = write {
            write.refused(&response);
        }
        return response;
    }
    let response = next.run(Request::from_parts(parts, body)).await;
    if let Some(write) = write {
        write.done(&response);
    }
    response
}

/// A note that a handler adds to the log line of its write. The handler passes it as an extension
/// of its response.
#[derive(Clone, Debug)]
pub(crate) struct Detail(pub(crate) String);

/// A write in progress.
///
/// When a write ends, it is logged together with its client. A write also ends when it is dropped,
/// because of its timeout or because the client has disconnected. Unless the write was refused
/// before it began, its end also notifies the background reads that jobs may have changed.
struct Write {
    api: Api,
    client: String,
    user: Option<String>,
    action: Action,
    path: String,
    /// True until the write is logged.
    open: bool,
}

impl Write {
    fn new(api: &Api, parts: &Parts, action: Action) -> Self {
        Self {
            api: api.clone(),
            client: token::shown(ClientAddr::of(&parts.extensions)),
            user: None,
            action,
            path: token::cut(parts.uri.path()),
            open: true,
        }
    }

    /// Records the user name of the credentials for the log, if the authorizer is a
    /// [`Token`](crate::Token). With other authorizers, the user name may be a secret.
    fn admitted(&mut self, parts: &Parts) {
        if self.api.takes_token() {
            let name = Credentials::of(&parts.headers).and_then(|sent| sent.name);
            self.user = name.map(|name| token::cut(&name));
        }
    }

    /// Logs a write that was refused before it began.
    fn refused(mut self, response: &Response) {
        self.log(&outcome(response));
    }

    /// Logs a write that has ended, and notifies the background reads that jobs may have changed.
    fn done(mut self, response: &Response) {
        self.log(&outcome(response));
        self.api.sampler().acted();
    }

    fn log(&mut self, outcome: &str) {
        let Self {
            client,
            user,
            action,
            path,
            ..
        } = self;
        // Names and paths come from the client. They are quoted so that they cannot forge log
        // lines.
        tracing::info!(%client, user = ?user.as_deref().unwrap_or_default(), ?action, ?path, outcome, "write");
        self.open = false;
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if self.open {
            self.log("unknown: the request was dropped before it ended");
            self.api.sampler().acted();
        }
    }
}

/// Returns the outcome of a write for the log: the status, the problem code and the handler's note.
fn outcome(response: &Response) -> String {
    let mut outcome = response.status().as_u16().to_string();
    if let Some(code) = response.extensions().get::<Code>() {
        outcome += &format!(" {code:?}");
    }
    if let Some(Detail(detail)) = response.extensions().get() {
        outcome += &format!(" {detail}");
    }
    outcome
}

async fn admit(api: &Api, parts: &Parts, access: Access) -> Result<(), Problem> {
    if matches!(access, Access::Write(_)) && is_of_another_site(&parts.headers) {
        return Err(Problem::new(
            Code::Denied,
            "a browser sent this request on behalf of another site",
        ));
    }
    api.authorize(parts, access).await?;
    if matches!(access, Access::Write(_)) {
        api.admit_write()?;
    }
    Ok(())
}

/// Returns whether a browser marked this request as made by a page of another origin.
///
/// Clients that are not browsers send neither `Sec-Fetch-Site` nor `Origin`.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let text = |name| {
        let value = headers.get(name);
        value.map(|value: &HeaderValue| value.to_str().unwrap_or_default())
    };
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
        return !matches!(site, "same-origin" | "none");
    }
    text(header::ORIGIN).is_some_and(|origin| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.is_none() || authority != text(header::HOST)
    })
}

/// Passes a request to its handler as soon as the limit of concurrent reads from the store allows
/// it.
pub(crate) async fn reads(State(api): State<Api>, request: Request, next: Next) -> Response {
    let client = ClientAddr::of(request.extensions());
    match api.reads().begin(client).await {
        Ok(_read) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Applies the request timeout, turns panics into responses, and adds the security headers.
pub(crate) async fn every(State(api): State<Api>, request: Request, next: Next) -> Response {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
    let mut response = match tokio::time::timeout(api.limits().request_timeout, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!("the handler of a request panicked");
            Problem::new(Code::Internal, "see the server's log for the cause").into_response()
        }
        Err(_) => Problem::new(Code::Timeout, "the request exceeded its timeout").into_response(),
    };
    secure(response.headers_mut());
    response
}

/// Passes a request to its handler if its `Host` header is one of the accepted hosts.
pub(crate) async fn host(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if hosts.accept(request.headers().get(header::HOST)) {
        return next.run(request).await;
    }
    Problem::new(
        Code::WrongHost,
        "the Host of the request is not accepted; add it with `http.hosts` or ApiBuilder::hosts",
    )
    .into_response()
}

/// Adds the security headers to a response.
///
/// The headers allow scripts of this origin only, and forbid frames and content-type sniffing. They
/// also forbid caching unless the handler has set `Cache-Control`.
fn secure(headers: &mut HeaderMap) {
    const ALWAYS: [(&str, &str); 5] = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "content-security-policy",
            "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
             form-action 'self'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in ALWAYS {
        let name = header::HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

/// The accepted values of the `Host` header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// The accepted host names in addition to loopback names. `None` accepts any host.
    allowed: Option<Vec<String>>,
}

impl Hosts {
    /// Creates the list of accepted hosts: `hosts` and the loopback names, or any host if `hosts`
    /// is empty. Adds a message to `problems` for each invalid name.
    pub(crate) fn new(hosts: &[String], problems: &mut Vec<String>) -> Self {
        for host in hosts {
            if let Err(rule) = host::check(host) {
                problems.push(format!("hosts {rule}"));
            }
        }
        let lower = || hosts.iter().map(|host| host.to_ascii_lowercase());
        Self {
            allowed: (!hosts.is_empty()).then(|| lower().collect()),
        }
    }

    /// Creates a list that accepts only loopback names.
    ///
    /// This prevents DNS rebinding: the host name of another site resolves to this machine, and
    /// pages of that site can then read the responses.
    pub(crate) const fn loopback() -> Self {
        Self {
            allowed: Some(Vec::new()),
        }
    }

    /// Returns whether a request with this `Host` header is accepted.
    pub(crate) fn accept(&self, host: Option<&HeaderValue>) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| {
            host.is_some_and(|host| {
                let host = host.to_str().unwrap_or_default().to_ascii_lowercase();
                let name = without_port(&host);
                is_loopback(name) || allowed.iter().any(|one| one == name)
            })
        })
    }

    /// Returns whether any host is accepted.
    pub(crate) fn are_open(&self) -> bool {
        self.allowed.is_none()
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address: Result<std::net::IpAddr, _> = address.parse();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback())
}

/// Limits how many writes begin per second, with one token bucket for all clients.
#[derive(Debug)]
pub(crate) struct Writes {
    per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    /// When the bucket was last refilled; `None` before the first write.
    filled_at: Option<Instant>,
}

impl Writes {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            bucket: Mutex::new(Bucket {
                tokens: f64::from(per_second),
                filled_at: None,
            }),
        }
    }

    /// Takes one token from the bucket. If the bucket is empty, fails with the time until the next
    /// token.
    pub(crate) fn begin(&self) -> Result<(), Problem> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = time::monotonic();
        let since = bucket.filled_at.replace(now);
        let elapsed = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let filled = elapsed
            .as_secs_f64()
            .mul_add(self.per_second, bucket.tokens);
        bucket.tokens = filled.min(self.per_second);
        if bucket.tokens < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - bucket.tokens) / self.per_second);
            return Err(Problem::new(
                Code::TooManyRequests,
                "the limit of writes per second is reached; try again soon",
            )
            .retry_after(wait));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_are_bounded_by_the_second() {
        let writes = Writes::new(2);
        assert!(writes.begin().is_ok() && writes.begin().is_ok());
        let refused = writes.begin().unwrap_err();
        assert_eq!(refused.code, Code::TooManyRequests);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(writes.begin().is_ok());
        assert!(writes.begin().is_err());
    }

    #[test]
    fn hosts_are_compared_without_port_and_case() {
        let mut problems = Vec::new();
        let hosts = Hosts::new(&["Ops.Example.com".to_owned()], &mut problems);
        let accepts = |host: &'static str| hosts.accept(Some(&HeaderValue::from_static(host)));
        assert!(problems.is_empty());
        assert!(accepts("ops.example.com:8080") && accepts("OPS.example.com"));
        assert!(accepts("127.0.0.1:7000") && accepts("[::1]:7000") && accepts("localhost"));
        assert!(!accepts("evil.example") && !accepts("localhost.evil.example"));
        assert!(!hosts.accept(None));
        Hosts::new(&["a:1".to_owned(), "http://b".to_owned()], &mut problems);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn pages_of_other_sites_are_seen() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                let name = header::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            });
            pairs.collect::<HeaderMap>()
        };
        let other = |pairs| is_of_another_site(&headers(pairs));
        assert!(!other(&[]));
        assert!(!other(&[
            ("sec-fetch-site", "same-origin"),
            ("origin", "null")
        ]));
        assert!(other(&[("sec-fetch-site", "cross-site")]));
        assert!(other(&[("sec-fetch-site", "same-site")]));
        assert!(other(&[("origin", "null"), ("host", "a:1")]));
        assert!(other(&[("origin", "http://b"), ("host", "a:1")]));
        assert!(!other(&[("origin", "http://a:1"), ("host", "a:1")]));
    }
}
