//! The imports that nearly every case needs.

pub(super) use std::time::Duration;

pub(super) use ratchet_core::model::*;
pub(super) use ratchet_core::store::{Acquired, Changed, HeldLock, IfKnown, LockInfo};
pub(super) use ratchet_core::{
    Aging, Backoff, BatchId, ClaimToken, Enqueued, Fence, JobAction, JobId, JobRecord, JobState,
    Name, NewJob, NodeId, Priority, RetryPolicy, Selection, StoreErrorKind, TraceContext,
    next_in_time, time,
};

pub(super) use crate::Power;
pub(super) use crate::build::*;
pub(super) use crate::case::cases;
pub(super) use crate::cx::Cx;
pub(super) use crate::node::{TestNode, Walk, assert_refused, ids, input, landed, ok};
pub(super) use crate::runner::race;
