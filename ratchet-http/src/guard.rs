//! What stands around every request: who may make it, for which host, how often and how long; and
//! the headers of its answer.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use ratchet_core::time;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::api::Api;
use crate::auth::Access;
use crate::problem::{Code, Problem};

/// Lets a request pass to its handler if it may have this access.
pub(crate) async fn access(
    State((api, access)): State<(Api, Access)>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(problem) = admit(&api, &parts, access).await {
        return problem.into_response();
    }
    let _acts = matches!(access, Access::Write(_)).then(|| Acts(api));
    next.run(Request::from_parts(parts, body)).await
}

/// Tells when an action is over that it may have taken effect: also if it failed, came to its time limit,
/// or nobody waits for it any more.
struct Acts(Api);

impl Drop for Acts {
    fn drop(&mut self) {
        self.0.sampler().acted();
    }
}

async fn admit(api: &Api, parts: &Parts, access: Access) -> Result<(), Problem> {
    if matches!(access, Access::Write(_)) && is_of_another_site(&parts.headers) {
        return Err(Problem::new(
            Code::Denied,
            "a browser asked for this on behalf of another site",
        ));
    }
    api.authorize(parts, access).await?;
    if matches!(access, Access::Write(_)) {
        api.admit_write()?;
    }
    Ok(())
}

/// Whether a browser says that a page of another origin makes this request. Programs say nothing.
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

/// Lets a request pass to its handler once few enough others read from the store.
pub(crate) async fn reads(State(api): State<Api>, request: Request, next: Next) -> Response {
    match api.reads().begin().await {
        Ok(_permit) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// What holds for every request.
pub(crate) async fn every(State(api): State<Api>, request: Request, next: Next) -> Response {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
    let mut response = match tokio::time::timeout(api.limits().request_timeout, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!("a request panicked");
            Problem::new(Code::Internal, "the log of the server says why").into_response()
        }
        Err(_) => Problem::new(Code::Timeout, "there was no answer in time").into_response(),
    };
    secure(response.headers_mut());
    response
}

/// Lets a request pass if it is for one of these hosts.
pub(crate) async fn host(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if hosts.accept(request.headers().get(header::HOST)) {
        return next.run(request).await;
    }
    Problem::new(
        Code::WrongHost,
        "the Host of the request is not served here; ApiBuilder::hosts adds it",
    )
    .into_response()
}

/// Headers of every answer: nothing is run that is not of this origin, nothing is framed, nothing is
/// guessed and, unless the handler said otherwise, nothing is kept.
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

/// The hosts that requests may be for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// None: any.
    allowed: Option<Vec<String>>,
}

impl Hosts {
    /// These and loopback; any if there are none.
    pub(crate) fn new(hosts: &[String], problems: &mut Vec<String>) -> Self {
        for host in hosts {
            if host.is_empty() || host.contains(['/', '@', ' ']) || without_port(host) != *host {
                problems.push(format!(
                    "the host {host:?} is not a name or an address alone"
                ));
            }
        }
        let lower = || hosts.iter().map(|host| host.to_ascii_lowercase());
        Self {
            allowed: (!hosts.is_empty()).then(|| lower().collect()),
        }
    }

    /// Those that name this machine and nothing else can: a page of another site may have the name of
    /// that site point to this machine, and then reads what it likes from whoever answers here.
    pub(crate) const fn loopback() -> Self {
        Self {
            allowed: Some(Vec::new()),
        }
    }

    /// Whether requests with this header are answered.
    pub(crate) fn accept(&self, host: Option<&HeaderValue>) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| {
            host.is_some_and(|host| {
                let host = host.to_str().unwrap_or_default().to_ascii_lowercase();
                let name = without_port(&host);
                is_loopback(name) || allowed.iter().any(|one| one == name)
            })
        })
    }

    /// Whether any host is accepted.
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

/// A host without the port behind it. An IPv6 address stands in brackets.
fn without_port(host: &str) -> &str {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    &host[..end]
}

/// How many requests may read from the store at once.
#[derive(Debug)]
pub(crate) struct Reads(Semaphore);

impl Reads {
    /// How long one waits for others.
    const PATIENCE: Duration = Duration::from_secs(1);

    pub(crate) const fn new(most: usize) -> Self {
        Self(Semaphore::const_new(most))
    }

    /// Begins one, which ends when the permit is dropped.
    pub(crate) async fn begin(&self) -> Result<SemaphorePermit<'_>, Problem> {
        let permit = tokio::time::timeout(Self::PATIENCE, self.0.acquire()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            Problem::new(Code::TooManyClients, "too many others read; try again soon")
                .retry_after(Self::PATIENCE)
        })
    }
}

/// How many writes may still be begun: a bucket that fills with a steady rate, for all clients.
#[derive(Debug)]
pub(crate) struct Writes {
    per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    /// None: nothing was taken yet.
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

    /// Takes one.
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
            return Err(
                Problem::new(Code::TooManyRequests, "too many writes; try again soon")
                    .retry_after(wait),
            );
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

    #[tokio::test(start_paused = true)]
    async fn reads_at_once_are_bounded_and_wait_for_a_moment() {
        let reads = Reads::new(1);
        let first = reads.begin().await.unwrap();
        let refused = reads.begin().await.unwrap_err();
        assert_eq!(refused.code, Code::TooManyClients);
        let ends = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(reads.begin(), ends);
        assert!(second.is_ok());
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
