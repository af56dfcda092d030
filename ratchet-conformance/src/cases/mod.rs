//! The cases for stores, a file per group.

mod prelude;

mod act;
mod batch;
mod cancel;
mod capability;
mod claim;
mod concurrency;
mod differential;
mod enqueue;
mod errors;
mod guard;
mod keys;
mod lane;
mod limits;
mod link;
mod lock;
mod migrate;
mod node;
mod order;
mod page;
mod purge;
mod queue;
mod reclaim;
mod report;
mod retry;
mod settle;
mod signal;
mod time;
mod token;
mod version;

use crate::{Case, Cx};

/// Every group of cases.
pub(crate) static GROUPS: &[&[Case<Cx>]] = &[
    enqueue::CASES,
    keys::CASES,
    claim::CASES,
    order::CASES,
    capability::CASES,
    token::CASES,
    settle::CASES,
    retry::CASES,
    report::CASES,
    reclaim::CASES,
    act::CASES,
    cancel::CASES,
    lane::CASES,
    link::CASES,
    batch::CASES,
    signal::CASES,
    page::CASES,
    purge::CASES,
    queue::CASES,
    node::CASES,
    lock::CASES,
    guard::CASES,
    version::CASES,
    time::CASES,
    limits::CASES,
    errors::CASES,
    migrate::CASES,
    concurrency::CASES,
    differential::CASES,
];
