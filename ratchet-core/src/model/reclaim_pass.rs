//! Which of the lost claims a limited pass takes back.

use crate::id::JobId;
use crate::model::ReclaimRequest;

/// Chooses the claims of one pass, at most as many as its limit.
///
/// Claims that have an owner go before those that earlier passes gave up. The latter come back in
/// every pass until they are settled, and would otherwise keep all others waiting.
#[derive(Clone, Debug)]
pub struct ReclaimPass<T> {
    limit: usize,
    owned: Vec<(JobId, T)>,
    given_up: Vec<(JobId, T)>,
}

impl<T> ReclaimPass<T> {
    /// Begins the choice for a pass with this limit.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            owned: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Begins the choice for this request.
    #[must_use]
    pub const fn of(request: &ReclaimRequest) -> Self {
        Self::new(request.limit)
    }

    /// Returns whether claims of later jobs would change nothing.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.owned.len() >= self.limit
    }

    /// Adds a lost claim of this job.
    pub fn add(&mut self, job: JobId, has_owner: bool, claim: T) {
        let claims = if has_owner {
            &mut self.owned
        } else {
            &mut self.given_up
        };
        claims.push((job, claim));
    }

    /// Returns the claims of the first jobs of each sort, in order of their jobs.
    #[must_use]
    pub fn chosen(mut self) -> Vec<T> {
        for claims in [&mut self.owned, &mut self.given_up] {
            claims.sort_by_key(|(job, _)| *job);
        }
        self.owned.truncate(self.limit);
        self.given_up.truncate(self.limit - self.owned.len());
        self.owned.append(&mut self.given_up);
        self.owned.sort_by_key(|(job, _)| *job);
        self.owned.into_iter().map(|(_, claim)| claim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(limit: usize, owned: [bool; 4]) -> (Vec<usize>, bool) {
        let mut pass = ReclaimPass::new(limit);
        for (number, has_owner) in owned.into_iter().enumerate().rev() {
            let mut id = [0; 16];
            id[15] = u8::try_from(number).unwrap();
            pass.add(JobId::from_bytes(id), has_owner, number);
        }
        let is_full = pass.is_full();
        (pass.chosen(), is_full)
    }

    #[test]
    fn claims_with_an_owner_go_first_and_the_answer_is_in_order() {
        let owned = [false, true, false, true];
        assert_eq!(chosen(1, owned), (vec![1], true));
        assert_eq!(chosen(2, owned), (vec![1, 3], true));
        assert_eq!(chosen(3, owned), (vec![0, 1, 3], false));
        assert_eq!(chosen(9, owned), (vec![0, 1, 2, 3], false));
    }
}
