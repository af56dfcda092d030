//! The cases for stores, one file per group.

mod prelude;

mod act;
mod archive;
mod batch;
mod cancel;
mod capability;
mod claim;
mod concurrency;
mod conditions;
mod conflict;
mod diag;
mod differential;
mod enqueue;
mod errors;
mod expiry;
mod fair;
mod fair_limit;
mod given_up;
mod guard;
mod keys;
mod lane;
mod limits;
mod link;
mod link_race;
mod lock;
mod migrate;
mod node;
mod order;
mod page;
mod permit;
mod purge;
mod queue;
mod queues;
mod rate;
mod reclaim;
mod recurring;
mod recurring_fire;
mod report;
mod restart;
mod retry;
mod rewind;
mod settle;
mod signal;
mod tag;
mod time;
mod token;
mod version;
mod within;

pub(crate) use differential::HISTORIES;

use crate::{Case, Cx};

/// Opens the store, and checks that the store has exactly the powers that the suite was given. If
/// this case fails, every other case would fail too.
pub(crate) static SETUP: Case<Cx> = Case {
    group: "setup",
    name: "the_store_can_be_opened_and_has_the_powers_of_its_suite",
    clauses: &[],
    needs: &[],
    body: |cx| {
        Box::pin(async move {
            cx.node().await;
        })
    },
};

/// All groups of cases for stores.
pub(crate) static GROUPS: &[&[Case<Cx>]] = &[
    enqueue::CASES,
    keys::CASES,
    conflict::CASES,
    within::CASES,
    claim::CASES,
    order::CASES,
    capability::CASES,
    token::CASES,
    settle::CASES,
    retry::CASES,
    report::CASES,
    reclaim::CASES,
    given_up::CASES,
    act::CASES,
    cancel::CASES,
    diag::CASES,
    lane::CASES,
    permit::CASES,
    rate::CASES,
    link::CASES,
    link_race::CASES,
    conditions::CASES,
    batch::CASES,
    signal::CASES,
    expiry::CASES,
    restart::CASES,
    rewind::CASES,
    page::CASES,
    purge::CASES,
    tag::CASES,
    archive::CASES,
    queue::CASES,
    queues::CASES,
    node::CASES,
    lock::CASES,
    guard::CASES,
    version::CASES,
    recurring::CASES,
    recurring_fire::CASES,
    time::CASES,
    limits::CASES,
    errors::CASES,
    fair::CASES,
    fair_limit::CASES,
    migrate::CASES,
    concurrency::CASES,
    differential::CASES,
];
