//! How far claims look ahead.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many candidates a claim looks at for each job it wants: one while nobody else claims, and
/// more when others had what it chose. It always tries to take the first ones first.
#[derive(Debug)]
pub(crate) struct Reach {
    factor: AtomicUsize,
    /// Claims since the last that had to look further.
    calm: AtomicUsize,
}

impl Reach {
    pub(crate) const MOST: usize = 32;
    /// How many claims in a row must do without looking further before the reach shrinks.
    const CALM: usize = 16;

    pub(crate) const fn new() -> Self {
        Self {
            factor: AtomicUsize::new(1),
            calm: AtomicUsize::new(0),
        }
    }

    pub(crate) fn get(&self) -> usize {
        self.factor.load(Ordering::Relaxed)
    }

    /// Claims that had to look further than they began make later ones do so from the beginning, and
    /// a row of those that had not, less far.
    pub(crate) fn learn(&self, began: usize, needed: usize) {
        if needed > began {
            let needed = needed.min(Self::MOST);
            self.factor.fetch_max(needed, Ordering::Relaxed);
            self.calm.store(0, Ordering::Relaxed);
            return;
        }
        let now = self.get();
        if now > 1 && self.calm.fetch_add(1, Ordering::Relaxed) + 1 >= Self::CALM {
            self.calm.store(0, Ordering::Relaxed);
            // Unless somebody changes it at this moment.
            let _ =
                self.factor
                    .compare_exchange(now, now - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reach_grows_at_once_and_shrinks_after_a_calm() {
        let reach = Reach::new();
        reach.learn(1, 1);
        assert_eq!(reach.get(), 1);
        reach.learn(1, 8);
        assert_eq!(reach.get(), 8);
        for _ in 1..Reach::CALM {
            reach.learn(8, 8);
            assert_eq!(reach.get(), 8);
        }
        reach.learn(8, 8);
        assert_eq!(reach.get(), 7);
        reach.learn(7, 1_000);
        assert_eq!(reach.get(), Reach::MOST);
    }
}
