use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;

/// What a node has done since it was built. None of the numbers ever shrinks, also when the node goes
/// on under a new id after it was taken for dead.
///
/// Rates are differences between two readings of one node, divided by the time between them:
/// [`Meter`](crate::throughput::Meter).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeTotals {
    /// Bodies that began.
    pub begun: u64,
    /// How long the jobs of these bodies had been due when they were claimed, added up: milliseconds,
    /// by the database's clock.
    pub waited_ms: u64,
    /// Claims that ended in success.
    pub succeeded: u64,
    /// Claims that made a dead letter.
    pub failed: u64,
    /// Failed attempts that another is to follow.
    pub retried: u64,
}

impl NodeTotals {
    /// These numbers, in the order of the fields.
    #[must_use]
    pub const fn new(
        begun: u64,
        waited_ms: u64,
        succeeded: u64,
        failed: u64,
        retried: u64,
    ) -> Self {
        Self {
            begun,
            waited_ms,
            succeeded,
            failed,
            retried,
        }
    }

    /// The numbers as one text, as stores keep them.
    ///
    /// ```
    /// use ratchet_core::model::NodeTotals;
    ///
    /// let totals = NodeTotals::new(7, 1_250, 5, 1, 1);
    /// assert_eq!(NodeTotals::decode(&totals.encode()), Ok(totals));
    /// ```
    #[must_use]
    pub fn encode(&self) -> String {
        match serde_json::to_string(self) {
            Ok(text) => text,
            Err(_) => unreachable!("five numbers can be written down"),
        }
    }

    /// The numbers of a text that [`encode`](Self::encode) made, in this version or another: what is
    /// missing is 0, what is not known is left out.
    ///
    /// # Errors
    /// [`InvalidInput`] on `totals` if it is no such text.
    pub fn decode(text: &str) -> Result<Self, InvalidInput> {
        serde_json::from_str(text)
            .map_err(|error| InvalidInput::new("totals", format!("cannot be read: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_other_versions_can_be_read() {
        let most = NodeTotals::new(u64::MAX, 1, 2, 3, 4);
        assert_eq!(NodeTotals::decode(&most.encode()), Ok(most));
        let newer = NodeTotals::decode(r#"{"begun":3,"later":true}"#);
        assert_eq!(newer, Ok(NodeTotals::new(3, 0, 0, 0, 0)));
        assert!(NodeTotals::decode("begun").is_err());
        assert!(NodeTotals::decode(r#"{"begun":-1}"#).is_err());
    }
}
