use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{HybridLimiter, LocalLimiter, RateKey, RateLimiter, StrictLimiter};
use crate::client::Calls;
use crate::handler::{Job, decode};
use crate::json::Json;
use crate::name::Name;
use crate::rate::Rate;

/// A rate limit for one job type: how many of its bodies may begin per interval. Pass it to
/// [`NodeBuilder::rate_limit`](crate::NodeBuilder::rate_limit).
///
/// By default, each node counts separately. [`strict`](Self::strict), [`hybrid`](Self::hybrid) and
/// [`limiter`](Self::limiter) choose another way to count. All jobs of the kind share the rate,
/// unless [`by`](Self::by) assigns keys to them.
///
/// ```
/// # use ratchet::{Job, JobContext, JobResult};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct Mail { tenant: String }
/// # impl Job for Mail {
/// #     const KIND: &'static str = "mail";
/// #     type Output = ();
/// #     async fn run(self, _: JobContext) -> JobResult<()> { Ok(()) }
/// # }
/// use ratchet::RateLimit;
///
/// // All nodes together begin 10 per second, and 20 at once after a quiet time.
/// let all = RateLimit::<Mail>::per_second(10).burst(20).strict();
/// // Each node begins 100 per minute for each tenant.
/// let each = RateLimit::per_minute(100).by(|mail: &Mail| mail.tenant.clone());
/// # let _ = (all, each);
/// ```
#[must_use]
pub struct RateLimit<J> {
    rate: Rate,
    strategy: Strategy,
    key: Option<Arc<KeyOf<J>>>,
}

type KeyOf<J> = dyn Fn(&J) -> Option<String> + Send + Sync;

/// Selects the limiter that counts the starts.
#[derive(Clone, Debug)]
pub(crate) enum Strategy {
    Local,
    Strict,
    Hybrid,
    Own(Arc<dyn RateLimiter>),
}

impl Strategy {
    /// Returns whether the limiter counts starts in the store. If so, the store must support rate
    /// limits.
    pub(crate) const fn needs_store(&self) -> bool {
        matches!(self, Self::Strict | Self::Hybrid)
    }

    fn limiter(&self, calls: &Arc<Calls>) -> Arc<dyn RateLimiter> {
        let strict = || StrictLimiter::over(Arc::clone(calls));
        match self {
            Self::Local => Arc::new(LocalLimiter::new()),
            Self::Strict => Arc::new(strict()),
            Self::Hybrid => Arc::new(HybridLimiter::new(strict())),
            Self::Own(limiter) => Arc::clone(limiter),
        }
    }
}

impl<J: Job> RateLimit<J> {
    /// Creates a limit with this rate. Each node counts separately, and all jobs of the kind share
    /// the rate.
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            strategy: Strategy::Local,
            key: None,
        }
    }

    /// Creates a limit of this number of starts per second.
    pub const fn per_second(starts: u32) -> Self {
        Self::new(Rate::new(starts, Duration::from_secs(1)))
    }

    /// Creates a limit of this number of starts per minute.
    pub const fn per_minute(starts: u32) -> Self {
        Self::new(Rate::new(starts, Duration::from_secs(60)))
    }

    /// Creates a limit of this number of starts per hour.
    pub const fn per_hour(starts: u32) -> Self {
        Self::new(Rate::new(starts, Duration::from_secs(3_600)))
    }

    /// Sets the burst: the maximum number of bodies that may begin at once after a time without
    /// starts. The default is the number of starts per interval.
    pub const fn burst(mut self, starts: u32) -> Self {
        self.rate = self.rate.burst(starts);
        self
    }

    /// Counts starts exactly, for the whole cluster, in the database. Each start costs one store
    /// call.
    pub fn strict(mut self) -> Self {
        self.strategy = Strategy::Strict;
        self
    }

    /// Counts jobs with a key separately on each node, and jobs without a key in the database. See
    /// [`HybridLimiter`].
    pub fn hybrid(mut self) -> Self {
        self.strategy = Strategy::Hybrid;
        self
    }

    /// Sets a custom rate limiter, which decides whether a body may begin.
    pub fn limiter(mut self, limiter: impl RateLimiter) -> Self {
        self.strategy = Strategy::Own(Arc::new(limiter));
        self
    }

    /// Gives each key its own rate. Jobs for which `key` returns the same text share a rate. Jobs
    /// for which `key` returns `None` share the global key of their kind.
    ///
    /// If the rate of a job's key is used up, the job is snoozed until it may begin. Snoozing uses
    /// no attempt, but the job gets a later due time. So jobs of the same priority may run before
    /// it.
    pub fn by<K: Into<Option<String>>>(
        mut self,
        key: impl Fn(&J) -> K + Send + Sync + 'static,
    ) -> Self {
        self.key = Some(Arc::new(move |job: &J| key(job).into()));
        self
    }

    /// Returns the limit with its job type erased.
    pub(crate) fn erased(self) -> Limit {
        let key_of = self.key.map(|key| {
            let of_payload = move |payload: &Json, version| {
                let job = decode::<J>(payload, version).ok()?;
                Some(key(&job))
            };
            Arc::new(of_payload) as Arc<KeyOfPayload>
        });
        Limit {
            rate: self.rate,
            strategy: self.strategy,
            key_of,
        }
    }
}

impl<J> fmt::Debug for RateLimit<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("rate", &self.rate)
            .field("strategy", &self.strategy)
            .field("by_key", &self.key.is_some())
            .finish()
    }
}

type KeyOfPayload = dyn Fn(&Json, u32) -> Option<Option<String>> + Send + Sync;

/// A rate limit whose job type is erased.
pub(crate) struct Limit {
    pub(crate) rate: Rate,
    pub(crate) strategy: Strategy,
    key_of: Option<Arc<KeyOfPayload>>,
}

impl Limit {
    /// Adds the limiter that counts the starts. The starts count under `kind`.
    pub(crate) fn counted(self, kind: Name, calls: &Arc<Calls>) -> Counted {
        Counted {
            limiter: self.strategy.limiter(calls),
            rate: self.rate,
            kind,
            key_of: self.key_of,
        }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.rate, f)
    }
}

/// The rate limit of one kind, together with the limiter that counts its starts.
pub(crate) struct Counted {
    pub(crate) limiter: Arc<dyn RateLimiter>,
    pub(crate) rate: Rate,
    kind: Name,
    key_of: Option<Arc<KeyOfPayload>>,
}

impl Counted {
    /// Returns whether jobs of the kind may count under different keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.key_of.is_some()
    }

    /// Returns the key under which a job with this payload counts. `version` is the version of the
    /// payload's format. `None` if a key is needed but the payload does not decode. The handler
    /// then reports the same problem, so the limiter need not.
    pub(crate) fn key(&self, payload: &Json, version: u32) -> Option<RateKey> {
        let kind = self.kind.clone();
        let Some(key_of) = &self.key_of else {
            return Some(RateKey::global(kind));
        };
        key_of(payload, version).map(|key| match key {
            Some(key) => RateKey::of(kind, key),
            None => RateKey::global(kind),
        })
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted")
            .field("kind", &self.kind)
            .field("rate", &self.rate)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
