//! Recurring definitions: what they are, what is stored of them, and how they change.

mod definition;
mod firing;
mod record;
mod stored;

pub use definition::{Definition, Recurring};
pub use firing::{
    DueRecurring, Fired, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RetireRecurring,
};
pub use record::{RecurringOrigin, RecurringRecord, RecurringToken};
