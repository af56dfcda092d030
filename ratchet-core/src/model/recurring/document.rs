//! The JSON document in which a store can keep a recurring definition.

use serde::{Deserialize, Serialize};

use super::{Definition, RecurringRecord};
use crate::error::InvalidInput;
use crate::id::{Incarnation, NodeId};
use crate::model::document;
use crate::name::Name;
use crate::time::{from_millis, to_millis};

#[derive(Serialize, Deserialize)]
struct Document {
    name: Name,
    definition: String,
    incarnation: String,
    revision: u64,
    next_fire: Option<i64>,
    last_slot: Option<i64>,
    paused: bool,
    declared: bool,
    created_at: i64,
    claim: Option<(NodeId, i64)>,
}

impl RecurringRecord {
    /// Encodes the record as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        document::encode(&Document {
            name: self.definition.name().clone(),
            definition: self.definition.to_stored()?,
            incarnation: self.incarnation.to_string(),
            revision: self.revision,
            next_fire: self.next_fire.map(to_millis),
            last_slot: self.last_slot.map(to_millis),
            paused: self.paused,
            declared: self.declared,
            created_at: to_millis(self.created_at),
            claim: self.claim.map(|(node, until)| (node, to_millis(until))),
        })
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the text is not such a document, or if this version cannot
    /// read the definition in it.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        let read: Document = document::decode(document)?;
        let incarnation = read.incarnation.parse::<Incarnation>();
        let mut record = Self::new(
            Definition::from_stored(read.name, &read.definition)?,
            incarnation.map_err(|error| document::unreadable(&error))?,
            read.revision,
            read.next_fire.map(from_millis),
            from_millis(read.created_at),
        );
        record.last_slot = read.last_slot.map(from_millis);
        record.paused = read.paused;
        record.declared = read.declared;
        record.claim = (read.claim).map(|(node, until)| (node, from_millis(until)));
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{NewJob, Recurring};

    #[test]
    fn a_whole_record_round_trips() {
        let every = Recurring::every(Duration::from_secs(60));
        let recurring = every.job(NewJob::new("k", &1)).named("n");
        let definition = recurring.check().unwrap();
        let mut record =
            RecurringRecord::new(definition, Incarnation::new(), 7, None, from_millis(5));
        assert_eq!(
            RecurringRecord::decode(&record.encode().unwrap()),
            Ok(record.clone())
        );
        record.next_fire = Some(from_millis(60_000));
        record.last_slot = Some(from_millis(1));
        (record.paused, record.declared) = (true, true);
        record.claim = Some((NodeId::new(), from_millis(9)));
        assert_eq!(
            RecurringRecord::decode(&record.encode().unwrap()),
            Ok(record)
        );
    }
}
