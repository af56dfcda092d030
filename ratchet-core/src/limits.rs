//! Limits that hold on every backend. They are checked before anything is written.

use std::time::Duration;

use crate::error::InvalidInput;

/// The maximum size of a payload in bytes of JSON: 256 KiB.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;
/// The maximum size of a result or a checkpoint in bytes of JSON: 64 KiB.
pub const MAX_RESULT_BYTES: usize = 64 * 1024;
/// The maximum size of a progress message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1_024;
/// The maximum size of the reason for a pause, in bytes.
pub const MAX_REASON_BYTES: usize = 1_024;
/// The maximum number of jobs and batches that one job may wait for.
pub const MAX_PARENTS: usize = 100;
/// The maximum number of jobs and batches in a chain within one enqueue. Each member of a chain
/// waits for the previous member. When the first member ends, the store may have to cancel the
/// whole chain in one transaction. This limit bounds that transaction.
pub const MAX_GENERATIONS: usize = 1_000;
/// The maximum size of a condition, in bytes, with its JSON pointers and values.
pub const MAX_CONDITION_BYTES: usize = 4_096;
/// The maximum delay of a job, at its enqueue or between attempts: 1,000 years of 365 days.
pub const MAX_DELAY: Duration = Duration::from_secs(1_000 * 365 * 86_400);
/// The latest due time of a job, in milliseconds since 1970: 9999-12-31T23:59:59.999Z.
pub const MAX_RUN_AT: i64 = 253_402_300_799_999;
/// The maximum number of tags of a job.
pub const MAX_TAGS: usize = 16;
/// The highest allowed version of a payload's format.
pub const MAX_PAYLOAD_VERSION: u32 = i32::MAX.cast_unsigned();
/// The maximum number of locks that [`Client::locks`](crate::Client::locks) lists.
pub const MAX_LISTED_LOCKS: usize = 1_000;
/// The maximum number of jobs in one call that enqueues, claims, settles, lists or changes jobs, or
/// that sends their reports.
pub const MAX_BATCH: usize = 10_000;

/// Checks that a call has at most [`MAX_BATCH`] items.
///
/// # Errors
/// Returns an [`InvalidInput`] for `field` if the call has more items.
pub fn check_batch(field: &'static str, items: usize) -> Result<(), InvalidInput> {
    if items > MAX_BATCH {
        return Err(InvalidInput::new(
            field,
            format!("has {items} items; at most {MAX_BATCH} are allowed at once"),
        ));
    }
    Ok(())
}

/// Checks that a limit is at least 1 and at most [`MAX_BATCH`]. Use this function for reads and
/// maintenance passes, where a limit of 0 can only be a mistake.
///
/// # Errors
/// Returns an [`InvalidInput`] for `field` if the limit is out of range.
pub fn check_limit(field: &'static str, limit: usize) -> Result<(), InvalidInput> {
    if limit == 0 {
        return Err(InvalidInput::new(field, "is 0"));
    }
    check_batch(field, limit)
}
