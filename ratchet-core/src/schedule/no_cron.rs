//! Replaces cron expressions if the feature `cron` is off: none can be created.

use crate::error::InvalidInput;

/// A type without values.
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
