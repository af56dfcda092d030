//! Judges a round by the rows of the database and the notes of the bodies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::Ordering;

use super::duty::{Begun, Body, Duty, KINDS, begun};
use super::scene::{ENDPOINTS, Event, LANES, Scene};

/// The rows that the judge needs.
#[derive(Default)]
pub(crate) struct Stored {
    /// The jobs by id.
    pub(crate) jobs: BTreeMap<String, Row>,
    pub(crate) ends: Vec<End>,
    /// The number of jobs that ended more than once.
    pub(crate) ended_again: usize,
}

/// A stored job.
pub(crate) struct Row {
    pub(crate) ended: bool,
    pub(crate) running: bool,
    pub(crate) created_at: i64,
    pub(crate) finished_at: Option<i64>,
    pub(crate) crashes: i64,
    /// The queue and kind of the job's route. `None` means that the route does not exist.
    pub(crate) route: Option<(String, String)>,
    pub(crate) duty: Duty,
}

/// The end of a claim, as stored, with the text that its body wrote.
pub(crate) struct End {
    /// The worker that held the claim according to the database, if its node is known.
    pub(crate) holder: Option<String>,
    pub(crate) claimed_at: i64,
    /// The body that ended the claim, according to its own result or error.
    pub(crate) body: Body,
}

impl End {
    /// Returns whether the body ran under another claim: on another worker, or before this claim.
    fn is_stale(&self) -> bool {
        let another = self
            .holder
            .as_ref()
            .is_some_and(|holder| *holder != self.body.worker);
        another || self.body.began < self.claimed_at
    }
}

/// The figures of one or more rounds.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    rounds: usize,
    acknowledged: usize,
    /// The jobs that the old server acknowledged, and that were missing on the new one at
    /// promotion.
    left_behind: usize,
    refused: u64,
    longest_ms: u64,
    lost: usize,
    /// The number of ends that were examined.
    ends: usize,
    stale: usize,
    ended_again: usize,
    stuck: usize,
    /// The stuck jobs that are stored as running.
    stuck_running: usize,
    crashes: i64,
    wrong: usize,
    unrouted: usize,
    equal_terms: usize,
    ended_workers: usize,
    /// The longest time in milliseconds until everything ran again. `None` means that a worker, a
    /// kind or a lane never ran again.
    runs_again: Option<u64>,
    /// The time in milliseconds from the fault until all jobs that were stored before the fault had
    /// ended. Jobs that never ended do not count.
    last_end: u64,
}

impl Figures {
    pub(crate) fn of(scene: &mut Scene, event: &Event, stored: &Stored) -> Self {
        let acknowledged = scene.ledger.acknowledged.lock().unwrap();
        let begun = begun(&scene.order.notes);
        let present = |id: &String| event.present.as_ref().is_none_or(|ids| ids.contains(id));
        let (mut left_behind, mut lost) = (0, 0);
        for answer in &*acknowledged {
            let id = answer.job.to_string();
            let later = answer
                .endpoint
                .is_none_or(|place| answer.asked >= event.moved[place]);
            if !present(&id) && !later {
                left_behind += 1;
            } else if !stored.jobs.contains_key(&id) {
                lost += 1;
            }
        }
        let rows = stored.jobs.iter();
        let misrouted = rows.filter(|(_, row)| {
            let duty = (row.duty.queue.clone(), row.duty.kind.clone());
            row.route.as_ref().is_some_and(|route| *route != duty)
        });
        let ran_wrong = begun.iter().filter(|begun| begun.wrong);
        let wrong: BTreeSet<&String> = misrouted
            .map(|(id, _)| id)
            .chain(ran_wrong.map(|begun| &begun.job))
            .collect();
        let rows = || stored.jobs.values();
        let figures = Self {
            rounds: 1,
            acknowledged: acknowledged.len(),
            left_behind,
            refused: scene.ledger.refused.load(Ordering::Relaxed),
            longest_ms: scene.ledger.longest_ms.load(Ordering::Relaxed),
            lost,
            ends: stored.ends.len(),
            stale: stored.ends.iter().filter(|end| end.is_stale()).count(),
            ended_again: stored.ended_again,
            stuck: rows().filter(|row| !row.ended).count(),
            stuck_running: rows().filter(|row| row.running).count(),
            crashes: rows().map(|row| row.crashes).sum(),
            wrong: wrong.len(),
            unrouted: rows().filter(|row| row.route.is_none()).count(),
            equal_terms: equals(&scene.ledger.fences.lock().unwrap()),
            ended_workers: 0,
            runs_again: all_began(&begun, event.since),
            last_end: last_end(stored, event.since),
        };
        drop(acknowledged);
        Self {
            ended_workers: scene.ended_workers(),
            ..figures
        }
    }

    pub(crate) fn add(&mut self, round: &Self) {
        let first = self.rounds == 0;
        self.rounds += round.rounds;
        self.acknowledged += round.acknowledged;
        self.left_behind += round.left_behind;
        self.refused += round.refused;
        self.longest_ms = self.longest_ms.max(round.longest_ms);
        self.lost += round.lost;
        self.ends += round.ends;
        self.stale += round.stale;
        self.ended_again += round.ended_again;
        self.stuck += round.stuck;
        self.stuck_running += round.stuck_running;
        self.crashes += round.crashes;
        self.wrong += round.wrong;
        self.unrouted += round.unrouted;
        self.equal_terms += round.equal_terms;
        self.ended_workers += round.ended_workers;
        self.last_end = self.last_end.max(round.last_end);
        self.runs_again = match (first, self.runs_again, round.runs_again) {
            (true, _, again) => again,
            (false, Some(one), Some(other)) => Some(one.max(other)),
            (false, ..) => None,
        };
    }

    /// Returns whether all figures are as required. `refusable` limits the failed calls of a round.
    pub(crate) fn is_clean(&self, refusable: Option<u64>) -> bool {
        let most = refusable.map(|calls| calls * self.rounds as u64);
        self.lost + self.stale + self.ended_again + self.stuck + self.wrong + self.unrouted == 0
            && self.equal_terms + self.ended_workers == 0
            && self.crashes == 0
            && self.ends > 0
            && most.is_none_or(|most| self.refused <= most)
            && self.runs_again.is_some()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rounds, {} jobs acknowledged ({} left behind), {} calls refused (longest {} ms); \
             lost {}, stale ends {} of {}, double ends {}, stuck {} ({} running), crash counts {}, \
             wrong kinds {}, without a route {}, equal terms {}, workers ended {}; everything ran \
             again ",
            self.rounds,
            self.acknowledged,
            self.left_behind,
            self.refused,
            self.longest_ms,
            self.lost,
            self.stale,
            self.ends,
            self.ended_again,
            self.stuck,
            self.stuck_running,
            self.crashes,
            self.wrong,
            self.unrouted,
            self.equal_terms,
            self.ended_workers
        )?;
        match self.runs_again {
            Some(ms) => write!(f, "after {ms} ms")?,
            None => write!(f, "never")?,
        }
        write!(
            f,
            "; the last job stored before the fault ended after {} ms",
            self.last_end
        )
    }
}

/// Returns the milliseconds from `since` until all jobs that were stored before `since` had ended.
/// Ignores jobs that never ended.
fn last_end(stored: &Stored, since: i64) -> u64 {
    let before = stored.jobs.values().filter(|row| row.created_at < since);
    let last = before.filter_map(|row| row.finished_at).max();
    last.map_or(0, |last| (last - since).max(0).cast_unsigned())
}

/// Returns how many of the numbers repeat an earlier one.
fn equals(numbers: &[u64]) -> usize {
    let different: BTreeSet<_> = numbers.iter().collect();
    numbers.len() - different.len()
}

/// Returns the milliseconds from the fault until everything ran again.
pub(crate) fn runs_again(scene: &Scene, event: &Event) -> Option<u64> {
    all_began(&begun(&scene.order.notes), event.since)
}

/// Returns the milliseconds from `since` until each worker, each kind and each lane had begun a
/// body.
fn all_began(begun: &[Begun], since: i64) -> Option<u64> {
    let mut waiting: BTreeSet<String> = (1..ENDPOINTS).map(|n| format!("worker-{n}")).collect();
    waiting.extend(KINDS.map(str::to_owned));
    waiting.extend((0..LANES).map(|n| format!("lane-{n}")));
    let mut last = since;
    let mut later: Vec<&Begun> = begun.iter().filter(|b| b.body.began >= since).collect();
    later.sort_by_key(|begun| begun.body.began);
    for begun in later {
        let keys = [
            Some(&begun.body.worker),
            Some(&begun.kind),
            begun.lane.as_ref(),
        ];
        for key in keys.into_iter().flatten() {
            if waiting.remove(key) {
                last = begun.body.began;
            }
        }
    }
    waiting.is_empty().then(|| (last - since).cast_unsigned())
}

/// Checks that the judge rejects each kind of wrong figure.
pub(crate) fn check_itself() {
    let body = |worker: &str, began| Body {
        worker: worker.to_owned(),
        began,
    };
    let end = |holder: &str, claimed_at, body| End {
        holder: Some(holder.to_owned()),
        claimed_at,
        body,
    };
    assert!(!end("a", 5, body("a", 5)).is_stale());
    assert!(end("a", 5, body("b", 6)).is_stale());
    assert!(end("a", 5, body("a", 4)).is_stale());
    assert_eq!(equals(&[1, 2, 3, 2, 3]), 2);
    let ran = |worker: usize, kind: usize, lane: usize, began| Begun {
        job: String::new(),
        kind: KINDS[kind % KINDS.len()].to_owned(),
        lane: Some(format!("lane-{lane}")),
        body: body(&format!("worker-{worker}"), began),
        wrong: false,
    };
    let all: Vec<Begun> = (0..LANES)
        .map(|n| ran(n % (ENDPOINTS - 1) + 1, n, n, 100))
        .collect();
    assert_eq!(all_began(&all, 90), Some(10));
    assert_eq!(all_began(&all, 101), None);
    assert_eq!(all_began(&all[1..], 90), None);
}
