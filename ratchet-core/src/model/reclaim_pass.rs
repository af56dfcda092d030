//! Selects the lost claims that a pass with a limit reclaims.

use crate::id::JobId;
use crate::model::ReclaimRequest;

/// Selects the lost claims that one pass reclaims, up to the limit of the pass.
///
/// Claims with an owner are selected first. A claim without an owner was given up by an earlier
/// pass, and every pass finds it again until it is settled. If such claims were selected first,
/// they could fill every pass and block all other claims.
#[derive(Clone, Debug)]
pub struct ReclaimPass<T> {
    limit: usize,
    owned: Vec<(JobId, T)>,
    given_up: Vec<(JobId, T)>,
}

impl<T> ReclaimPass<T> {
    /// Begins a selection of at most `limit` claims.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            owned: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Begins a selection with the limit of this request.
    #[must_use]
    pub const fn of(request: &ReclaimRequest) -> Self {
        Self::new(request.limit)
    }

    /// Returns whether claims with an owner already fill the limit. If claims are added in order of
    /// job id, no later claim can then be selected.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.owned.len() >= self.limit
    }

    /// Adds a lost claim of this job to the candidates for the selection.
    pub fn add(&mut self, job: JobId, has_owner: bool, claim: T) {
        let claims = if has_owner {
            &mut self.owned
        } else {
            &mut self.given_up
        };
        claims.push((job, claim));
    }

    /// Returns the selected claims, ordered by job id. Claims with an owner are selected first,
    /// then claims without an owner, until the limit is reached. Within each group, the claims with
    /// the lowest job ids are selected first.
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
