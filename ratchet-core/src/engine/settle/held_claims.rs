//! The claims that a run holds, and every way in which it stops holding a claim.

use std::sync::Arc;

use tokio::sync::Notify;

use super::buffer::{Ending, SettleBuffer};
use super::claim_ledger::ClaimLedger;
use crate::engine::hooks::Hooks;
use crate::engine::pools::ready::Ready;
use crate::engine::pools::run_pool::RunPool;
use crate::id::ClaimToken;
use crate::model::{Claim, Outcome, Settlement};

/// Claims that the node holds in one run, by pool. The job of such a claim waits for a slot, or
/// runs, or waits until its settlement is written.
pub(crate) struct HeldClaims {
    pub(crate) pools: Box<[RunPool]>,
    /// Claims that the node holds. Each heartbeat compares them with the store's list.
    pub(crate) ledger: ClaimLedger,
    pub(crate) settlements: SettleBuffer,
    /// Notifies one waiting task when the number of held claims has decreased.
    pub(crate) settled: Notify,
    pub(crate) hooks: Arc<Hooks>,
}

impl HeldClaims {
    pub(crate) fn new(pools: Box<[RunPool]>, hooks: Arc<Hooks>) -> Self {
        Self {
            pools,
            ledger: ClaimLedger::default(),
            settlements: SettleBuffer::default(),
            settled: Notify::new(),
            hooks,
        }
    }

    /// Returns whether any pool has claims that wait for a slot.
    pub(crate) fn has_waiting(&self) -> bool {
        self.pools.iter().any(|pool| pool.ready.len() > 0)
    }

    /// Returns the number of claims that all pools hold together.
    pub(crate) fn held(&self) -> usize {
        self.pools.iter().map(RunPool::held).sum()
    }

    /// Reduces the number of claims that `pool` holds by `claims`, because they were settled,
    /// handed back or lost.
    pub(crate) fn let_go(&self, pool: &RunPool, claims: usize) {
        pool.let_go(claims);
        self.settled.notify_one();
    }

    /// Removes a claim that the node lost while the job body ran.
    pub(crate) fn lose_running(&self, pool: &RunPool, token: ClaimToken) {
        pool.metrics.lost_running();
        self.ledger.lost(token);
        self.let_go(pool, 1);
    }

    /// Removes a claim whose job body stalled, without settling the claim. The cluster reclaims the
    /// job later.
    pub(crate) fn give_up_stalled(&self, pool: &RunPool, token: ClaimToken) {
        pool.metrics.lost_running();
        self.ledger.give_up(token);
        self.let_go(pool, 1);
    }

    /// Removes a claim that the node lost before the job body began.
    pub(crate) fn lose_waiting(&self, pool: &RunPool, token: ClaimToken) {
        pool.metrics.lost_waiting();
        self.ledger.lost(token);
        self.let_go(pool, 1);
    }

    /// Hands back claims of `pool` whose job bodies have not begun.
    pub(crate) fn hand_back(&self, pool: &RunPool, claims: Vec<Ready>) {
        pool.metrics.handed_back(claims.len());
        for ready in claims {
            let released = Settlement::new(ready.claim.token, Outcome::Released);
            self.settle(pool, &ready.claim, released);
        }
    }

    /// Hands back the claims of all pools that wait for a slot.
    pub(crate) fn hand_back_waiting(&self) {
        for pool in &self.pools {
            self.hand_back(pool, pool.ready.take_all());
        }
    }

    /// Adds the settlement of a claim to the send buffer. If more settlements will probably follow
    /// soon, the settler waits for them before it sends the batch. After the settlement is written,
    /// pollers are woken if other jobs wait for the end of this job, or if this job releases a
    /// permit.
    pub(crate) fn settle(&self, pool: &RunPool, claim: &Claim, settlement: Settlement) {
        self.add(Ending::new(settlement, claim, pool), pool);
    }

    /// Adds the settlement of a claim to the send buffer, like [`settle`](Self::settle). After the
    /// settlement is written, the hooks are notified of the end of the claim. Use this method if
    /// the job body ran, or if the job ends without running.
    pub(crate) fn settle_ended(&self, pool: &RunPool, claim: &Arc<Claim>, settlement: Settlement) {
        let mut ending = Ending::new(settlement, claim, pool);
        ending.tell(claim);
        self.add(ending, pool);
    }

    fn add(&self, ending: Ending, pool: &RunPool) {
        let more_coming = pool.ready.len() > 0;
        self.settlements.push(ending, more_coming);
    }
}
