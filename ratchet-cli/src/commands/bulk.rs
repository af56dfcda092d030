//! Actions of `ratchet jobs` on jobs given by id, and on all jobs that match a filter.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet::store_api::model::PurgeRequest;
use ratchet::store_api::time;
use ratchet::{
    ActionOutcome, BulkCounts, Client, Detail, Guarded, JobAction, JobFilter, JobId, JobOrder,
    JobSelector, JobState, PageRequest, Response, Timestamp,
};
use ratchet_http::view;
use serde::Serialize;

use super::jobs::absent;
use crate::app::App;
use crate::args::{Bulk, Purge};
use crate::confirm::confirm;
use crate::exit::{Failure, Verdict};
use crate::interruptible;
use crate::output::{Table, number, since};

/// Number of jobs after which the command stops counting the matching jobs. The confirmation
/// question shows the count.
const LOOK: usize = 1_000;
/// Maximum number of jobs that one call reads or deletes.
const PAGE: usize = 200;
/// Maximum number of job ids in one call.
const IDS: usize = 500;

#[derive(Serialize)]
struct Acted {
    jobs: Vec<One>,
}

#[derive(Serialize)]
struct One {
    id: String,
    /// The outcome of the action for this job: `became`, `cancel_requested`, `changed`, `deleted`,
    /// `refused`, `key_taken`, `not_found` or `other`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<view::State>,
}

#[derive(Serialize)]
struct Purged {
    deleted: BTreeMap<String, u64>,
    complete: bool,
}

/// Asks for confirmation, and then deletes the jobs with these ids. A deletion cannot be undone.
pub(super) async fn delete_named(app: &mut App, ids: &[JobId], yes: bool) -> Result<(), Failure> {
    let noun = if ids.len() == 1 { "job" } else { "jobs" };
    confirm(&format!("delete {} {noun}", ids.len()), yes).await?;
    act_on(app, ids, JobAction::Delete).await
}

pub(super) async fn cancel(app: &mut App, ids: &[JobId], bulk: Bulk) -> Result<(), Failure> {
    let selects = bulk.all || bulk.filter.read()? != JobFilter::all();
    if !ids.is_empty() && bulk.limit.is_some() {
        return Err(Failure::usage("--limit cannot be combined with ids")
            .remedy("Leave out --limit: the action applies to exactly the given ids."));
    }
    match (ids.is_empty(), selects) {
        (false, true) => Err(
            Failure::usage("ids cannot be combined with a filter or --all")
                .remedy("Give either ids, or --state, --queue, --kind, --tag, --batch or --all."),
        ),
        (false, false) => act_on(app, ids, JobAction::Cancel).await,
        (true, _) => act_on_all(app, &bulk, JobAction::Cancel, "cancel").await,
    }
}

pub(super) async fn requeue(app: &mut App, bulk: Bulk) -> Result<(), Failure> {
    act_on_all(app, &bulk, JobAction::Requeue, "requeue").await
}

/// Applies the action to the jobs with these ids, and prints the outcome for each job. After a
/// failure or Ctrl-C, prints the outcomes so far.
pub(super) async fn act_on(app: &mut App, ids: &[JobId], action: JobAction) -> Result<(), Failure> {
    let client = interruptible(app.client()).await?;
    let mut acted = Vec::with_capacity(ids.len());
    let work = async {
        for ids in ids.chunks(IDS) {
            acted.extend(client.act(&JobSelector::Ids(ids.to_vec()), action).await?);
        }
        Ok::<(), Failure>(())
    };
    let ended = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(Failure::interrupted(
            "interrupted; finished actions stay in effect, and the one in progress may take effect",
        )),
        ended = work => ended,
    };
    if ended.is_err() && acted.is_empty() {
        return ended;
    }
    let (mut jobs, mut refused) = (Vec::with_capacity(acted.len()), Ok(()));
    for acted in acted {
        let (one, problem) = tell(acted.job, acted.outcome);
        jobs.push(one);
        refused = refused.and(problem.map_or(Ok(()), Err));
    }
    // A failure that ended the command takes precedence over the refusal of a single job.
    ended.and(refused).told(tell_acted(app, jobs))
}

fn tell_acted(app: &mut App, jobs: Vec<One>) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.document(&Acted { jobs });
    }
    let mut table = Table::plain(3);
    for one in jobs {
        let state = one.state.map_or(String::new(), |state| state.to_string());
        table.row([
            one.id.into(),
            one.outcome.replace('_', " ").into(),
            state.into(),
        ]);
    }
    app.out.table(&table, "")
}

fn tell(id: JobId, outcome: ActionOutcome) -> (One, Option<Failure>) {
    let (word, state, failure) = match outcome {
        ActionOutcome::Became(state) => ("became", Some(state), None),
        ActionOutcome::CancelRequested => ("cancel_requested", Some(JobState::Running), None),
        ActionOutcome::Changed => ("changed", None, None),
        ActionOutcome::Deleted => ("deleted", None, None),
        ActionOutcome::Refused(state) => {
            let problem = format!("job {id} is {state}; this action does not apply");
            ("refused", Some(state), Some(Failure::refused(problem)))
        }
        ActionOutcome::KeyTaken(other) => {
            let problem = format!("the unfinished job {other} has the unique key of job {id}");
            ("key_taken", None, Some(Failure::refused(problem)))
        }
        ActionOutcome::NotFound => ("not_found", None, Some(absent(id))),
        _ => ("other", None, None),
    };
    let one = One {
        id: id.to_string(),
        outcome: word,
        state: state.map(view::State::from),
    };
    (one, failure)
}

/// Asks for confirmation, and then applies the action to the jobs that match the filter and whose
/// state allows the action.
async fn act_on_all(
    app: &mut App,
    bulk: &Bulk,
    action: JobAction,
    verb: &str,
) -> Result<(), Failure> {
    let mut filter = bulk.filter.read()?;
    if filter == JobFilter::all() && !bulk.all {
        return Err(Failure::usage(format!(
            "neither a filter nor --all selects the jobs to {verb}"
        ))
        .remedy("Give --state, --queue, --kind, --tag or --batch, or --all for every job."));
    }
    filter.states = filter.wanted_states();
    filter
        .states
        .retain(|state| state.respond(action) != Response::Refuse);
    if filter.states.is_empty() {
        return Err(Failure::refused(format!(
            "the action {verb} does not apply to jobs in the states given with --state"
        ))
        .remedy("Leave out --state: only jobs whose state allows the action are changed."));
    }
    let client = app.client().await?;
    let found = look(&client, &filter, |_| true).await?;
    if found.is_nothing() {
        return done(app, BulkCounts::default(), true);
    }
    let words = found.words(bulk.limit);
    confirm(&format!("{verb} {words}"), bulk.yes).await?;
    let limit = found.agreed(bulk.limit, bulk.yes);
    let mut work = client.bulk(filter, action, limit);
    let ended = tokio::select! {
        ended = work.run() => Some(ended),
        _ = tokio::signal::ctrl_c() => None,
    };
    let (counts, complete) = (work.counts(), work.is_complete());
    let ended = match ended {
        Some(ended) => ended.map(drop).map_err(Failure::from),
        None => Err(Failure::interrupted(
            "interrupted; finished passes stay in effect, and one more may have taken effect",
        )),
    };
    ended.told(done(app, counts, complete))
}

fn done(app: &mut App, counts: BulkCounts, complete: bool) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.document(&view::BulkDone {
            changed: counts.changed,
            cancel_requested: counts.cancel_requested,
            key_taken: counts.key_taken,
            complete,
            ..view::BulkDone::default()
        });
    }
    app.out
        .line(format_args!("{} changed", number(counts.changed)))?;
    let others = [
        (
            counts.cancel_requested,
            "running jobs whose cancellation is now requested",
        ),
        (
            counts.key_taken,
            "not changed, because an unfinished job has their unique key",
        ),
    ];
    for (count, what) in others {
        if count > 0 {
            app.out.line(format_args!("{} {what}", number(count)))?;
        }
    }
    match complete {
        true => Ok(()),
        false => app.out.line("More matching jobs may be left."),
    }
}

/// The number of jobs that match a filter, in total and by kind. The numbers are lower bounds if
/// `more` is true.
struct Found {
    count: u64,
    more: bool,
    kinds: BTreeMap<String, u64>,
}

impl Found {
    /// Returns whether all jobs were checked and no job matches.
    const fn is_nothing(&self) -> bool {
        self.count == 0 && !self.more
    }

    /// Returns the maximum number of jobs that the action may change. It never exceeds `limit`. If
    /// the user confirmed an exact count, it does not exceed that count either.
    fn agreed(&self, limit: Option<u64>, yes: bool) -> u64 {
        let limit = limit.unwrap_or(u64::MAX);
        match yes || self.more {
            true => limit,
            false => limit.min(self.count),
        }
    }

    /// Returns the count as a text for the confirmation question, such as `at least 1,000 jobs
    /// (mail 900, report 100)` or `at most 2 of 3 jobs (mail 3)`.
    fn words(&self, limit: Option<u64>) -> String {
        let most = limit.filter(|limit| self.more || *limit < self.count);
        let most = most.map_or(String::new(), |most| {
            format!("at most {} of ", number(most))
        });
        if self.count == 0 {
            return format!("{most}jobs (none among the 1,000 oldest)");
        }
        let bound = if self.more { "at least " } else { "" };
        let noun = if self.count == 1 { "job" } else { "jobs" };
        let mut kinds: Vec<(&String, &u64)> = self.kinds.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let rest = kinds.len().saturating_sub(3);
        let mut words: Vec<String> = kinds
            .iter()
            .take(3)
            .map(|(kind, count)| format!("{kind} {}", number(**count)))
            .collect();
        if rest > 0 {
            words.push(format!("{rest} other kinds"));
        }
        format!(
            "{most}{bound}{} {noun} ({})",
            number(self.count),
            words.join(", ")
        )
    }
}

/// Counts the jobs that match the filter and for which `also` returns true. Reads the oldest jobs
/// first, and stops after about [`LOOK`] jobs.
async fn look(
    client: &Client,
    filter: &JobFilter,
    also: impl Fn(&ratchet::JobRecord) -> bool,
) -> Result<Found, Failure> {
    let mut found = Found {
        count: 0,
        more: false,
        kinds: BTreeMap::new(),
    };
    let (mut after, mut looked) = (None, 0);
    loop {
        let page = PageRequest::first(PAGE)
            .order(JobOrder::OldestFirst)
            .after(after)
            .detail(Detail::Outline);
        let page = client.list(filter, &page).await?;
        looked += page.jobs.len();
        for job in page.jobs.iter().filter(|job| also(job)) {
            found.count += 1;
            *found
                .kinds
                .entry(job.spec.route.kind.to_string())
                .or_default() += 1;
        }
        after = page.next;
        found.more = after.is_some();
        if !found.more || looked >= LOOK {
            return Ok(found);
        }
    }
}

/// Asks for confirmation, and then deletes the jobs that ended more than a given time ago.
pub(super) async fn purge(app: &mut App, purge: Purge) -> Result<(), Failure> {
    let states = ended_states(&purge)?;
    let client = app.client().await?;
    let now = client.database_time().await?;
    let mut filter = JobFilter::all();
    filter.states.clone_from(&states);
    let old = |job: &ratchet::JobRecord| is_old(job.finished_at, purge.older_than, now);
    let found = look(&client, &filter, old).await?;
    let mut purged = Purged {
        deleted: states.iter().map(|state| (state.to_string(), 0)).collect(),
        complete: false,
    };
    if found.is_nothing() {
        purged.complete = true;
        return tell_purged(app, &purged);
    }
    let (words, age) = (found.words(purge.limit), since(purge.older_than));
    confirm(
        &format!("delete {words} that ended more than {age} ago"),
        purge.yes,
    )
    .await?;
    let limit = found.agreed(purge.limit, purge.yes);
    let ended = tokio::select! {
        ended = delete(&client, &states, &purge, limit, &mut purged) => ended,
        _ = tokio::signal::ctrl_c() => Err(Failure::interrupted(
            "interrupted; deleted jobs stay deleted",
        )),
    };
    ended.told(tell_purged(app, &purged))
}

fn tell_purged(app: &mut App, purged: &Purged) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.document(purged);
    }
    let total: u64 = purged.deleted.values().sum();
    app.out.line(format_args!("{} deleted", number(total)))
}

fn ended_states(purge: &Purge) -> Result<Vec<JobState>, Failure> {
    let states: Vec<JobState> = purge.state.iter().map(|state| state.read()).collect();
    match states.iter().find(|state| !state.is_terminal()) {
        Some(state) => Err(Failure::usage(format!(
            "cannot purge jobs that are {state}: they have not ended"
        ))
        .remedy(
            "Give --state succeeded, failed or cancelled. Unfinished jobs must be cancelled first.",
        )),
        None if states.is_empty() => {
            let ended = JobState::ALL
                .into_iter()
                .filter(|state| state.is_terminal());
            Ok(ended.collect())
        }
        None => Ok(states),
    }
}

fn is_old(finished: Option<Timestamp>, age: Duration, now: Timestamp) -> bool {
    finished.is_some_and(|at| time::add(at, age) < now)
}

async fn delete(
    client: &Client,
    states: &[JobState],
    purge: &Purge,
    limit: u64,
    purged: &mut Purged,
) -> Result<(), Failure> {
    let mut left = limit;
    for state in states {
        let count = purged.deleted.entry(state.to_string()).or_default();
        while left > 0 {
            let pass = usize::try_from(left).unwrap_or(PAGE).min(PAGE);
            let request = PurgeRequest::new(*state, purge.older_than, pass);
            let Guarded::Done(deleted) = client.store().jobs().purge(&request).await? else {
                break;
            };
            *count += deleted;
            left -= deleted.min(left);
            if deleted == 0 {
                break;
            }
        }
    }
    purged.complete = left > 0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_said_in_words() {
        let kinds = [("a", 5), ("b", 3), ("c", 2), ("d", 1), ("e", 1)];
        let kinds = kinds.map(|(kind, count)| (kind.to_owned(), count));
        let found = Found {
            count: 1_012,
            more: true,
            kinds: kinds.into(),
        };
        assert_eq!(
            found.words(None),
            "at least 1,012 jobs (a 5, b 3, c 2, 2 other kinds)"
        );
        let words = found.words(Some(7));
        assert!(
            words.starts_with("at most 7 of at least 1,012 jobs ("),
            "{words}"
        );
        assert_eq!(
            (found.agreed(None, false), found.agreed(Some(7), true)),
            (u64::MAX, 7)
        );
    }

    #[test]
    fn no_more_is_done_than_was_agreed_to() {
        let found = Found {
            count: 3,
            more: false,
            kinds: [("a".to_owned(), 3)].into(),
        };
        assert_eq!(found.words(Some(2)), "at most 2 of 3 jobs (a 3)");
        assert_eq!(found.words(Some(3)), "3 jobs (a 3)");
        assert_eq!(
            (found.agreed(None, false), found.agreed(Some(2), false)),
            (3, 2)
        );
        assert_eq!(found.agreed(None, true), u64::MAX);
    }
}
