//! Decides whether a connection may still be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratchet_core::time;
use tokio::time::Instant;

/// Default lifetime of a connection. Older connections are not used again.
///
/// The lifetime limits how much state accumulates in the session on the server. It also limits the
/// age of connections, because the network may drop old connections.
pub const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Maximum time that a connection may be idle and still be used again. Load balancers and NAT
/// gateways silently drop connections that are idle for some minutes.
const REST: Duration = Duration::from_secs(3 * 60);

/// Current generation of a store's connections. Connections of earlier generations are never used
/// again.
///
/// A new generation begins each time the server rejects all writes. Within seconds, the server may
/// accept writes again, or a failover may replace the server. However, existing sessions stay
/// read-only, so new connections are needed.
#[derive(Clone, Debug)]
pub struct Generation {
    number: Arc<AtomicU64>,
    lifetime: Duration,
}

/// Stamp of a connection: the time at which the connection was opened, and its generation.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    generation: u64,
    at: Instant,
    lifetime: Duration,
}

impl Generation {
    /// Creates the first generation. `lifetime` is the lifetime of connections in this generation
    /// and all later ones.
    #[must_use]
    pub fn new(lifetime: Duration) -> Self {
        Self {
            number: Arc::default(),
            lifetime,
        }
    }

    /// Returns the stamp of a connection that is opened now. The stamp contains the current time
    /// and generation.
    #[must_use]
    pub fn made_now(&self) -> Made {
        Made {
            generation: self.number.load(Ordering::SeqCst),
            at: time::monotonic(),
            lifetime: self.lifetime,
        }
    }

    /// Ends the generation of the connection with the stamp `of`. Has no effect if this generation
    /// has already ended.
    pub fn end(&self, of: Made) {
        let next = of.generation + 1;
        let _ =
            self.number
                .compare_exchange(of.generation, next, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl Made {
    /// Returns the time at which the connection was opened.
    #[must_use]
    pub const fn at(self) -> Instant {
        self.at
    }

    /// Returns whether this connection is of the same generation as a connection that is opened
    /// now. `now` is the result of [`Generation::made_now`].
    #[must_use]
    pub const fn is_same_generation(self, now: Self) -> bool {
        self.generation == now.generation
    }

    /// Returns whether this connection may still be used: its generation has not ended, and its
    /// lifetime is not over. `now` is the result of [`Generation::made_now`].
    #[must_use]
    pub fn is_good(self, now: Self) -> bool {
        self.is_same_generation(now) && now.at.duration_since(self.at) < self.lifetime
    }

    /// Returns whether this connection may still be used after it has been idle since `since`.
    /// `now` is the result of [`Generation::made_now`].
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
        // The generation of `other` has already ended. So this call must not end the next
        // generation.
        generation.end(other);
        assert!(next.is_good(generation.made_now()));
    }
}
