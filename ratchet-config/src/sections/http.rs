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
        /// The address to listen on. An address other than loopback needs a token, or `ratchet
        /// serve --insecure`.
        listen: SocketAddr, default "127.0.0.1:8080", initially SocketAddr::from(([127, 0, 0, 1], 8080));

        /// The token that clients send to read payloads, for all reads if `protect_reads` is true,
        /// and for writes with `ratchet serve --allow-writes`. Programs send it as `Authorization:
        /// Bearer …`, browsers as the password of HTTP Basic, with any user name.
        token: Option<Secret<String>>, example "\"…\"";

        /// A file with the token in its first line. It cannot be set together with `token`.
        token_file: Option<PathBuf>, example "\"/run/secrets/ratchet-token\"";

        /// Whether all reads except the probes need the token. If unset, they need it unless
        /// `listen` is a loopback address.
        protect_reads: Option<bool>, example "true";

        /// The accepted values of the `Host` header besides loopback names, such as the name under
        /// which a proxy serves: names or addresses without a port, IPv6 addresses in brackets. If
        /// unset, a loopback `listen` address accepts loopback names only, and any other address
        /// accepts every host.
        hosts: Option<Vec<String>>, example "[\"ops.example.com\"]";

        /// The addresses of proxies whose `X-Forwarded-For` header is trusted to name the client;
        /// single addresses, not networks. Limits on reads and on wrong tokens apply to each
        /// client. All clients of any other proxy count as one client.
        proxies: Option<Vec<String>>, example "[\"127.0.0.1\"]";

        /// Whether payloads, results and checkpoints of jobs are shown to clients that send the
        /// token.
        payloads: Payloads, default "hidden", initially Payloads::Hidden;

        /// The maximum size of a request body, in bytes.
        max_body: Option<usize>, default 65536;

        /// The maximum number of entries on a page.
        max_page: Option<u32>, default 200;

        /// The maximum number of clients that receive live updates at the same time.
        max_clients: Option<usize>, default 200;

        /// The maximum number of open connections. One more closes the connection that has been
        /// idle longest.
        max_connections: Option<usize>, default 1024;

        /// The maximum number of open connections of one peer. One more closes that peer's
        /// connection that has been idle longest. It does not apply to `proxies`.
        max_connections_per_peer: Option<usize>, default 256;

        /// The maximum number of writes per second, of all clients together.
        writes_per_second: Option<u32>, default 20;

        /// The timeout of a request.
        request_timeout: Option<Duration> as "duration", default "15s";
    }
}
