pub(super) mod admission;
pub(super) mod executor;
pub(super) mod newer_payloads;
pub(super) mod outcome;
pub(super) mod reporter;
pub(super) mod running;
pub(super) mod span;
pub(super) mod suspects;
