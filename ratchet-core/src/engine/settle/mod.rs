pub(super) mod claim_ledger;
pub(super) mod fairness;
pub(super) mod settler;
