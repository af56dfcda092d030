//! Notes: the parts of a heartbeat that no store reads. A store keeps them as one JSON text in the
//! node's row, so that a new part needs no new column.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::{Heartbeat, NodeLoad, NodeProfile, NodeRecord, NodeTotals, PoolProfile};
use crate::name::Name;
use crate::schedule::ZoneData;

/// The key of the zone data. The keys of the totals are at the same level of the JSON object.
const ZONE_DATA: &str = "zone_data";
/// The key of the number of unheld claims; see
/// [`NodeLoad::unheld_claims`](super::NodeLoad::unheld_claims).
const UNHELD_CLAIMS: &str = "unheld_claims";
/// The key of the pools.
const POOLS: &str = "pools";
/// The key of the kinds whose circuit breaker is not closed.
const OPEN_BREAKERS: &str = "open_breakers";

#[derive(Serialize)]
struct Notes<'a> {
    #[serde(flatten)]
    totals: Option<&'a NodeTotals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone_data: Option<&'a ZoneData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unheld_claims: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<&'a [PoolProfile]>,
    #[serde(skip_serializing_if = "<[Name]>::is_empty")]
    open_breakers: &'a [Name],
}

impl NodeLoad {
    /// Returns the text that [`Heartbeat::notes`] returns for this load and this profile.
    pub(super) fn notes(&self, profile: &NodeProfile) -> Option<String> {
        let totals = self.totals.as_ref();
        let zone_data = profile.zone_data.as_ref();
        let unheld_claims = self.unheld_claims;
        let pools = profile.pools.as_deref();
        let open_breakers = &*profile.open_breakers;
        let has_none = totals.is_none()
            && zone_data.is_none()
            && unheld_claims.is_none()
            && pools.is_none()
            && open_breakers.is_empty();
        if has_none {
            return None;
        }
        let notes = Notes {
            totals,
            zone_data,
            unheld_claims,
            pools,
            open_breakers,
        };
        match serde_json::to_string(&notes) {
            Ok(text) => Some(text),
            Err(_) => unreachable!("numbers and texts can be written as JSON"),
        }
    }
}

impl Heartbeat {
    /// Returns the totals, the zone data, the number of unheld claims, the pools and the open
    /// circuit breakers as one JSON text, which stores save. `None` if the heartbeat has none of
    /// them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratchet_core::model::{Heartbeat, NodeRecord, NodeStatus, NodeTotals};
    /// use ratchet_core::{Name, NodeId, time};
    ///
    /// # fn main() -> Result<(), ratchet::InvalidInput> {
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
        self.load.notes(&self.profile)
    }
}

impl NodeRecord {
    /// Sets the totals, the zone data, the number of unheld claims, the pools and the open circuit
    /// breakers from the text that [`Heartbeat::notes`] of this or another version returned.
    ///
    /// A part that is missing or unreadable becomes `None`, so that the rest of the node can still
    /// be read. If only some of the totals are missing, they become 0. Unknown keys are ignored.
    pub fn read_notes(&mut self, notes: Option<&str>) {
        let read = |text| serde_json::from_str::<Map<String, Value>>(text).ok();
        let mut notes = notes.and_then(read).unwrap_or_default();
        let zone_data = notes.remove(ZONE_DATA);
        self.profile.zone_data = zone_data.and_then(read_value);
        let unheld_claims = notes.remove(UNHELD_CLAIMS);
        self.load.unheld_claims = unheld_claims.and_then(read_value);
        self.profile.pools = notes.remove(POOLS).and_then(read_value);
        let open_breakers = notes.remove(OPEN_BREAKERS).and_then(read_value);
        self.profile.open_breakers = open_breakers.unwrap_or_default();
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
    use crate::route::Selection;
    use crate::time::from_millis;

    type Said = (
        Option<NodeTotals>,
        Option<ZoneData>,
        Option<u32>,
        Option<Vec<PoolProfile>>,
    );

    fn beat((totals, zone_data, unheld_claims, pools): Said) -> Heartbeat {
        let label = Name::new("label", "n").unwrap();
        let second = Duration::from_secs(1);
        let mut beat = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, second);
        (beat.load.totals, beat.profile.zone_data) = (totals, zone_data);
        beat.load.unheld_claims = unheld_claims;
        beat.profile.pools = pools;
        beat
    }

    fn read(notes: Option<&str>) -> Said {
        let other = (
            Some(NodeTotals::default()),
            Some(ZoneData::built_in()),
            Some(9),
            Some(Vec::new()),
        );
        let other = beat(other);
        let mut row = NodeRecord::joined(&other, from_millis(0));
        row.read_notes(notes);
        let load = row.load;
        let profile = row.profile;
        (
            load.totals,
            profile.zone_data,
            load.unheld_claims,
            profile.pools,
        )
    }

    #[test]
    fn notes_come_back_as_they_were() {
        let most = NodeTotals::new(u64::MAX, 1, 2, 3, 4);
        let zones = ZoneData::new("/usr/share/zoneinfo", None);
        let name = |text| Name::new("name", text).unwrap();
        let mut pool = PoolProfile::new(3, 1);
        pool.queues = Selection::Except(vec![name("größe 🦀"), name("a, b")]);
        pool.kinds = Selection::Only(vec![name("resize")]);
        pool.capabilities = vec![name("gpu")];
        pool.untagged = false;
        for said in [
            (None, None, None, None),
            (Some(NodeTotals::default()), None, None, None),
            (None, Some(ZoneData::built_in()), None, None),
            (None, None, Some(0), None),
            (None, None, None, Some(Vec::new())),
            (
                Some(most),
                Some(zones),
                Some(u32::MAX),
                Some(vec![PoolProfile::new(1, 0), pool]),
            ),
        ] {
            let notes = beat(said.clone()).notes();
            assert_eq!(read(notes.as_deref()), said, "{notes:?}");
        }
    }

    #[test]
    fn open_breakers_come_back_and_are_empty_if_they_are_missing_or_unreadable() {
        let kinds = ["a", "größe"].map(|kind| Name::new("kind", kind).unwrap());
        let mut beat = beat((None, None, None, None));
        let mut row = NodeRecord::joined(&beat, from_millis(0));
        beat.profile.open_breakers = kinds.to_vec();
        row.read_notes(beat.notes().as_deref());
        assert_eq!(row.profile.open_breakers, kinds);
        for notes in [
            None,
            Some(r#"{"begun":1}"#),
            Some(r#"{"open_breakers":[""]}"#),
        ] {
            row.profile.open_breakers = kinds.to_vec();
            row.read_notes(notes);
            assert!(row.profile.open_breakers.is_empty(), "{notes:?}");
        }
    }

    #[test]
    fn notes_of_other_versions_can_be_read() {
        let three = Some(NodeTotals::new(3, 0, 0, 0, 0));
        assert_eq!(
            read(Some(r#"{"begun":3,"later":true}"#)),
            (three, None, None, None)
        );
        let odd = r#"{"begun":3,"zone_data":7,"unheld_claims":-1,"pools":[{}]}"#;
        assert_eq!(read(Some(odd)), (three, None, None, None));
        let zones = r#"{"begun":-1,"zone_data":{"source":"/z","version":"2026f","later":1}}"#;
        let data = ZoneData::new("/z", Some("2026f".to_owned()));
        assert_eq!(read(Some(zones)), (None, Some(data), None, None));
        assert_eq!(read(Some("begun")), (None, None, None, None));
        assert_eq!(read(None), (None, None, None, None));
    }
}
