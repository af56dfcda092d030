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

/// The claims of one run, by pool. They wait for a slot, run, or wait to be settled.
pub(crate) struct HeldClaims {
    pub(crate) pools: Box<[RunPool]>,
    /// The claims that the node holds, compared with the store's list at each heartbeat.
    pub(crate) ledger: ClaimLedger,
    pub(crate) settlements: SettleBuffer,
    /// Notified whenever claims were settled.
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

    /// Returns whether claims wait for a slot.
    pub(crate) fn has_waiting(&self) -> bool {
        self.pools.iter().any(|pool| pool.ready.len() > 0)
    }

    /// Returns how many claims all pools hold.
    pub(crate) fn held(&self) -> usize {
        self.pools.iter().map(RunPool::held).sum()
    }

    /// Stops holding claims of a pool that were settled, handed back or lost.
    pub(crate) fn let_go(&self, pool: &RunPool, claims: usize) {
        pool.let_go(claims);
        self.settled.notify_one();
    }

    /// Stops holding a claim of a pool that the node lost while its body ran.
    pub(crate) fn lose_running(&self, pool: &RunPool, token: ClaimToken) {
        pool.metrics.lost_running();
        self.ledger.lost(token);
        self.let_go(pool, 1);
    }

    /// Stops holding a claim of a pool whose body stalled. The cluster takes the claim back.
    pub(crate) fn give_up_stalled(&self, pool: &RunPool, token: ClaimToken) {
        pool.metrics.lost_running();
        self.ledger.give_up(token);
        self.let_go(pool, 1);
    }

    /// Stops holding a claim of a pool that the node lost before its body began.
    pub(crate) fn lose_waiting(&self, pool: &RunPool, token: ClaimToken) {
        pool.metrics.lost_waiting();
        self.ledger.lost(token);
        self.let_go(pool, 1);
    }

    /// Hands back claims of a pool whose bodies have not begun.
    pub(crate) fn hand_back(&self, pool: &RunPool, claims: Vec<Ready>) {
        pool.metrics.handed_back(claims.len());
        for ready in claims {
            let released = Settlement::new(ready.claim.token, Outcome::Released);
            self.settle(pool, &ready.claim, released);
        }
    }

    /// Hands back all claims that wait for a slot.
    pub(crate) fn hand_back_waiting(&self) {
        for pool in &self.pools {
            self.hand_back(pool, pool.ready.take_all());
        }
    }

    /// Queues the settlement of a claim of a pool. The settlement is sent soon, together with
    /// others if more are about to follow. If it lets other jobs run, in the same lane, by links or
    /// with the released permit, nodes are woken for these jobs.
    pub(crate) fn settle(&self, pool: &RunPool, claim: &Claim, settlement: Settlement) {
        self.add(Ending::new(settlement, claim, pool), pool);
    }

    /// Queues the settlement of a claim whose body ran, or whose job ends with it, as
    /// [`settle`](Self::settle) does. The hooks are notified.
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
