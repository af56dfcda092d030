//! Decides how many candidates a claim reads while other nodes claim too, and whether it searches
//! again.
//!
//! A claim first selects candidates in claim order, then takes those that no other claimer has
//! taken. If other claimers were faster, the claim finds fewer jobs than it wants, although more
//! may be due. [`Rounds`] decides whether the claim searches again and how many candidates it then
//! reads. [`Lookahead`] keeps that number for later claims.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::time;

/// Maximum time that a claim searches for more jobs after it has found its first jobs.
pub const SEARCH_TIME: Duration = Duration::from_secs(1);

/// Number of candidates that a claim reads for each job that it wants, learned from earlier claims.
///
/// The number is 1 at first. It grows when other nodes take candidates before a claim can take
/// them, and shrinks slowly when claims find enough jobs.
#[derive(Debug)]
pub struct Lookahead {
    factor: AtomicUsize,
    /// Number of consecutive claims for which the factor was large enough. Reset to 0 when the
    /// factor changes.
    enough_in_a_row: AtomicUsize,
}

impl Default for Lookahead {
    fn default() -> Self {
        Self {
            factor: AtomicUsize::new(1),
            enough_in_a_row: AtomicUsize::new(0),
        }
    }
}

impl Lookahead {
    const MOST: usize = 32;
    /// Number of consecutive claims that must find the factor large enough before the factor is
    /// lowered by one. The factor is the number of candidates that a claim reads per wanted job.
    ///
    /// Too many candidates mean that a claim reads a longer index range; too few mean that it needs
    /// another round. In a test with four nodes that lowered the factor after every such claim, one
    /// claim in four found no job.
    const UNTIL_LOWER: usize = 16;

    fn get(&self) -> usize {
        self.factor.load(Ordering::Relaxed)
    }

    /// Updates the factor after a claim that began with the factor `began` and needed the factor
    /// `needed`. The factor is the number of candidates that a claim reads per wanted job.
    ///
    /// If `needed` is larger than `began`, raises the factor at once. Otherwise, lowers the factor
    /// by one after [`UNTIL_LOWER`](Self::UNTIL_LOWER) such claims in a row. Such a claim never
    /// raises the factor, even if other claims have lowered the factor below `needed` since then.
    fn learn(&self, began: usize, needed: usize) {
        if needed > began {
            let needed = needed.min(Self::MOST);
            self.factor.fetch_max(needed, Ordering::Relaxed);
            self.enough_in_a_row.store(0, Ordering::Relaxed);
            return;
        }
        let now = self.get();
        if now > 1 && self.enough_in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= Self::UNTIL_LOWER
        {
            self.enough_in_a_row.store(0, Ordering::Relaxed);
            // Fails if another claim has just changed the factor. The factor then keeps that
            // claim's value.
            let _ =
                self.factor
                    .compare_exchange(now, now - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Settings of a store that determine how often a claim searches again for jobs.
///
/// A claim works in rounds. Each round reads candidates, which are due jobs. It then takes the
/// candidates that no other claimer has taken.
#[derive(Clone, Copy, Debug)]
pub struct Persistence {
    /// Maximum number of rounds of a claim.
    pub rounds: usize,
    /// Whether a round that [changed the conditions](RoundFound::conditions_changed) does not count
    /// towards [`rounds`](Self::rounds).
    pub free_repeats: bool,
    /// Whether a claim may read more candidates after a round in which [permits
    /// limited](RoundFound::bounded) the candidates.
    ///
    /// The claim then raises the number of candidates only if the round found more candidates than
    /// the last round that raised the number.
    pub widens_bounded: bool,
    /// Maximum number of times that a claim searches again after a round that took only some of the
    /// due candidates. Other claimers took the rest. Counts only rounds that read all due
    /// candidates.
    pub after_some: usize,
    /// Maximum number of times that a claim searches again after a round that took none of the due
    /// candidates. Counts only rounds that read all due candidates.
    pub after_none: usize,
}

/// The result of one round of a claim.
#[derive(Clone, Copy, Debug)]
pub struct RoundFound {
    /// Maximum number of jobs that the round was to take.
    pub wanted: usize,
    /// Number of candidates that the round found, at most [`Rounds::candidates_for`].
    pub candidates: usize,
    /// Number of candidates that the round took before another claimer did. Includes jobs that the
    /// claim cannot return, for example because they are unreadable.
    pub taken: usize,
    /// Whether the number of free permits limited the candidates.
    pub bounded: bool,
    /// Whether the next round can find different candidates without reading more of them. This is
    /// the case if the round used up the permits of a resource, or returned permits.
    pub conditions_changed: bool,
}

/// Counts the rounds of one claim and decides after each round whether the claim searches again.
#[derive(Debug)]
pub struct Rounds<'a> {
    lookahead: &'a Lookahead,
    persistence: Persistence,
    left: usize,
    began: usize,
    factor: usize,
    /// Number of candidates found in the last round after which the claim raised its factor. The
    /// factor is the number of candidates per wanted job.
    seen: usize,
    some: usize,
    none: usize,
}

impl<'a> Rounds<'a> {
    /// Begins a claim. The claim reads as many candidates per wanted job as `lookahead` has learned
    /// from earlier claims.
    #[must_use]
    pub fn begin(lookahead: &'a Lookahead, persistence: Persistence) -> Self {
        let began = lookahead.get();
        Self {
            lookahead,
            persistence,
            left: persistence.rounds,
            began,
            factor: began,
            seen: 0,
            some: 0,
            none: 0,
        }
    }

    /// Begins a round and counts it. Returns `false` if the claim has reached its maximum number of
    /// rounds.
    #[must_use]
    pub const fn begin_round(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }

    /// Returns the number of candidates that a round reads to find `wanted` jobs.
    #[must_use]
    pub const fn candidates_for(&self, wanted: usize) -> usize {
        wanted.saturating_mul(self.factor)
    }

    /// Returns whether the claim searches again after a round with the result `found`. Call this
    /// method after a round that found fewer jobs than wanted, or found jobs that cannot be read.
    #[must_use]
    pub fn looks_again(&mut self, found: RoundFound) -> bool {
        if found.conditions_changed {
            self.left += usize::from(self.persistence.free_repeats);
            return true;
        }
        let all = found.candidates < self.candidates_for(found.wanted);
        if found.taken == found.candidates && all {
            return false;
        }
        if found.taken >= found.wanted {
            return true;
        }
        // The claim took fewer jobs than wanted, and other claimers took some of the candidates.
        let widens = self.persistence.widens_bounded && found.bounded;
        if !all || (widens && found.candidates > self.seen) {
            // There may be more due jobs beyond these candidates.
            self.seen = found.candidates;
            self.factor = (self.factor * 2).min(Lookahead::MOST);
            return true;
        }
        // There are no further candidates, but other claimers may release some that they took.
        if found.taken == 0 {
            self.none += 1;
            self.none <= self.persistence.after_none
        } else {
            self.some += 1;
            self.some <= self.persistence.after_some
        }
    }

    /// Ends the claim. Updates the [`Lookahead`] with the number of candidates per wanted job that
    /// this claim needed.
    pub fn end(self) {
        self.lookahead.learn(self.began, self.factor);
    }
}

/// Awaits `work`, but only until the time `end`. Returns `None` and drops `work` if it does not
/// finish in time. If `end` is `None`, there is no time limit.
pub async fn until<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match end {
        None => Some(work.await),
        Some(end) if time::monotonic() >= end => None,
        Some(end) => tokio::time::timeout_at(end, work).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRM: Persistence = Persistence {
        rounds: 3,
        free_repeats: true,
        widens_bounded: true,
        after_some: 1,
        after_none: 0,
    };
    const PATIENT: Persistence = Persistence {
        rounds: 3,
        free_repeats: false,
        widens_bounded: false,
        after_some: usize::MAX,
        after_none: 2,
    };

    /// Returns the result of a round that wanted 10 jobs.
    const fn found(candidates: usize, taken: usize) -> RoundFound {
        RoundFound {
            wanted: 10,
            candidates,
            taken,
            bounded: false,
            conditions_changed: false,
        }
    }

    const fn bounded(found: RoundFound) -> RoundFound {
        RoundFound {
            bounded: true,
            ..found
        }
    }

    #[test]
    fn the_factor_grows_at_once_and_shrinks_after_many_claims() {
        let lookahead = Lookahead::default();
        lookahead.learn(1, 1);
        assert_eq!(lookahead.get(), 1);
        lookahead.learn(1, 8);
        assert_eq!(lookahead.get(), 8);
        for _ in 1..Lookahead::UNTIL_LOWER {
            lookahead.learn(8, 8);
            assert_eq!(lookahead.get(), 8);
        }
        lookahead.learn(8, 8);
        assert_eq!(lookahead.get(), 7);
        lookahead.learn(7, 1_000);
        assert_eq!(lookahead.get(), Lookahead::MOST);
    }

    #[test]
    fn a_claim_that_began_with_a_larger_factor_teaches_nothing() {
        let lookahead = Lookahead::default();
        lookahead.learn(1, 8);
        // A claim begins with factor 8. While it runs, other claims lower the factor to 7.
        for _ in 0..Lookahead::UNTIL_LOWER {
            lookahead.learn(8, 8);
        }
        assert_eq!(lookahead.get(), 7);
        lookahead.learn(8, 8);
        assert_eq!(
            lookahead.get(),
            7,
            "expected the factor to stay as it is, because the claim needed no larger one"
        );
        // A claim that began with 1 and needed 4 does not lower the factor.
        lookahead.learn(1, 4);
        assert_eq!(lookahead.get(), 7);
    }

    #[test]
    fn a_claim_that_got_all_candidates_there_were_ends() {
        let lookahead = Lookahead::default();
        for persistence in [FIRM, PATIENT] {
            let mut rounds = Rounds::begin(&lookahead, persistence);
            assert!(!rounds.looks_again(found(0, 0)));
            assert!(!rounds.looks_again(found(9, 9)));
            // All 10 candidates were taken but some were unreadable, and there may be more.
            assert!(rounds.looks_again(found(10, 10)));
            assert_eq!(rounds.candidates_for(10), 10);
        }
    }

    #[test]
    fn where_others_took_candidates_it_looks_further_and_later_claims_do_from_the_beginning() {
        let lookahead = Lookahead::default();
        let mut rounds = Rounds::begin(&lookahead, FIRM);
        assert!(rounds.looks_again(found(10, 3)));
        assert_eq!(rounds.candidates_for(7), 14);
        assert!(rounds.looks_again(found(20, 0)));
        rounds.end();
        assert_eq!(Rounds::begin(&lookahead, FIRM).candidates_for(1), 4);
        let mut rounds = Rounds::begin(&lookahead, FIRM);
        for _ in 0..10 {
            let all = rounds.candidates_for(10);
            assert!(rounds.looks_again(found(all, 0)));
        }
        assert_eq!(rounds.candidates_for(1), Lookahead::MOST);
    }

    #[test]
    fn where_others_took_some_of_all_it_looks_again_as_often_as_it_is_told() {
        let lookahead = Lookahead::default();
        let mut firm = Rounds::begin(&lookahead, FIRM);
        assert!(firm.looks_again(found(9, 1)));
        assert!(!firm.looks_again(found(9, 1)));
        assert!(!Rounds::begin(&lookahead, FIRM).looks_again(found(9, 0)));
        let mut patient = Rounds::begin(&lookahead, PATIENT);
        for _ in 0..2 {
            assert!(patient.looks_again(found(9, 1)));
            assert!(patient.looks_again(found(9, 0)));
        }
        assert!(!patient.looks_again(found(9, 0)));
        assert_eq!(
            patient.candidates_for(1),
            1,
            "expected the factor to stay as it is, because there are no more candidates"
        );
    }

    #[test]
    fn permits_that_bound_a_round_let_it_look_further_while_that_shows_more() {
        let lookahead = Lookahead::default();
        let mut firm = Rounds::begin(&lookahead, FIRM);
        assert!(firm.looks_again(bounded(found(4, 0))));
        assert_eq!(firm.candidates_for(1), 2);
        assert!(firm.looks_again(bounded(found(8, 0))));
        assert!(!firm.looks_again(bounded(found(8, 0))));
        let mut patient = Rounds::begin(&lookahead, PATIENT);
        assert!(patient.looks_again(bounded(found(4, 0))));
        assert_eq!(patient.candidates_for(1), 1);
    }

    #[test]
    fn rounds_are_counted_but_for_free_repeats() {
        let lookahead = Lookahead::default();
        let again = RoundFound {
            conditions_changed: true,
            ..found(0, 0)
        };
        for (persistence, most) in [(FIRM, 13), (PATIENT, 3)] {
            let mut rounds = Rounds::begin(&lookahead, persistence);
            let mut made = 0;
            while rounds.begin_round() {
                made += 1;
                if made <= 10 {
                    assert!(rounds.looks_again(again));
                }
            }
            assert_eq!(made, most);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_when_its_time_is_over() {
        let second = Duration::from_secs(1);
        let work = || async {
            tokio::time::sleep(second).await;
            7
        };
        assert_eq!(until(None, work()).await, Some(7));
        let end = time::monotonic() + second / 2;
        assert_eq!(until(Some(end), work()).await, None);
        assert!(time::monotonic() >= end);
        // After `end`, even work that is ready at once does not run.
        assert_eq!(until(Some(end), async { 7 }).await, None);
        assert_eq!(until(Some(end + 2 * second), work()).await, Some(7));
    }
}
