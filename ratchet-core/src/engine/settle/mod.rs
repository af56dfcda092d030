//! Settles claims: collects the settlements of claims that ended or are handed back, and sends them
//! to the store.

pub(super) mod buffer;
pub(super) mod claim_ledger;
pub(super) mod fairness;
pub(super) mod held_claims;
pub(super) mod settler;
