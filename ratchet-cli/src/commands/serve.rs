//! `ratchet serve`: the HTTP interface alone, without a node.

use std::net::SocketAddr;

use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine};
use ratchet_config::{HttpConfig, Secret};
use ratchet_http::{
    Access, Api, Authorizer, Denied, Limits, Payloads, ServeError, prometheus, same_secret,
};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::app::{App, connect};
use crate::args::Serve;
use crate::exit::Failure;

/// Where it listens: the one thing that programs are told.
#[derive(Serialize)]
struct Listening {
    address: SocketAddr,
    writes: bool,
}

pub(super) async fn run(app: &mut App, how: Serve) -> Result<(), Failure> {
    let listen = how
        .listen
        .map(|at| ("http.listen", at.to_string(), "--listen"));
    let file = (how.token_file.as_ref()).map(|file| {
        (
            "http.token_file",
            file.display().to_string(),
            "--token-file",
        )
    });
    let more: Vec<_> = listen.into_iter().chain(file).collect();
    let config = app.config_with(&more)?;
    let token = token(&config.http, how.allow_writes)?;
    let writes = token.is_some();
    // Before anything is counted.
    let metrics = prometheus::install().map_err(|error| Failure::failed(error.to_string()))?;
    let client = connect(config.store).await?;
    let address = config.http.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Failure::failed(format!("cannot listen on {address}: {error}")))?;
    let address = listener.local_addr()?;
    let mut api = Api::builder(client)
        .limits(limits(&config.http))
        .payloads(payloads(&config.http))
        .prometheus(metrics);
    if !address.ip().is_loopback() {
        // Whoever names such an address means it.
        api = api.allow_remote();
    }
    if let Some(token) = token {
        api = api.authorize(Token(token));
    }
    let api = api
        .build()
        .map_err(|error| Failure::configuration(error.to_string()))?;
    // Before anybody is told where it listens.
    let stopped = stopped()?;
    if app.out.is_json() {
        app.out.record(&Listening { address, writes })?;
    } else {
        let what = if writes {
            "reads, and writes with the token"
        } else {
            "reads only"
        };
        app.out.line(format_args!("http://{address}/ ({what})"))?;
    }
    app.out.flush()?;
    let served = ratchet_http::serve(listener, api, stopped).await;
    served.map_err(|error: ServeError| Failure::failed(error.to_string()))
}

/// The token of those who may write; none: nobody may.
fn token(http: &HttpConfig, allow_writes: bool) -> Result<Option<Secret<String>>, Failure> {
    if !allow_writes {
        return Ok(None);
    }
    let token = http
        .token
        .clone()
        .filter(|token| !token.expose().is_empty());
    token.map(Some).ok_or_else(|| {
        Failure::configuration("--allow-writes needs a token, and none is configured").remedy(
            "Set http.token_file in ratchet.toml, RATCHET_HTTP__TOKEN, or give --token-file.",
        )
    })
}

fn payloads(http: &HttpConfig) -> Payloads {
    match http.payloads {
        ratchet_config::Payloads::Shown => Payloads::Shown,
        _ => Payloads::Hidden,
    }
}

fn limits(http: &HttpConfig) -> Limits {
    let mut limits = Limits::default();
    if let Some(bytes) = http.max_body {
        limits = limits.body_bytes(bytes);
    }
    if let Some(entries) = http.max_page {
        limits = limits.page(usize::try_from(entries).unwrap_or(usize::MAX));
    }
    if let Some(clients) = http.max_clients {
        limits = limits.event_clients(clients);
    }
    if let Some(writes) = http.writes_per_second {
        limits = limits.writes_per_second(writes);
    }
    if let Some(timeout) = http.request_timeout {
        limits = limits.request_timeout(timeout);
    }
    limits
}

/// Ready at Ctrl-C, and when the system asks the process to end; it listens from the call on, and not
/// from the first poll.
#[cfg(unix)]
fn stopped() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")))
    };
    let (mut asked, mut interrupted) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    Ok(async move {
        tokio::select! {
            _ = asked.recv() => {}
            _ = interrupted.recv() => {}
        }
    })
}

/// Ready at Ctrl-C.
#[cfg(not(unix))]
fn stopped() -> Result<impl Future<Output = ()>, Failure> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// Everybody who reaches it may read; who sends the token may write: programs as a bearer, browsers as
/// the password of HTTP Basic, which they ask for by themselves, with any name.
struct Token(Secret<String>);

#[async_trait]
impl Authorizer for Token {
    async fn authorize(
        &self,
        request: &http::request::Parts,
        access: Access,
    ) -> Result<(), Denied> {
        if !matches!(access, Access::Write(_)) {
            return Ok(());
        }
        let sent = request.headers.get(http::header::AUTHORIZATION);
        let sent = sent.and_then(|value| value.to_str().ok());
        let (scheme, sent) = sent
            .and_then(|sent| sent.split_once(' '))
            .unwrap_or_default();
        let token = self.0.expose().as_bytes();
        if scheme.eq_ignore_ascii_case("bearer") {
            return match same_secret(sent.trim(), token) {
                true => Ok(()),
                false => Err(Denied::forbidden()),
            };
        }
        let password = password(sent).filter(|_| scheme.eq_ignore_ascii_case("basic"));
        match password.is_some_and(|password| same_secret(password, token)) {
            true => Ok(()),
            // A browser that sent a wrong one asks again.
            false => Err(Denied::unauthorized("Basic realm=\"ratchet\"")),
        }
    }
}

/// What stands behind the name in the credentials of HTTP Basic.
fn password(credentials: &str) -> Option<Vec<u8>> {
    let decoded = BASE64_STANDARD.decode(credentials.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}
