//! What is known of the queues: their jobs when they were last counted, and whether they are paused,
//! which is read more often of those that have jobs that are due.

use std::collections::BTreeMap;

use ratchet_core::Name;
use ratchet_core::model::{DueRoute, QueueInfo, StateCounts};
use ratchet_core::time::{self, Timestamp};
use tokio::time::Instant;

use crate::view::{self, At, Counts};

/// The queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    counted: Option<Counted>,
    pauses: BTreeMap<Name, Pause>,
}

/// The jobs of all queues, counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) queues: Vec<QueueInfo>,
    pub(super) at: Timestamp,
    /// This process's clock when the counting began.
    pub(super) began: Instant,
}

/// The last word on whether a queue is paused.
#[derive(Clone, Copy, Debug)]
struct Pause {
    paused: bool,
    /// When it was asked, or made so here.
    since: Instant,
}

impl Queues {
    /// Takes in the jobs of all queues. Those that are not among them have no jobs and are not paused.
    pub(super) fn read_counts(&mut self, counted: Counted) {
        self.pauses.retain(|_, pause| pause.since > counted.began);
        for queue in &counted.queues {
            self.learn(&queue.name, queue.paused, counted.began);
        }
        self.counted = Some(counted);
    }

    /// Takes in what is due, asked for at this time.
    pub(super) fn read_due(&mut self, routes: &[DueRoute], began: Instant) {
        for due in routes {
            self.learn(&due.route.queue, due.paused, began);
        }
    }

    /// Takes in that a queue was paused or resumed here, just now.
    pub(super) fn made(&mut self, queue: &Name, paused: bool) {
        if paused || self.pauses.contains_key(queue) {
            self.learn(queue, paused, time::monotonic());
        }
    }

    /// Takes in that a queue is paused or not, as was asked at this time. What was asked before what is
    /// known is no news.
    fn learn(&mut self, queue: &Name, paused: bool, since: Instant) {
        let pause = Pause { paused, since };
        let known = self.pauses.entry(queue.clone()).or_insert(pause);
        if known.since <= since {
            *known = pause;
        }
    }

    /// All jobs by state, and when they were counted; none: they were not yet.
    pub(super) fn totals(&self) -> Option<(Counts, At)> {
        let counted = self.counted.as_ref()?;
        let mut total = StateCounts::new();
        for (state, count) in counted.queues.iter().flat_map(|queue| &queue.counts) {
            *total.entry(*state).or_insert(0) += count;
        }
        Some((Counts::from(&total), At(counted.at)))
    }

    /// The queues, with how late each is as far as that is known.
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
        }
    }
}
