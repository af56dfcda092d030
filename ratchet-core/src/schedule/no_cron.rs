//! Replaces the module for cron expressions if the Cargo feature `cron` is off. No expression can
//! be created then.

use crate::error::InvalidInput;

/// An empty type: without the Cargo feature `cron`, no cron expression can be created.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Cron {}

impl Cron {
    pub(super) fn new(_expression: &str, _zone: &str) -> Result<Self, InvalidInput> {
        Err(InvalidInput::new(
            "cron",
            "expressions need the Cargo feature `cron`, which is not enabled",
        ))
    }

    pub(super) const fn expression(&self) -> &str {
        match *self {}
    }

    pub(super) const fn zone(&self) -> &str {
        match *self {}
    }

    pub(super) const fn next_after(&self, _after: i64) -> Option<i64> {
        match *self {}
    }
}
