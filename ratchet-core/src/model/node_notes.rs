//! What a node says in its heartbeat for operators alone: one JSON text in its row, so that a store keeps
//! a later addition without a new column.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::{Heartbeat, NodeRecord, NodeTotals};
use crate::schedule::ZoneData;

/// The key of the zone data; the keys of the totals stand beside it.
const ZONE_DATA: &str = "zone_data";

#[derive(Serialize)]
struct Notes<'a> {
    #[serde(flatten)]
    totals: Option<&'a NodeTotals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone_data: Option<&'a ZoneData>,
}

impl Heartbeat {
    /// Returns the totals and the zone data as one text, as stores keep them. `None` if the heartbeat has
    /// neither.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratchet_core::model::{Heartbeat, NodeRecord, NodeStatus, NodeTotals};
    /// use ratchet_core::{Name, NodeId, time};
    ///
    /// # fn main() -> Result<(), ratchet_core::InvalidInput> {
    /// let label = Name::new("label", "web-1")?;
    /// let interval = Duration::from_secs(5);
    /// let mut beat = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, interval);
    /// let mut row = NodeRecord::joined(&beat, time::from_millis(0));
    ///
    /// beat.load.totals = Some(NodeTotals::new(7, 1_250, 5, 1, 1));
    /// row.read_notes(beat.notes().as_deref());
    /// assert_eq!(row.load.totals, beat.load.totals);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn notes(&self) -> Option<String> {
        let totals = self.load.totals.as_ref();
        let zone_data = self.profile.zone_data.as_ref();
        if totals.is_none() && zone_data.is_none() {
            return None;
        }
        match serde_json::to_string(&Notes { totals, zone_data }) {
            Ok(text) => Some(text),
            Err(_) => unreachable!("numbers and texts can be written as JSON"),
        }
    }
}

impl NodeRecord {
    /// Takes the totals and the zone data from a text that [`Heartbeat::notes`] made, in this version or
    /// another. A missing number is 0, an unknown key is ignored, and what cannot be read is `None`: it
    /// is not worth the node.
    pub fn read_notes(&mut self, notes: Option<&str>) {
        let read = |text| serde_json::from_str::<Map<String, Value>>(text).ok();
        let mut notes = notes.and_then(read).unwrap_or_default();
        let zone_data = notes.remove(ZONE_DATA);
        self.profile.zone_data = zone_data.and_then(read_value);
        self.load.totals = match notes.is_empty() {
            true => None,
            false => read_value(Value::Object(notes)),
        };
    }
}

fn read_value<T: for<'a> Deserialize<'a>>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::NodeId;
    use crate::model::NodeStatus;
    use crate::name::Name;
    use crate::time::from_millis;

    fn beat(totals: Option<NodeTotals>, zone_data: Option<ZoneData>) -> Heartbeat {
        let label = Name::new("label", "n").unwrap();
        let second = Duration::from_secs(1);
        let mut beat = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, second);
        (beat.load.totals, beat.profile.zone_data) = (totals, zone_data);
        beat
    }

    fn read(notes: Option<&str>) -> (Option<NodeTotals>, Option<ZoneData>) {
        let other = beat(Some(NodeTotals::default()), Some(ZoneData::built_in()));
        let mut row = NodeRecord::joined(&other, from_millis(0));
        row.read_notes(notes);
        (row.load.totals, row.profile.zone_data)
    }

    #[test]
    fn notes_come_back_as_they_were() {
        let most = NodeTotals::new(u64::MAX, 1, 2, 3, 4);
        let zones = ZoneData::new("/usr/share/zoneinfo", None);
        for (totals, zone_data) in [
            (None, None),
            (Some(NodeTotals::default()), None),
            (None, Some(ZoneData::built_in())),
            (Some(most), Some(zones)),
        ] {
            let notes = beat(totals, zone_data.clone()).notes();
            assert_eq!(read(notes.as_deref()), (totals, zone_data), "{notes:?}");
        }
    }

    #[test]
    fn notes_of_other_versions_can_be_read() {
        let three = Some(NodeTotals::new(3, 0, 0, 0, 0));
        assert_eq!(read(Some(r#"{"begun":3,"later":true}"#)), (three, None));
        let odd = r#"{"begun":3,"zone_data":7}"#;
        assert_eq!(read(Some(odd)), (three, None));
        let zones = r#"{"begun":-1,"zone_data":{"source":"/z","version":"2026f","later":1}}"#;
        let data = ZoneData::new("/z", Some("2026f".to_owned()));
        assert_eq!(read(Some(zones)), (None, Some(data)));
        assert_eq!(read(Some("begun")), (None, None));
        assert_eq!(read(None), (None, None));
    }
}
