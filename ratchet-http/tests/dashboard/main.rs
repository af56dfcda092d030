//! Tests of the dashboard in headless Chromium, with a running node, on every available store.
//!
//! | variable | meaning |
//! |---|---|
//! | `RATCHET_TEST_CHROMIUM` | the path of the browser; if unset, the usual names are searched on the `PATH` |
//! | `RATCHET_TEST_POSTGRES_URL` | the URL of the server; if unset, the cases on PostgreSQL are ignored |
//! | `RATCHET_REQUIRE` | a list of `chromium` and `postgres`, or `1` for both: cases that need one fail, instead of being ignored, if it is not available |
//! | `RATCHET_DASHBOARD_PICTURES` | the directory for the screenshots of the documentation; if unset, none are taken |
//!
//! The tests control the browser with the DevTools protocol over a WebSocket, without a crate for
//! it: such crates compile the whole protocol, which is a hundred thousand lines, and the tests use
//! only a dozen of its methods.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod actions;
mod browser;
mod hostile;
mod jobs;
mod live;
mod many;
mod outage;
mod page;
mod pages;
mod pictures;
mod reach;
mod sources;
mod stage;
mod stores;

use std::env;
use std::process::ExitCode;

use futures_util::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Trial};
use ratchet_conformance::is_required;

use crate::stage::Stage;
use crate::stores::Store;

type Body = for<'a> fn(&'a mut Stage) -> BoxFuture<'a, anyhow::Result<()>>;

/// A case, and whether it runs on every store.
struct Case {
    name: &'static str,
    body: Body,
    everywhere: bool,
}

macro_rules! case {
    ($name:literal, $body:path, $everywhere:literal) => {
        Case {
            name: $name,
            body: |stage| Box::pin($body(stage)),
            everywhere: $everywhere,
        }
    };
}

const CASES: [Case; 31] = [
    case!("every page shows what is stored", pages::every_page, true),
    case!(
        "jobs are filtered and paged by the address",
        pages::filters,
        true
    ),
    case!(
        "a workflow is read again when a job in it moves on",
        pages::lineage,
        false
    ),
    case!(
        "every action on a job is seen in the store",
        actions::on_jobs,
        true
    ),
    case!(
        "chosen jobs and all that match are acted on",
        actions::in_bulk,
        true
    ),
    case!(
        "queues, recurring jobs, batches and nodes are acted on",
        actions::on_others,
        true
    ),
    case!("text from jobs is text", hostile::text_is_text, true),
    case!("rows change while one looks", live::rows_change, true),
    case!(
        "a thousand updates a second freeze nothing",
        live::flood,
        true
    ),
    case!(
        "a thousand jobs a second through the server freeze nothing",
        live::flood_of_jobs,
        true
    ),
    case!(
        "a server that went away and came back is found again",
        live::reconnects,
        false
    ),
    case!(
        "without an authorizer nothing can be pressed",
        reach::read_only,
        false
    ),
    case!("problems of the API are shown", reach::problems, false),
    case!("small limits break no page", reach::small_limits, false),
    case!("everything is reached by keys", reach::keys, false),
    case!(
        "a phone shows every page without scrolling sideways",
        reach::phone,
        false
    ),
    case!(
        "light and dark are readable and remembered",
        reach::colours,
        false
    ),
    case!(
        "without a live node a red line says that nothing runs",
        outage::nothing_runs,
        false
    ),
    case!(
        "silent and dead nodes are red, on the overview too",
        outage::lost_nodes,
        false
    ),
    case!(
        "a failed read shows neither nothing nor a green lamp",
        outage::failed_reads,
        false
    ),
    case!(
        "a bulk action says how many jobs match before it asks",
        many::matching,
        true
    ),
    case!("state filters show counts", many::counts, true),
    case!(
        "a slow count is neither repeated nor kept for another filter",
        many::one_count_at_a_time,
        false
    ),
    case!("queue and kind filters suggest names", many::names, false),
    case!(
        "a large fan-out collapses and the job itself is in view",
        many::fan_out,
        false
    ),
    case!(
        "equal dead letters are grouped with a count",
        many::dead_letters,
        true
    ),
    case!(
        "the earlier error of a job that succeeded is labelled",
        pages::earlier_error,
        false
    ),
    case!(
        "the plot of depths says where nothing was counted",
        pages::uncounted,
        false
    ),
    case!(
        "text from jobs is isolated for bidirectional scripts",
        hostile::scripts_are_isolated,
        false
    ),
    case!(
        "long labels of nodes push no column away",
        reach::long_labels,
        false
    ),
    case!("the pictures of the documentation", pictures::take, false),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let browser = browser::find();
    let mut trials = sources::trials();
    for case in &CASES {
        trials.push(trial(case, Store::sqlite(), browser.as_ref().err()));
        if case.everywhere {
            trials.push(trial(case, Store::postgres(), browser.as_ref().err()));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(case: &'static Case, store: Store, no_browser: Option<&String>) -> Trial {
    let name = format!("{}::{}", store.name(), case.name);
    let pictures = case.name.contains("pictures") && env::var_os(pictures::DIRECTORY).is_none();
    let missing = match (no_browser, store.missing()) {
        _ if pictures => Some((format!("{} is not set", pictures::DIRECTORY), false)),
        (Some(reason), _) => Some((reason.clone(), is_required("chromium"))),
        (None, Some(reason)) => Some((reason, is_required(store.name()))),
        (None, None) => None,
    };
    match missing {
        Some((reason, false)) => {
            let why = reason.clone();
            Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why)))
                .with_kind(reason)
                .with_ignored_flag(true)
        }
        Some((reason, true)) => {
            Trial::test(name, move || Err(format!("required, but {reason}").into()))
        }
        None => Trial::test(name, move || {
            stage::run(&store, case.body).map_err(Into::into)
        }),
    }
}
