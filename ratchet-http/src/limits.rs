use std::time::Duration;

/// The maximum value of each timeout. It is small enough that adding it to an `Instant` cannot
/// overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The smallest `head_bytes` that the HTTP library accepts, in bytes.
const LEAST_HEAD: usize = 8 * 1024;

/// Limits on requests, responses and connections. The documentation of each field states the
/// default.
///
/// ```
/// use ratchet_http::Limits;
///
/// let limits = Limits::default().event_clients(500).page(1_000);
/// assert_eq!(limits.body_bytes, 64 * 1024);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum size of a request body in bytes; 64 KiB by default. A request with a longer body
    /// gets 413.
    pub body_bytes: usize,
    /// The maximum number of items on a page; 200 by default. A request for more items gets 422.
    pub page: usize,
    /// The maximum number of concurrent listeners of `/api/events`; 200 by default. One client may
    /// have at most three quarters of this number. Listeners beyond either limit get 503.
    pub event_clients: usize,
    /// The maximum number of requests that read from the store at the same time; 8 by default.
    ///
    /// Further requests wait for up to one second, and then get 503. The reads are shared fairly
    /// between clients, and one client has at most three quarters of them. The limit does not apply
    /// to the probes, the overview, the queues and the nodes, whose responses come from memory.
    pub reads: usize,
    /// The maximum number of writes per second, of all clients together; 20 by default. Further
    /// writes get 429.
    pub writes_per_second: u32,
    /// The timeout of a request; 15 s by default. A request that takes longer gets 503. The timeout
    /// does not end event streams.
    pub request_timeout: Duration,
    /// The timeout for receiving a request body; 10 s by default. A slower request gets 408.
    pub body_timeout: Duration,
    /// The timeout for receiving the head of a request, and for an idle connection between two
    /// requests; 20 s by default. Only [`serve`](crate::serve) enforces this timeout.
    pub header_timeout: Duration,
    /// The timeout for sending data to a client; 20 s by default. If the client reads nothing for
    /// this time, its connection or event stream is closed.
    pub write_timeout: Duration,
    /// The maximum size of a request head in bytes; 32 KiB by default, and at least 8 KiB. A
    /// request with a longer head gets 431. Only [`serve`](crate::serve) enforces this limit.
    pub head_bytes: usize,
    /// The maximum number of open connections of [`serve`](crate::serve); 1,024 by default. If a
    /// new connection exceeds the limit, the server closes the connection that has been idle
    /// longest. If none is idle, it closes a busy one.
    pub connections: usize,
    /// The maximum number of open connections of one peer of [`serve`](crate::serve); 256 by
    /// default.
    ///
    /// If a new connection exceeds the limit, the server closes the connection of the same peer
    /// that has been idle longest. If all connections of the peer are busy, the peer may open more,
    /// up to [`connections`](Self::connections). The limit does not apply to
    /// [proxies](crate::ApiBuilder::proxies).
    pub connections_per_peer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 * 1024,
            page: 200,
            event_clients: 200,
            reads: 8,
            writes_per_second: 20,
            request_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(20),
            head_bytes: 32 * 1024,
            connections: 1_024,
            connections_per_peer: 256,
        }
    }
}

impl Limits {
    /// Sets [`body_bytes`](Self::body_bytes).
    #[must_use]
    pub const fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Sets [`page`](Self::page), at most [`MAX_BATCH`](ratchet_core::limits::MAX_BATCH).
    #[must_use]
    pub const fn page(mut self, items: usize) -> Self {
        self.page = items;
        self
    }

    /// Sets [`event_clients`](Self::event_clients).
    #[must_use]
    pub const fn event_clients(mut self, clients: usize) -> Self {
        self.event_clients = clients;
        self
    }

    /// Sets [`reads`](Self::reads).
    #[must_use]
    pub const fn reads(mut self, reads: usize) -> Self {
        self.reads = reads;
        self
    }

    /// Sets [`writes_per_second`](Self::writes_per_second).
    #[must_use]
    pub const fn writes_per_second(mut self, writes: u32) -> Self {
        self.writes_per_second = writes;
        self
    }

    /// Sets [`request_timeout`](Self::request_timeout).
    #[must_use]
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets [`body_timeout`](Self::body_timeout).
    #[must_use]
    pub const fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// Sets [`header_timeout`](Self::header_timeout).
    #[must_use]
    pub const fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// Sets [`write_timeout`](Self::write_timeout).
    #[must_use]
    pub const fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// Sets [`connections`](Self::connections).
    #[must_use]
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets [`head_bytes`](Self::head_bytes).
    #[must_use]
    pub const fn head_bytes(mut self, bytes: usize) -> Self {
        self.head_bytes = bytes;
        self
    }

    /// Sets [`connections_per_peer`](Self::connections_per_peer).
    #[must_use]
    pub const fn connections_per_peer(mut self, connections: usize) -> Self {
        self.connections_per_peer = connections;
        self
    }

    /// Returns a message for each limit that is zero or out of range.
    pub(crate) fn problems(&self) -> Vec<String> {
        let counts = [
            ("body_bytes", self.body_bytes),
            ("page", self.page),
            ("event_clients", self.event_clients),
            ("reads", self.reads),
            ("connections", self.connections),
            ("connections_per_peer", self.connections_per_peer),
            (
                "writes_per_second",
                usize::try_from(self.writes_per_second).unwrap_or(usize::MAX),
            ),
        ];
        let durations = [
            ("request_timeout", self.request_timeout),
            ("body_timeout", self.body_timeout),
            ("header_timeout", self.header_timeout),
            ("write_timeout", self.write_timeout),
        ];
        let long = durations.iter().filter(|(_, time)| *time > LONGEST);
        let long: Vec<String> = long
            .map(|(name, time)| format!("limits.{name} is {time:?}; it may be at most {LONGEST:?}"))
            .collect();
        let counts = counts.iter().filter(|(_, count)| *count == 0);
        let durations = durations.iter().filter(|(_, time)| time.is_zero());
        let zero = counts
            .map(|(name, _)| *name)
            .chain(durations.map(|(name, _)| *name));
        let mut problems: Vec<String> = zero
            .map(|name| format!("limits.{name} is 0; it must be more than 0"))
            .collect();
        if self.head_bytes < LEAST_HEAD {
            problems.push(format!(
                "limits.head_bytes is {}; it must be at least {LEAST_HEAD} bytes",
                self.head_bytes
            ));
        }
        problems.extend(long);
        if self.page > ratchet_core::limits::MAX_BATCH {
            problems.push(format!(
                "limits.page is {}; it may be at most {}, the most that a store reads at a time",
                self.page,
                ratchet_core::limits::MAX_BATCH
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named() {
        assert!(Limits::default().problems().is_empty());
        let limits = Limits::default()
            .page(1_000_000)
            .body_timeout(Duration::ZERO);
        let problems = limits.problems();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(
            problems[0],
            "limits.body_timeout is 0; it must be more than 0"
        );
        assert!(problems[1].contains("1000000"), "{problems:?}");
        let limits = Limits::default()
            .head_bytes(1_024)
            .write_timeout(Duration::MAX);
        let problems = limits.problems();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("head_bytes") && problems[1].contains("write_timeout"));
    }
}
