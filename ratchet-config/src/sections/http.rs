use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::secret::Secret;
use crate::section::section;
use crate::value::choice;

choice! {
    /// Whether payloads, results and checkpoints of jobs are shown over HTTP.
    pub enum Payloads {
        /// They are not.
        Hidden = "hidden",
        /// They are, to whoever may read.
        Shown = "shown",
    }
}

section! {
    /// How `ratchet serve` serves over HTTP.
    pub struct HttpConfig in "http" {
        /// Where to listen. Everybody on the network can read what is served on another address
        /// than one of the loopback.
        listen: SocketAddr, default "127.0.0.1:8080";

        /// Under `ratchet serve --allow-writes`, who sends this token may change things: programs as
        /// `Authorization: Bearer …`, browsers as the password of HTTP Basic, with any name.
        token: Option<Secret<String>>, example "\"…\"";

        /// A file with the token in its first line. Not together with `token`.
        token_file: Option<PathBuf>, example "\"/run/secrets/ratchet-token\"";

        /// Whether payloads, results and checkpoints of jobs are shown.
        payloads: Payloads, default "hidden";

        /// The largest body of a request, in bytes.
        max_body: Option<usize>, default 65536;

        /// The most entries of a page.
        max_page: Option<u32>, default 200;

        /// How many clients may have live updates at once.
        max_clients: Option<usize>, default 200;

        /// How many changes are taken in one second, of all clients together.
        writes_per_second: Option<u32>, default 20;

        /// How long a request may take.
        request_timeout: Option<Duration>, default "15s";
    }
}
