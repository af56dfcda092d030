//! Logs failed attempts and dead letters, rate-limited so that mass failures do not flood the log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::hooks::NodeHook;
use crate::id::NodeId;
use crate::model::{Claim, Outcome, Settlement};
use crate::name::Name;
use crate::time;

/// The most lines of one kind and level that are logged per [`WINDOW`].
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Logs each failed attempt as a warning and each dead letter as an error, at most [`LINES`] of a
/// kind and level per [`WINDOW`]. The first line after that carries the number of suppressed lines.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    windows: Mutex<HashMap<(Name, Level), Window>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Level {
    FailedAttempt,
    DeadLetter,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    lines: u32,
    suppressed: u64,
}

impl Window {
    /// Returns the number of lines suppressed before this one, if a line may be logged at `now`;
    /// otherwise `None`.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.began) >= WINDOW {
            (self.began, self.lines) = (now, 0);
        }
        if self.lines == LINES {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl FailureLog {
    fn admit(&self, kind: &Name, level: Level) -> Option<u64> {
        let now = time::monotonic();
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows
            .entry((kind.clone(), level))
            .or_insert_with(|| Window {
                began: now,
                lines: 0,
                suppressed: 0,
            });
        window.admit(now)
    }
}

impl NodeHook for FailureLog {
    fn job_ended(&self, claim: &Claim, end: &Settlement) {
        let (kind, queue) = (&claim.route.kind, &claim.route.queue);
        let id = claim.token.job;
        let attempt = claim.attempts + end.effect(false).attempts_added;
        match &end.outcome {
            Outcome::Retry { delay, error } => {
                if let Some(suppressed) = self.admit(kind, Level::FailedAttempt) {
                    let max_attempts = claim.retry.max_attempts();
                    tracing::warn!(
                        target: "ratchet::job",
                        %kind, %id, %queue, attempt, max_attempts, retry_in = ?delay, error, suppressed,
                        "an attempt failed"
                    );
                }
            }
            Outcome::Failed { error } => {
                if let Some(suppressed) = self.admit(kind, Level::DeadLetter) {
                    tracing::error!(
                        target: "ratchet::job",
                        %kind, %id, %queue, attempt, error, suppressed,
                        "a job failed permanently and is now a dead letter"
                    );
                }
            }
            _ => {}
        }
    }

    /// Logs the numbers of suppressed lines that no later line has reported.
    fn node_left(&self, _node: NodeId, _label: &Name) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        for ((kind, level), window) in windows.drain() {
            if window.suppressed > 0 {
                tracing::warn!(
                    target: "ratchet::job",
                    %kind, ?level, suppressed = window.suppressed,
                    "some failed jobs of this kind were not logged; `suppressed` is their number"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_cut_for_each_kind_and_level_and_the_next_line_counts_it() {
        let log = FailureLog::default();
        let kind = |text: &str| Name::new("kind", text).unwrap();
        let mail = || log.admit(&kind("mail"), Level::FailedAttempt);
        for _ in 0..LINES {
            assert_eq!(mail(), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(mail(), None);
        }
        assert_eq!(log.admit(&kind("mail"), Level::DeadLetter), Some(0));
        assert_eq!(log.admit(&kind("fax"), Level::FailedAttempt), Some(0));
        tokio::time::advance(WINDOW).await;
        assert_eq!(mail(), Some(7));
        assert_eq!(mail(), Some(0));
    }
}
