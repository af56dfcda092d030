//! Suspects: jobs that were lost with their node before, and may be what killed it.
//!
//! A body of such a job begins only after the store knows that it does, so that a further loss
//! counts against the jobs that were running and no others. From
//! [`Config::isolate_from`](super::config::Config::isolate_from) losses on, at most one of them
//! runs on a node at a time: then a job that kills its process kills it alone, and uses up its own
//! crash budget only.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use super::ready::Ready;

/// The suspects of a node that wait for each other. They do not count as held, so that they keep
/// no other job from being claimed.
#[derive(Default)]
pub(super) struct Suspects(Mutex<Line>);

#[derive(Default)]
struct Line {
    busy: bool,
    waiting: VecDeque<Ready>,
}

impl Suspects {
    /// Lets a suspect run if no other does; otherwise it waits here.
    pub(super) fn admit(&self, suspect: Ready) -> Option<Ready> {
        let mut line = self.line();
        if line.busy {
            line.waiting.push_back(suspect);
            return None;
        }
        line.busy = true;
        Some(suspect)
    }

    /// The one that was running has ended: the next, if one waits.
    pub(super) fn next(&self) -> Option<Ready> {
        let mut line = self.line();
        let next = line.waiting.pop_front();
        line.busy = next.is_some();
        next
    }

    /// Takes those that wait.
    pub(super) fn take_all(&self) -> Vec<Ready> {
        self.line().waiting.drain(..).collect()
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}
