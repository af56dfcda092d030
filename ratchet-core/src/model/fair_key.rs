//! The fair key of a job.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::name::Name;

/// The key of a job for which claims take turns, such as a customer, and the cost of its turn.
///
/// ```
/// use ratchet::NewJob;
///
/// let job = NewJob::new("render", &1).weighted_fair_key("tenant:7", 2.0);
/// let key = job.spec().fair_key.as_ref();
/// assert_eq!(key.map(|key| (key.name().as_str(), key.cost())), Some(("tenant:7", 500)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FairKey {
    name: Name,
    cost: u32,
}

impl FairKey {
    /// The cost of a job with the weight 1.
    pub const UNIT: u32 = 1_000;
    /// The smallest weight.
    pub const LEAST_WEIGHT: f64 = 0.1;
    /// The largest weight.
    pub const MOST_WEIGHT: f64 = 100.0;
    /// The costs of the largest to the smallest weight.
    const COSTS: RangeInclusive<u32> = 10..=10_000;

    /// Creates the key with this name and weight.
    ///
    /// # Errors
    /// [`InvalidInput`] on `fair_key` for an invalid name, and on `fair_weight` for a weight that
    /// is not between 0.1 and 100.
    pub fn new(name: &str, weight: f64) -> Result<Self, InvalidInput> {
        let name = Name::new("fair_key", name)?;
        if !(Self::LEAST_WEIGHT..=Self::MOST_WEIGHT).contains(&weight) {
            let problem = format!(
                "is {weight}; it must be between {} and {}",
                Self::LEAST_WEIGHT,
                Self::MOST_WEIGHT
            );
            return Err(InvalidInput::new("fair_weight", problem));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the weight is between 0.1 and 100, so the cost is between 10 and 10,000"
        )]
        let cost = (f64::from(Self::UNIT) / weight).round() as u32;
        Ok(Self { name, cost })
    }

    /// Creates a key from its stored parts.
    ///
    /// # Errors
    /// [`InvalidInput`] if the name or the cost is invalid.
    pub fn from_stored(name: &str, cost: i64) -> Result<Self, InvalidInput> {
        let name = Name::new("fair_key", name)?;
        match u32::try_from(cost) {
            Ok(cost) if Self::COSTS.contains(&cost) => Ok(Self { name, cost }),
            _ => {
                let problem = format!("has the cost {cost}; expected 10 to 10,000");
                Err(InvalidInput::new("fair_key", problem))
            }
        }
    }

    /// Returns the cost of a job from its stored form. A cost that cannot be read counts as
    /// [`UNIT`](Self::UNIT), so that it keeps neither this job nor others of its key from being
    /// claimed.
    #[must_use]
    pub fn cost_or_unit(stored: Option<i64>) -> u32 {
        let cost = stored.and_then(|cost| u32::try_from(cost).ok());
        let cost = cost.filter(|cost| Self::COSTS.contains(cost));
        cost.unwrap_or(Self::UNIT)
    }

    /// Returns the name of the key.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the cost of the job: 1,000 divided by its weight, rounded.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_costs_and_others_are_refused() {
        for (weight, cost) in [(0.1, 10_000), (1.0, 1_000), (3.0, 333), (100.0, 10)] {
            let key = FairKey::new("a", weight).unwrap();
            assert_eq!(key.cost(), cost);
            assert_eq!(FairKey::from_stored("a", cost.into()), Ok(key));
        }
        for weight in [0.0, -1.0, 0.09, 100.1, f64::NAN, f64::INFINITY] {
            let error = FairKey::new("a", weight).unwrap_err();
            assert_eq!(error.field(), "fair_weight", "{weight}");
        }
        assert_eq!(FairKey::new("", 1.0).unwrap_err().field(), "fair_key");
        assert_eq!(
            [10, 500, 10_000].map(|cost| FairKey::cost_or_unit(Some(cost))),
            [10, 500, 10_000]
        );
        assert_eq!(FairKey::cost_or_unit(None), FairKey::UNIT);
        for cost in [-1, 0, 9, 10_001, i64::MAX] {
            assert!(FairKey::from_stored("a", cost).is_err(), "{cost}");
            assert_eq!(FairKey::cost_or_unit(Some(cost)), FairKey::UNIT, "{cost}");
        }
    }
}
