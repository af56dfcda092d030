//! Keeps the known queues: their last job counts, and whether they are paused.
//!
//! Whether a queue with due jobs is paused is also read with the due routes, which are read more
//! often than the counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratchet_core::model::{DueRoute, QueueInfo, StateCounts};
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{JobState, Name};
use tokio::time::Instant;

use crate::view::{self, At, Counts};

/// The maximum age of a count of jobs. The history of pending jobs does not use an older count.
const GOOD: Duration = Duration::from_secs(300);

/// The known queues: their last job counts, and whether they are paused.
#[derive(Debug, Default)]
pub(super) struct Queues {
    counted: Option<Counted>,
    pauses: BTreeMap<Name, Pause>,
}

/// One count of the jobs of all queues.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) queues: Vec<QueueInfo>,
    pub(super) at: Timestamp,
    /// When the count began, by this process's clock.
    pub(super) began: Instant,
}

/// Whether a queue is paused, according to the latest information.
#[derive(Clone, Copy, Debug)]
struct Pause {
    paused: bool,
    /// The start of the read that found `paused`, or the time at which this API paused or resumed
    /// the queue.
    since: Instant,
    /// Whether this API paused or resumed the queue since the last count of jobs.
    made: bool,
}

impl Queues {
    /// Stores a count of the jobs of all queues.
    ///
    /// Removes the queues that the count does not contain, because they have no jobs and are not
    /// paused. Keeps such a queue if newer information about it is known.
    pub(super) fn read_counts(&mut self, counted: Counted) {
        self.pauses.retain(|_, pause| pause.since > counted.began);
        for queue in &counted.queues {
            self.learn(&queue.name, queue.paused, counted.began);
        }
        self.counted = Some(counted);
    }

    /// Stores a read of the due routes that began at `began`.
    ///
    /// Removes queues that are known only from earlier reads of due routes and no longer have due
    /// jobs. A count of jobs would remove them too, but jobs are counted only while clients read.
    pub(super) fn read_due(&mut self, routes: &[DueRoute], began: Instant) {
        for due in routes {
            self.learn(&due.route.queue, due.queue_paused, began);
        }
        let due: BTreeSet<&Name> = routes.iter().map(|due| &due.route.queue).collect();
        let counted: BTreeSet<&Name> = (self.counted.iter())
            .flat_map(|counted| &counted.queues)
            .map(|queue| &queue.name)
            .collect();
        self.pauses
            .retain(|name, pause| pause.made || due.contains(name) || counted.contains(name));
    }

    /// Records that this API has just paused or resumed a queue.
    pub(super) fn made(&mut self, queue: &Name, paused: bool) {
        if paused || self.pauses.contains_key(queue) {
            self.learn(queue, paused, time::monotonic());
            if let Some(pause) = self.pauses.get_mut(queue) {
                pause.made = true;
            }
        }
    }

    /// Records whether a queue is paused, as of the time `since`. Does nothing if newer information
    /// about the queue is known.
    fn learn(&mut self, queue: &Name, paused: bool, since: Instant) {
        let made = false;
        let new = Pause {
            paused,
            since,
            made,
        };
        let known = self.pauses.entry(queue.clone()).or_insert(new);
        if known.since <= since {
            known.paused = paused;
            known.since = since;
        }
    }

    /// Returns the last count of jobs by state, and the time of the count. If `of` is given, the
    /// count includes only this queue. `None` before the first count.
    pub(super) fn totals(&self, of: Option<&Name>) -> Option<(Counts, At)> {
        let counted = self.counted.as_ref()?;
        let mut total = StateCounts::new();
        let queues = counted.queues.iter();
        let queues = queues.filter(|queue| of.is_none_or(|name| queue.name == *name));
        for (state, count) in queues.flat_map(|queue| &queue.counts) {
            *total.entry(*state).or_insert(0) += count;
        }
        Some((Counts::from(&total), At(counted.at)))
    }

    /// Returns the number of pending jobs, or `None` if the last count is older than [`GOOD`].
    pub(super) fn pending(&self) -> Option<u64> {
        let counted = self.counted.as_ref()?;
        let is_good = counted.began.elapsed() <= GOOD;
        let pending = |queue: &QueueInfo| queue.counts.get(&JobState::Pending).copied();
        is_good.then(|| counted.queues.iter().filter_map(pending).sum())
    }

    /// Returns the queues, each with the time since its longest-overdue job became due, if this is
    /// known.
    pub(super) fn view(&self, due: Option<(&[DueRoute], Timestamp)>) -> view::Queues {
        let overdue = |name: &Name| {
            let routes = due.iter().flat_map(|(routes, _)| routes.iter());
            let of_queue = routes.filter(|due| due.route.queue == *name);
            of_queue.map(|due| view::millis(due.overdue)).max()
        };
        let counts: BTreeMap<&Name, &StateCounts> = self
            .counted
            .iter()
            .flat_map(|counted| &counted.queues)
            .map(|queue| (&queue.name, &queue.counts))
            .collect();
        let queues = self.pauses.iter().map(|(name, pause)| {
            let counts = counts.get(name).map(|counts| Counts::from(*counts));
            view::Queue::new(name.to_string(), pause.paused, counts, overdue(name))
        });
        view::Queues {
            queues: queues.collect(),
            counts_at: self.counted.as_ref().map(|counted| At(counted.at)),
            due_at: due.map(|(_, at)| At(at)),
            next: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::Route;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new("queue", text).unwrap()
    }

    fn due(queue: &str) -> DueRoute {
        let route = Route::from_texts(queue, "k", "", "").unwrap();
        DueRoute::at(route, false, 0, 0)
    }

    fn counted(queue: &str, pending: u64) -> Counted {
        let queue = QueueInfo {
            name: name(queue),
            paused: false,
            counts: StateCounts::from([(JobState::Pending, pending)]),
        };
        Counted {
            queues: vec![queue],
            at: time::from_millis(0),
            began: time::monotonic(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn queues_that_nothing_speaks_of_any_more_are_forgotten() {
        let mut queues = Queues::default();
        let names = |queues: &Queues| -> Vec<String> {
            let view = queues.view(None);
            view.queues.into_iter().map(|queue| queue.name).collect()
        };
        queues.read_counts(counted("counted", 1));
        queues.made(&name("made"), true);
        queues.read_due(&[due("a"), due("b")], time::monotonic());
        assert_eq!(names(&queues), ["a", "b", "counted", "made"]);
        queues.read_due(&[due("b")], time::monotonic());
        assert_eq!(names(&queues), ["b", "counted", "made"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_count_says_nothing_of_the_moment() {
        let mut queues = Queues::default();
        assert_eq!(queues.pending(), None);
        queues.read_counts(counted("a", 3));
        assert_eq!(queues.pending(), Some(3));
        tokio::time::advance(GOOD + Duration::from_secs(1)).await;
        assert_eq!(queues.pending(), None);
        assert!(queues.totals(None).is_some());
    }
}
