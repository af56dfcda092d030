//! The circuit breakers of a node: they admit attempts, and stop and resume the polls for their
//! kinds.
//!
//! When a breaker opens, its kind is throttled in every pool, so no poller asks for it. When a
//! probe is due, a poller asks for one job of the kind. If there is none, the kind returns to the
//! ordinary polls. The breaker still admits only one job as its probe; the node gives the others
//! back, and they keep their places in the claim order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::breaker::{
    AttemptEnd, BreakerInfo, BreakerState, Circuit, CircuitBreaker, CircuitChange, CircuitTicket,
};
use crate::client::WakeQueue;
use crate::engine::common::Common;
use crate::engine::pools::run_pool::RunPool;
use crate::engine::settle::held_claims::HeldClaims;
use crate::handler::Registry;
use crate::metrics::{self, NotYet};
use crate::model::{Claim, Outcome, Settlement};
use crate::name::Name;
use crate::time;

/// The circuit breakers of a node, keyed by kind and by each alias of the kind. All runs of the
/// node share them.
#[derive(Debug, Default)]
pub(crate) struct Breakers(BTreeMap<Name, Arc<Breaker>>);

#[derive(Debug)]
struct Breaker {
    kind: Name,
    /// The kind and its aliases.
    names: Vec<Name>,
    circuit: Mutex<Circuit>,
}

impl Breaker {
    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> BreakerState {
        self.circuit().state(time::monotonic())
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        if self.state() != BreakerState::Closed {
            metrics::breaker_open(&self.kind, -1.0);
        }
    }
}

impl Breakers {
    pub(crate) fn new(breakers: BTreeMap<Name, CircuitBreaker>, registry: &Registry) -> Self {
        let mut all = BTreeMap::new();
        for (kind, settings) in breakers {
            let names: Vec<Name> = registry.names_of(kind.as_str()).cloned().collect();
            metrics::breaker_open(&kind, 0.0);
            let breaker = Arc::new(Breaker {
                kind,
                names: names.clone(),
                circuit: Mutex::new(Circuit::new(settings)),
            });
            all.extend(names.into_iter().map(|name| (name, Arc::clone(&breaker))));
        }
        Self(all)
    }

    /// Returns the state of each breaker, ordered by kind.
    pub(crate) fn list(&self) -> Vec<BreakerInfo> {
        let now = time::monotonic();
        let own = |(name, breaker): &(&Name, &Arc<Breaker>)| **name == breaker.kind;
        let info = |(_, breaker): (&Name, &Arc<Breaker>)| {
            let mut circuit = breaker.circuit();
            let (attempts, failures) = circuit.counts(now);
            BreakerInfo {
                kind: breaker.kind.clone(),
                state: circuit.state(now),
                attempts,
                failures,
                probe_in: circuit.probe_in(now),
            }
        };
        self.0.iter().filter(own).map(info).collect()
    }

    /// Returns the kinds whose breaker is not closed, in order.
    pub(crate) fn not_closed(&self) -> Vec<Name> {
        let open = |(name, breaker): &(&Name, &Arc<Breaker>)| {
            **name == breaker.kind && breaker.state() != BreakerState::Closed
        };
        self.0
            .iter()
            .filter(open)
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// The circuit breakers of a node, and what they stop and resume during one run.
pub(crate) struct BreakerHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) claims: Arc<HeldClaims>,
    pub(crate) wake_queue: Arc<WakeQueue>,
}

/// An attempt that a breaker admitted. When it is dropped, the breaker records how it ended.
pub(super) struct BreakerAttempt<'a> {
    run: &'a BreakerHandles,
    breaker: &'a Breaker,
    ticket: CircuitTicket,
    end: AttemptEnd,
}

/// Admits a claim whose body is about to begin. Returns `None` if its kind has no breaker. Returns
/// an error with its settlement if the body may not begin: the job is released, and keeps its place
/// in the claim order.
pub(super) fn admit<'a>(
    run: &'a BreakerHandles,
    pool: &RunPool,
    claim: &Claim,
) -> Result<Option<BreakerAttempt<'a>>, Settlement> {
    let kind = &claim.route.kind;
    let Some(breaker) = run.breakers.0.get(kind) else {
        return Ok(None);
    };
    let now = time::monotonic();
    // The circuit stays locked until the kind is stopped, so a probe that ends meanwhile resumes it
    // only after that.
    let mut circuit = breaker.circuit();
    match circuit.admit(now) {
        Ok(ticket) => Ok(Some(BreakerAttempt {
            run,
            breaker,
            ticket,
            end: AttemptEnd::Unknown,
        })),
        Err(wait) => {
            pool.throttles.stop(kind, wait, now);
            pool.metrics.put_off(NotYet::Breaker);
            Err(Settlement::new(claim.token, Outcome::Released))
        }
    }
}

impl BreakerAttempt<'_> {
    pub(super) fn ended(&mut self, end: AttemptEnd) {
        self.end = end;
    }
}

impl Drop for BreakerAttempt<'_> {
    fn drop(&mut self) {
        let (run, breaker, now) = (self.run, self.breaker, time::monotonic());
        let random = run.common.random();
        let changed = breaker.circuit().record(self.ticket, self.end, random, now);
        let Some(change) = changed else {
            return;
        };
        let kind = &breaker.kind;
        let probe_in = match change {
            CircuitChange::Opened {
                probe_in,
                failures,
                attempts,
            } => {
                tracing::warn!(%kind, failures, attempts, ?probe_in, "a circuit breaker opened: \
                    the node claims no jobs of this kind until a probe succeeds");
                metrics::breaker_open(kind, 1.0);
                metrics::breaker_changed(kind, "opened");
                Some(probe_in)
            }
            CircuitChange::Reopened { probe_in } => {
                tracing::info!(%kind, ?probe_in, "the probe of a circuit breaker did not succeed; \
                    it stays open");
                metrics::breaker_changed(kind, "reopened");
                Some(probe_in)
            }
            CircuitChange::Closed => {
                tracing::info!(%kind, "a circuit breaker closed: the node claims jobs of this \
                    kind again");
                metrics::breaker_open(kind, -1.0);
                metrics::breaker_changed(kind, "closed");
                None
            }
        };
        for pool in &run.claims.pools {
            for name in &breaker.names {
                match probe_in {
                    Some(wait) if pool.share().kinds.contains(name) => {
                        pool.throttles.stop(name, wait, now);
                    }
                    Some(_) => {}
                    None => pool.throttles.lift(name),
                }
            }
        }
        if probe_in.is_none() {
            run.wake_queue.wake(None);
        }
    }
}
