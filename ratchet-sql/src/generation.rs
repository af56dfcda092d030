//! Decides how long a connection is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratchet_core::time;
use tokio::time::Instant;

/// The default lifetime of a connection. It limits how much state accumulates in a session, and how
/// old a connection becomes that the network may drop.
pub const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// The longest time that a connection may be idle. Load balancers and NAT gateways silently drop
/// connections that are idle for some minutes.
const REST: Duration = Duration::from_secs(3 * 60);

/// Counts how often the server has rejected all writes. The server may become writable again within
/// seconds, or a failover may replace it, but an existing session stays read-only. So connections
/// of an earlier generation are never used again.
#[derive(Clone, Debug)]
pub struct Generation {
    number: Arc<AtomicU64>,
    lifetime: Duration,
}

/// The time at which a connection was opened, and its generation.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    generation: u64,
    at: Instant,
    lifetime: Duration,
}

impl Generation {
    /// Creates the first generation. `lifetime` applies to the connections of all generations.
    #[must_use]
    pub fn new(lifetime: Duration) -> Self {
        Self {
            number: Arc::default(),
            lifetime,
        }
    }

    /// Returns the current time and generation, to be recorded with a connection that is being
    /// opened.
    #[must_use]
    pub fn made_now(&self) -> Made {
        Made {
            generation: self.number.load(Ordering::SeqCst),
            at: time::monotonic(),
            lifetime: self.lifetime,
        }
    }

    /// Ends the generation of a connection. Has no effect if that generation has already ended.
    pub fn end(&self, of: Made) {
        let next = of.generation + 1;
        let _ =
            self.number
                .compare_exchange(of.generation, next, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl Made {
    /// Returns when the connection was opened.
    #[must_use]
    pub const fn at(self) -> Instant {
        self.at
    }

    /// Returns whether a connection opened `now` would be of the same generation.
    #[must_use]
    pub const fn is_same_generation(self, now: Self) -> bool {
        self.generation == now.generation
    }

    /// Returns whether the connection may still be used. `now` is the stamp of a connection opened
    /// now.
    #[must_use]
    pub fn is_good(self, now: Self) -> bool {
        self.is_same_generation(now) && now.at.duration_since(self.at) < self.lifetime
    }

    /// Returns whether a connection that has been idle since `since` may still be used. `now` is as
    /// for [`is_good`](Self::is_good).
    #[must_use]
    pub fn is_fresh(self, since: Instant, now: Self) -> bool {
        self.is_good(now) && now.at.duration_since(since) < REST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_expire_and_a_generation_ends_once_for_all_of_its_connections() {
        let generation = Generation::new(LIFETIME);
        let (one, other) = (generation.made_now(), generation.made_now());
        let at = |after: Duration| Made {
            at: one.at + after,
            ..generation.made_now()
        };
        assert!(one.is_good(at(LIFETIME - Duration::from_millis(1))));
        assert!(!one.is_good(at(LIFETIME)));
        assert!(one.is_fresh(one.at, at(REST - Duration::from_millis(1))));
        assert!(!one.is_fresh(one.at, at(REST)));
        assert!(one.is_fresh(one.at + REST, at(REST)));
        generation.end(one);
        let next = generation.made_now();
        assert!(!one.is_good(next) && !other.is_good(next));
        // A second connection of the ended generation does not end the next one.
        generation.end(other);
        assert!(next.is_good(generation.made_now()));
    }
}
