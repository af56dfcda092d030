//! Throttles: kinds whose jobs a poller requests rarely, or not at all, because a rate limit or a
//! circuit breaker delays these jobs.
//!
//! A claimed job that may not begin would only be handed back. So a kind that must wait is left out
//! of the ordinary requests of its pool. When the wait is over, the poller requests jobs of this
//! kind only, and no more jobs than the limit is about to allow. The other jobs of the kind keep
//! their place in the claim order. If such a request returns fewer jobs than requested, the kind
//! returns to the ordinary requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::RetryDelays;
use crate::name::Name;
use crate::rate::Rate;

/// Target time between two requests for a throttled kind. The actual time is shorter if the rate
/// allows only a small burst. It is longer if the rate allows fewer than one start in this time.
const STEP: Duration = Duration::from_millis(100);

/// Kinds of one pool that are throttled: their jobs must wait for a rate limit or a circuit
/// breaker.
#[derive(Debug, Default)]
pub(crate) struct Throttles(Mutex<BTreeMap<Name, Throttle>>);

#[derive(Debug)]
struct Throttle {
    /// Time until which no job of the kind may begin.
    closed_until: Instant,
    /// Time of the next request for jobs of the kind.
    ask_at: Instant,
    /// Maximum number of jobs per request for the kind.
    share: usize,
    /// Time between two requests for the kind.
    pause: Duration,
    /// Backoff of the rate limiter. `None` if the last call of the limiter succeeded.
    failing: Option<RetryDelays>,
}

impl Throttles {
    /// Throttles a kind. Because of `rate`, no job of this kind may begin before `wait` has passed.
    pub(crate) fn close(&self, kind: &Name, rate: &Rate, wait: Duration, now: Instant) {
        let (share, pause) = share(rate);
        let until = now + wait;
        let throttle = Throttle {
            closed_until: until,
            ask_at: until,
            share,
            pause,
            failing: None,
        };
        self.kinds().insert(kind.clone(), throttle);
    }

    /// Throttles a kind because its circuit breaker is open. No job of the kind may begin before
    /// `wait` has passed. Then the poller requests one job, and another one after the same time.
    pub(crate) fn stop(&self, kind: &Name, wait: Duration, now: Instant) {
        let until = now + wait;
        let throttle = Throttle {
            closed_until: until,
            ask_at: until,
            share: 1,
            pause: wait.max(STEP),
            failing: None,
        };
        self.kinds().insert(kind.clone(), throttle);
    }

    /// Throttles a kind because its rate limiter failed. No job of the kind may begin until the
    /// next call of the limiter. The delay until that call grows with each failure.
    pub(crate) fn fail(&self, kind: &Name, random: f64, now: Instant) {
        let mut kinds = self.kinds();
        let earlier = kinds.remove(kind).and_then(|throttle| throttle.failing);
        let mut backoff = earlier.unwrap_or_else(|| RetryDelays::of("limiter"));
        let wait = backoff.next(random);
        let throttle = Throttle {
            closed_until: now + wait,
            ask_at: now + wait,
            share: 1,
            pause: wait,
            failing: Some(backoff),
        };
        kinds.insert(kind.clone(), throttle);
    }

    /// Records that a call of the rate limiter for this kind succeeded. If the kind was throttled
    /// because the limiter failed, this throttle is removed.
    pub(crate) fn works(&self, kind: &Name) {
        let mut kinds = self.kinds();
        if kinds
            .get(kind)
            .is_some_and(|throttle| throttle.failing.is_some())
        {
            kinds.remove(kind);
        }
    }

    /// Returns whether no job of this kind may begin at the time `now`. If so, the caller does not
    /// have to call the rate limiter.
    pub(crate) fn is_closed(&self, kind: &Name, now: Instant) -> bool {
        self.kinds()
            .get(kind)
            .is_some_and(|throttle| now < throttle.closed_until)
    }

    /// Returns those of `kinds` that are not throttled.
    pub(crate) fn open_ones(&self, kinds: &[Name]) -> Vec<Name> {
        let throttled = self.kinds();
        let open = kinds.iter().filter(|kind| !throttled.contains_key(*kind));
        open.cloned().collect()
    }

    /// Returns the throttled kind whose request is due, and the number of jobs to request.
    /// Schedules the next request for this kind.
    pub(crate) fn due(&self, now: Instant) -> Option<(Name, usize)> {
        let mut kinds = self.kinds();
        let due = kinds
            .iter_mut()
            .filter(|(_, throttle)| throttle.ask_at <= now);
        let due = due.min_by_key(|(_, throttle)| throttle.ask_at);
        due.map(|(kind, throttle)| {
            // After a late request, the next request follows sooner, because the limit has allowed
            // more starts since, up to the burst.
            throttle.ask_at = (throttle.ask_at + throttle.pause).max(now);
            (kind.clone(), throttle.share)
        })
    }

    /// Returns the time of the next request for a throttled kind. `None` if no kind is throttled.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.kinds().values().map(|throttle| throttle.ask_at).min()
    }

    /// Stops throttling a kind, after a request for it returned fewer jobs than requested, or its
    /// circuit breaker closed.
    pub(crate) fn lift(&self, kind: &Name) {
        self.kinds().remove(kind);
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<Name, Throttle>> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Returns the number of jobs per request for a kind with this rate, and the time between two
/// requests.
fn share(rate: &Rate) -> (usize, Duration) {
    let interval = rate.interval();
    let in_step = STEP.as_micros() / interval.as_micros().max(1);
    let share = u32::try_from(in_step).unwrap_or(u32::MAX);
    let share = share.clamp(1, rate.at_once());
    let pause = interval.saturating_mul(share);
    (usize::try_from(share).unwrap_or(usize::MAX), pause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time;

    const SECOND: Duration = Duration::from_secs(1);

    fn kind() -> Name {
        Name::new("kind", "mail").unwrap()
    }

    #[test]
    fn as_many_are_asked_for_as_are_allowed_in_a_step() {
        let table = [
            (Rate::new(10, SECOND), 1, 100),
            (Rate::new(1, SECOND), 1, 1_000),
            (Rate::new(1_000, SECOND), 100, 100),
            (Rate::new(1_000, SECOND).burst(5), 5, 5),
        ];
        for (rate, jobs, pause) in table {
            let expected = (jobs, Duration::from_millis(pause));
            assert_eq!(share(&rate), expected, "{rate:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_kind_is_left_out_and_asked_for_when_its_wait_is_over() {
        let (throttles, now, wait) = (Throttles::default(), time::monotonic(), SECOND);
        let kinds = [kind(), Name::new("kind", "other").unwrap()];
        throttles.close(&kind(), &Rate::new(10, SECOND), wait, now);
        assert_eq!(throttles.open_ones(&kinds), kinds[1..]);
        assert!(throttles.is_closed(&kind(), now));
        assert_eq!(throttles.due(now), None);
        let later = throttles.next().unwrap();
        assert_eq!(later, now + wait);
        assert_eq!(throttles.due(later), Some((kind(), 1)));
        assert_eq!(throttles.due(later), None);
        assert!(!throttles.is_closed(&kind(), later));
        // The kind stays out of the ordinary requests until it has no more due jobs.
        assert_eq!(throttles.open_ones(&kinds), kinds[1..]);
        throttles.lift(&kind());
        assert_eq!(throttles.open_ones(&kinds), kinds);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_kind_is_asked_for_one_job_after_each_wait() {
        let (throttles, now) = (Throttles::default(), time::monotonic());
        throttles.stop(&kind(), 30 * SECOND, now);
        assert!(throttles.is_closed(&kind(), now));
        assert_eq!(throttles.due(now + 29 * SECOND), None);
        let due = now + 30 * SECOND;
        assert_eq!(throttles.due(due), Some((kind(), 1)));
        assert_eq!(throttles.next(), Some(due + 30 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_close_a_kind_for_longer_and_longer_until_one_call_works() {
        let (throttles, now) = (Throttles::default(), time::monotonic());
        for expected in [50, 100, 200] {
            throttles.fail(&kind(), 0.0, now);
            assert_eq!(
                throttles.next(),
                Some(now + Duration::from_millis(expected))
            );
        }
        throttles.works(&kind());
        assert_eq!(throttles.next(), None);
        throttles.fail(&kind(), 0.0, now);
        assert_eq!(throttles.next(), Some(now + Duration::from_millis(50)));
        // A kind that a rate limit throttles stays throttled when its limiter works.
        throttles.close(&kind(), &Rate::new(10, SECOND), SECOND, now);
        throttles.works(&kind());
        assert_eq!(throttles.next(), Some(now + SECOND));
    }
}
