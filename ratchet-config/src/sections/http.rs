use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::secret::Secret;
use crate::section::section;
use crate::value::duration;

/// Whether the HTTP API shows payloads, results and checkpoints of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Payloads {
    /// No client can read payloads, results and checkpoints.
    Hidden,
    /// Clients that send the token can read payloads, results and checkpoints.
    Shown,
}

section! {
    /// Settings of `ratchet serve`, the HTTP server.
    pub struct HttpConfig in "http" {
        /// Address and port on which the server listens. An address other than loopback needs a
        /// token, or the option `ratchet serve --insecure`.
        listen: SocketAddr, default "127.0.0.1:8080", initially SocketAddr::from(([127, 0, 0, 1], 8080));

        /// Token that clients must send to read payloads, to write (with
        /// `ratchet serve --allow-writes`), and for all reads if `protect_reads` is true. Programs
        /// send it as `Authorization: Bearer …`. Browsers send it as the password of HTTP Basic
        /// authentication, with any user name.
        token: Option<Secret<String>>, example "\"…\"";

        /// File with the token in its first line. Cannot be set together with `token`.
        token_file: Option<PathBuf>, example "\"/run/secrets/ratchet-token\"";

        /// Whether all reads need the token, except the probes of load balancers. If unset, reads
        /// need the token if one is configured and `listen` is not a loopback address.
        protect_reads: Option<bool>, example "true";

        /// Names and addresses that the server accepts in the `Host` header, in addition to
        /// loopback names. An example is the public name of a proxy in front of the server. Names
        /// and addresses have no port, and IPv6 addresses are in brackets. If unset, a server on a
        /// loopback address accepts only loopback names, and any other server accepts every host.
        hosts: Option<Vec<String>>, example "[\"ops.example.com\"]";

        /// IP addresses of trusted proxies. The server reads the address of the client from their
        /// `X-Forwarded-For` header. Networks are not supported. Limits on reads and on wrong
        /// tokens apply to each client. All clients of a proxy that is not in this list count as
        /// one client.
        proxies: Option<Vec<String>>, example "[\"127.0.0.1\"]";

        /// Whether the HTTP API shows payloads, results and checkpoints of jobs to clients that
        /// send the token.
        payloads: Payloads, default "hidden", initially Payloads::Hidden;

        /// Maximum size of a request body, in bytes.
        max_body: Option<usize>, default 65536;

        /// Maximum number of entries on one page of a list.
        max_page: Option<u32>, default 200;

        /// Maximum number of clients that receive live updates at the same time.
        max_clients: Option<usize>, default 200;

        /// Maximum number of open connections. If a new connection exceeds the limit, the server
        /// closes the connection that has been idle longest.
        max_connections: Option<usize>, default 1024;

        /// Maximum number of open connections from one IP address. If a new connection exceeds the
        /// limit, the server closes the connection from this address that has been idle longest.
        /// The limit does not apply to `proxies`.
        max_connections_per_peer: Option<usize>, default 256;

        /// Maximum number of writes per second, for all clients together.
        writes_per_second: Option<u32>, default 20;

        /// Maximum time for answering a request. A request that takes longer gets the status 503.
        request_timeout: Option<Duration> as "duration", default "15s";
    }
}
