//! `ratchet serve`: serves the HTTP interface and the dashboard, without a node.

use std::net::{IpAddr, SocketAddr};

use ratchet_config::{HttpConfig, Secret};
use ratchet_http::{Api, Limits, Payloads, ServeError, Token, prometheus};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::app::{App, connect};
use crate::args::Serve;
use crate::exit::{Failure, warn};

/// JSON output of the command: the address of the server, and the kinds of requests that it allows.
#[derive(Serialize)]
struct Listening {
    address: SocketAddr,
    writes: bool,
    /// Whether read requests must send the token.
    protected: bool,
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
    let protect = (how.protect_reads).then(|| {
        let yes = true.to_string();
        ("http.protect_reads", yes, "--protect-reads")
    });
    let more: Vec<_> = listen.into_iter().chain(file).chain(protect).collect();
    let config = app.config_with(&more)?;
    let access = Access::new(&config.http, &how)?;
    // The recorder must be installed before the first metric is recorded.
    let metrics = prometheus::install().map_err(|error| Failure::failed(error.to_string()))?;
    let client = connect(config.store).await?;
    let address = config.http.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Failure::failed(format!("cannot listen on {address}: {error}")))?;
    let address = listener.local_addr()?;
    let api = Api::builder(client)
        .limits(limits(&config.http))
        .payloads(payloads(&config.http))
        .hosts(config.http.hosts.clone().unwrap_or_default())
        .proxies(proxies(&config.http))
        .prometheus(metrics);
    let api = access
        .apply(api, address)
        .build()
        .map_err(|error| Failure::configuration(error.to_string()))?;
    for exposed in access.exposed(&config.http, address) {
        warn(&exposed, app.out.is_json());
    }
    // The program must handle signals before it prints the address, because a program that reads
    // the address may stop this one at once.
    let stopped = ratchet::shutdown_signal();
    if app.out.is_json() {
        app.out.record(&Listening {
            address,
            writes: access.writes,
            protected: access.protected,
        })?;
    } else {
        let what = match (access.protected, access.writes) {
            (false, false) => "reads only",
            (false, true) => "reads without a token, writes with the token",
            (true, false) => "reads with the token, no writes",
            (true, true) => "reads and writes with the token",
        };
        app.out.line(format_args!("http://{address}/ ({what})"))?;
    }
    app.out.flush()?;
    let served = ratchet_http::serve(listener, api, stopped).await;
    served.map_err(|error: ServeError| Failure::failed(error.to_string()))
}

/// Access rules of the server: the token, whether reads need it, and whether writes are allowed.
struct Access {
    token: Option<Secret<String>>,
    protected: bool,
    writes: bool,
}

impl Access {
    /// Derives the access rules from the configuration and the command line.
    ///
    /// # Errors
    /// Fails if no token is configured and a setting needs one. Without a token, also fails if the
    /// address is not a loopback address, unless the command line has `--insecure`.
    fn new(http: &HttpConfig, how: &Serve) -> Result<Self, Failure> {
        let token = http.token.clone();
        let token = token.filter(|token| !token.expose().is_empty());
        let local = is_loopback(http.listen.ip());
        let missing = |what: &str| {
            Failure::configuration(format!("{what} needs a token, but none is configured")).remedy(
                "Set http.token_file in ratchet.toml, RATCHET_HTTP__TOKEN, or give --token-file.",
            )
        };
        if token.is_none() {
            if how.allow_writes {
                return Err(missing("--allow-writes"));
            }
            if http.payloads == ratchet_config::Payloads::Shown {
                return Err(missing("http.payloads = \"shown\""));
            }
            if http.protect_reads == Some(true) {
                return Err(missing("http.protect_reads"));
            }
            if !local && !how.insecure {
                let address = http.listen;
                let problem = format!(
                    "{address} is not a loopback address and no token is configured: every client \
                     that reaches the address could read every job"
                );
                return Err(Failure::configuration(problem).remedy(
                    "Set http.token_file in ratchet.toml, RATCHET_HTTP__TOKEN, or give \
                     --token-file; --insecure serves without a token.",
                ));
            }
        }
        Ok(Self {
            protected: token.is_some() && http.protect_reads.unwrap_or(!local),
            writes: how.allow_writes,
            token,
        })
    }

    fn apply(
        &self,
        mut api: ratchet_http::ApiBuilder,
        address: SocketAddr,
    ) -> ratchet_http::ApiBuilder {
        if !is_loopback(address.ip()) {
            // The operator has chosen this address, together with a token or `--insecure`. So
            // remote clients may connect.
            api = api.allow_remote();
        }
        if !self.writes {
            api = api.read_only();
        }
        match &self.token {
            Some(token) => api.authorize(Token::new(token.expose()).protect_reads(self.protected)),
            None => api,
        }
    }

    /// Returns one warning for each risk of the access rules: data that clients can read without a
    /// token, and data that the server sends unencrypted.
    fn exposed(&self, http: &HttpConfig, address: SocketAddr) -> Vec<String> {
        const READS: &str = "job, error message, queue, node and metric";
        let mut exposed = Vec::new();
        let hosts = http.hosts.as_deref().unwrap_or_default();
        if !is_loopback(address.ip()) {
            if !self.protected {
                exposed.push(format!(
                    "every client that reaches {address} can read every {READS} without a token"
                ));
            }
            if self.token.is_some() {
                exposed.push(format!(
                    "{address} serves plain HTTP: the token and all responses are unencrypted unless \
                     a proxy in front adds TLS"
                ));
            }
        } else if !self.protected && !hosts.is_empty() {
            let hosts = hosts.join(", ");
            exposed.push(format!(
                "every client that a proxy lets through to {hosts} can read every {READS} without \
                 a token; --protect-reads requires the token"
            ));
        }
        exposed
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns the addresses of the trusted proxies. Loading the configuration has already checked that
/// each one is an IP address.
fn proxies(http: &HttpConfig) -> Vec<IpAddr> {
    let proxies = http.proxies.iter().flatten();
    proxies.filter_map(|proxy| proxy.parse().ok()).collect()
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
    if let Some(connections) = http.max_connections {
        limits = limits.connections(connections);
    }
    if let Some(connections) = http.max_connections_per_peer {
        limits = limits.connections_per_peer(connections);
    }
    if let Some(timeout) = http.request_timeout {
        limits = limits.request_timeout(timeout);
    }
    limits
}
