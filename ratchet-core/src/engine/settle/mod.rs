//! Settles claims: from the end of a body, or of a wait for one, to the store's answer.

pub(super) mod buffer;
pub(super) mod claim_ledger;
pub(super) mod fairness;
pub(super) mod held_claims;
pub(super) mod settler;
