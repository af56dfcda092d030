//! How long connections are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratchet_core::time;
use tokio::time::Instant;

/// How long a connection is used unless configured otherwise, so that what goes on in its session
/// does not grow without end and a network that forgets connections meets young ones.
pub const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// How long a connection stays idle. Load balancers and NAT gateways forget connections on which
/// nothing was sent for some minutes, and tell neither side.
const REST: Duration = Duration::from_secs(3 * 60);

/// Counts how often the server refused all writes. It may do so for some seconds only,
/// or another one may have taken its place, but a session keeps what it began with: none that was
/// made in an earlier generation is used again.
#[derive(Clone, Debug)]
pub struct Generation {
    number: Arc<AtomicU64>,
    /// How long a connection is used.
    lifetime: Duration,
}

/// When a connection was made.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    generation: u64,
    at: Instant,
    lifetime: Duration,
}

impl Generation {
    /// The first generation, of connections that are used for this long.
    #[must_use]
    pub fn new(lifetime: Duration) -> Self {
        Self {
            number: Arc::default(),
            lifetime,
        }
    }

    /// For a connection that is made now.
    #[must_use]
    pub fn made_now(&self) -> Made {
        Made {
            generation: self.number.load(Ordering::SeqCst),
            at: time::monotonic(),
            lifetime: self.lifetime,
        }
    }

    /// Ends the generation that a connection was made in, once for all that were.
    pub fn end(&self, of: Made) {
        let next = of.generation + 1;
        let _ =
            self.number
                .compare_exchange(of.generation, next, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl Made {
    /// When it was made.
    #[must_use]
    pub const fn at(self) -> Instant {
        self.at
    }

    /// Returns whether a connection made `now` would be of the same generation.
    #[must_use]
    pub const fn is_same_generation(self, now: Self) -> bool {
        self.generation == now.generation
    }

    /// Whether the connection may be used at a time when another one would be made as `now`.
    #[must_use]
    pub fn is_good(self, now: Self) -> bool {
        self.is_same_generation(now) && now.at.duration_since(self.at) < self.lifetime
    }

    /// As [`is_good`](Self::is_good), for a connection that has been idle since this time.
    #[must_use]
    pub fn is_fresh(self, since: Instant, now: Self) -> bool {
        self.is_good(now) && now.at.duration_since(since) < REST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_grow_old_and_eras_end_once_for_all_that_were_made_in_them() {
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
        // It is heard of from each of them.
        generation.end(other);
        assert!(next.is_good(generation.made_now()));
    }
}
