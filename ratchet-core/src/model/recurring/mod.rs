//! Recurring definitions: how they are defined, stored and changed.

mod definition;
mod document;
mod firing;
mod record;
mod stored;

pub use definition::{Definition, Recurring};
pub use firing::{
    DueRecurring, Fired, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RetireRecurring,
};
pub use record::{RecurringOrigin, RecurringRecord, RecurringToken};
