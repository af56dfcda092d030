use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::secret::Secret;
use crate::section::section;
use crate::value::duration;

/// Whether payloads, results and checkpoints of jobs are shown over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Payloads {
    /// They are not shown.
    Hidden,
    /// They are shown to clients that send the token.
    Shown,
}

section! {
    /// How `ratchet serve` serves over HTTP.
    pub struct HttpConfig in "http" {
        /// Where to listen. An address that is not of the loopback needs a token, or
        /// `ratchet serve --insecure`.
        listen: SocketAddr, default "127.0.0.1:8080", initially SocketAddr::from(([127, 0, 0, 1], 8080));

        /// The token for payloads, for reads with `protect_reads`, and for writes with
        /// `ratchet serve --allow-writes`. Programs send it as `Authorization: Bearer …`, browsers
        /// as the password of HTTP Basic, with any name.
        token: Option<Secret<String>>, example "\"…\"";

        /// A file with the token in its first line. Not together with `token`.
        token_file: Option<PathBuf>, example "\"/run/secrets/ratchet-token\"";

        /// Whether all reads except the probes need the token. By default they do unless `listen`
        /// is a loopback address.
        protect_reads: Option<bool>, example "true";

        /// Answers requests for these hosts, names or addresses without a port, an IPv6 address in
        /// brackets, besides the loopback: the names under which a proxy serves. Unset, a loopback
        /// address answers for the loopback only, another address for any host.
        hosts: Option<Vec<String>>, example "[\"ops.example.com\"]";

        /// The single addresses, not networks, of proxies whose `X-Forwarded-For` names the client.
        /// Clients share reads fairly, and each is throttled for its own wrong tokens. All clients
        /// of another proxy count as one.
        proxies: Option<Vec<String>>, example "[\"127.0.0.1\"]";

        /// Whether payloads, results and checkpoints of jobs are shown to clients that send the
        /// token.
        payloads: Payloads, default "hidden", initially Payloads::Hidden;

        /// The largest body of a request, in bytes.
        max_body: Option<usize>, default 65536;

        /// The most entries of a page.
        max_page: Option<u32>, default 200;

        /// How many clients may have live updates at once.
        max_clients: Option<usize>, default 200;

        /// How many connections are open at once. The next one closes the connection that has been
        /// without a request for longest.
        max_connections: Option<usize>, default 1024;

        /// How many connections of one peer are open at once, `proxies` aside. The next one closes
        /// the peer's own connection that has been without a request for longest.
        max_connections_per_peer: Option<usize>, default 256;

        /// How many changes are taken in one second, of all clients together.
        writes_per_second: Option<u32>, default 20;

        /// How long a request may take.
        request_timeout: Option<Duration> as "duration", default "15s";
    }
}
