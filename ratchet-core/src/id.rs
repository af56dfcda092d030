//! The ids of jobs, batches, nodes, claims, lock tenures and recurring definitions.
//!
//! In JSON, an id is the text of its UUID, so payloads and messages can contain ids.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use uuid::{ContextV7, Timestamp as UuidTime, Uuid};

use crate::time::{self, Timestamp};

/// Identifies a job. Ids are never reused.
///
/// The id is a UUID of version 7. The ids that one process creates sort in the order of their
/// creation. If two jobs are equal in all other criteria of the claim order, the job with the
/// smaller id is claimed first.
///
/// ```
/// use ratchet::JobId;
///
/// let id = JobId::new();
/// assert_eq!(id.to_string().parse::<JobId>()?, id);
/// # Ok::<(), ratchet::BoxError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(Uuid);

impl JobId {
    /// Creates an id that is greater than every id that this process created before.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "each call returns a new value, but a default \
            is always the same"
    )]
    pub fn new() -> Self {
        Self(next_in_order())
    }

    /// Returns the id of the job for one slot of a recurring definition. The same incarnation and
    /// slot always have the same id, so firing a slot again creates no second job.
    ///
    /// The id is a UUID of version 8. It consists of the slot in milliseconds (48 bits), and of
    /// bits from a SHA-1 hash of the incarnation and the slot. So it sorts among UUIDs of version 7
    /// as if it had been created at the time of the slot.
    #[must_use]
    pub fn of_slot(incarnation: Incarnation, slot: Timestamp) -> Self {
        let millis = time::to_millis(slot).max(0).to_be_bytes();
        let mut bytes = *Uuid::new_v5(&incarnation.0, &millis).as_bytes();
        bytes[..6].copy_from_slice(&millis[2..]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Returns the slot of the recurring definition for which the job was created. `None` if the
    /// job was not created for a slot.
    #[must_use]
    pub fn slot(&self) -> Option<Timestamp> {
        let (high, _) = self.0.as_u64_pair();
        let of_slot = self.0.get_version_num() == 8;
        of_slot.then(|| time::from_millis((high >> 16).cast_signed()))
    }
}

/// Returns a UUID of version 7 that is greater than every UUID that this function returned before.
fn next_in_order() -> Uuid {
    static SEQUENCE: Mutex<Option<ContextV7>> = Mutex::new(None);
    let now = time::wall_clock();
    let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
    let nanos = now.timestamp_subsec_nanos();
    let mut sequence = SEQUENCE.lock().unwrap_or_else(|broken| broken.into_inner());
    let context = sequence.get_or_insert_with(ContextV7::new);
    Uuid::new_v7(UuidTime::from_unix(&*context, seconds, nanos))
}

/// Identifies a batch of jobs. The batch ids that one process creates sort in the order of their
/// creation.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// let batch = client.create_batch().await?;
/// let text = batch.to_string();
/// assert_eq!(text.parse::<ratchet::BatchId>()?, batch);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId(Uuid);

impl BatchId {
    /// Creates an id that is greater than every id that this process created before.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "each call returns a new value, but a default \
            is always the same"
    )]
    pub fn new() -> Self {
        Self(next_in_order())
    }
}

/// Identifies a recurring definition from its creation to its deletion. If a definition is created
/// again under the same name, it gets another incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(Uuid);

impl Incarnation {
    /// Creates a new, random incarnation.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "each call returns a new value, but a default \
            is always the same"
    )]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }
}

/// Identifies one run of a node. Each start of a node creates a new random id, so a restarted node
/// is never mistaken for its previous run.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::NodeStatus;
///
/// for node in client.nodes().await? {
///     if node.status == NodeStatus::Active {
///         let load = &node.load;
///         println!("{} {}: {} of {}", node.label, node.node, load.running, load.capacity);
///         println!("  takes the kinds {:?}", node.profile.kinds);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(Uuid);

impl NodeId {
    /// Creates a random id.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "each call returns a new value, but a default \
            is always the same"
    )]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }
}

macro_rules! uuid_id {
    ($type:ident) => {
        impl $type {
            /// Creates an id from its 16 bytes, which a store saved.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// Returns the 16 bytes of the id, for a store to save.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Returns the id as a UUID.
            #[must_use]
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self.0)
            }
        }

        impl From<Uuid> for $type {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl FromStr for $type {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id!(JobId);
uuid_id!(BatchId);
uuid_id!(NodeId);
uuid_id!(Incarnation);

/// The fencing token of one claim of one job. Every later write for the claim carries the token. A
/// write changes nothing if its token is not the token of the job's current claim.
///
/// The number of the claim, [`seq`](Self::seq), is not sufficient as a token. A database may fail
/// over to a copy that lacks a claim. The copy then assigns the number of that claim to another
/// claim. So the token also contains the node and the time of the claim.
///
/// ```
/// use ratchet::{Claim, NodeHook};
///
/// struct Lost;
///
/// impl NodeHook for Lost {
///     fn job_lost(&self, claim: &Claim) {
///         let token = claim.token;
///         eprintln!("claim {} of job {} was lost to another node", token.seq, token.job);
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClaimToken {
    /// The claimed job.
    pub job: JobId,
    /// The number of the claim: how many times the job has been claimed, including this claim.
    pub seq: u64,
    /// The node that made the claim. `None` if the job used up its crash budget: the store then
    /// takes the claim away from its node, and the claim stays without a node until it is settled
    /// (`[reclaim.exhausted]`).
    pub node: Option<NodeId>,
    /// When the claim was made, by the database's clock.
    /// [`UNIX_EPOCH`](chrono::DateTime::UNIX_EPOCH) if the store does not know the time.
    pub claimed_at: Timestamp,
}

impl ClaimToken {
    /// Builds the token of claim number `seq` of `job`, which `node` made at `claimed_at`.
    #[must_use]
    pub const fn new(job: JobId, seq: u64, node: Option<NodeId>, claimed_at: Timestamp) -> Self {
        Self {
            job,
            seq,
            node,
            claimed_at,
        }
    }

    /// Returns this token without its node. When a job has used up its crash budget, the store
    /// takes the claim away from its node. From then on, only the token without a node is valid
    /// (`[reclaim.exhausted]`).
    #[must_use]
    pub const fn disowned(self) -> Self {
        Self { node: None, ..self }
    }
}

/// The fencing token of one tenure of a lock. A tenure is the time during which one owner holds the
/// lock. Each new tenure of a lock has a larger fence.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for (name, lock) in client.locks().await? {
///     match lock.holder {
///         Some(held) => println!("{name}: {} for {:?}", held.owner, held.remaining),
///         None => println!("{name}: free, last fence {}", lock.fence.0),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Fence(pub u64);

/// Returns the next number of a sequence that must always increase, even after the database is
/// replaced by an earlier copy of itself: `max(previous + 1, now_millis)`.
///
/// Fences of locks and versions of namespaces are such numbers. An earlier copy of the database,
/// such as a backup, lacks the numbers that were assigned after the copy was made. This function
/// assumes that fewer numbers are assigned than milliseconds pass. The current time in milliseconds
/// is then greater than all numbers that the copy lacks.
///
/// # Examples
/// ```
/// use ratchet_core::next_in_time;
///
/// assert_eq!(next_in_time(7, 1_790_000_000_000), 1_790_000_000_000);
/// assert_eq!(next_in_time(1_790_000_000_000, 1_790_000_000_000), 1_790_000_000_001);
/// ```
#[must_use]
pub fn next_in_time(previous: u64, now_millis: i64) -> u64 {
    let now = u64::try_from(now_millis).unwrap_or(0);
    previous.saturating_add(1).max(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_json_an_id_is_the_text_of_its_uuid() {
        let id = JobId::new();
        let json = serde_json::to_string(&(id, BatchId::new(), NodeId::new())).unwrap();
        assert!(json.starts_with(&format!("[\"{id}\",\"")), "{json}");
        let (job, _, _): (JobId, BatchId, NodeId) = serde_json::from_str(&json).unwrap();
        assert_eq!(job, id);
    }

    #[test]
    fn job_ids_of_one_process_are_strictly_increasing() {
        let ids: Vec<JobId> = (0..10_000).map(|_| JobId::new()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_id_of_a_slot_is_its_own_and_tells_the_slot() {
        let (one, other) = (Incarnation::new(), Incarnation::new());
        let slot = |millis: i64| time::from_millis(1_790_000_000_000 + millis);
        let id = JobId::of_slot(one, slot(0));
        assert_eq!(id, JobId::of_slot(one, slot(0)));
        assert_ne!(id, JobId::of_slot(other, slot(0)));
        assert_ne!(id, JobId::of_slot(one, slot(1)));
        assert_eq!(id.slot(), Some(slot(0)));
        assert_eq!(JobId::new().slot(), None);
        assert!(id < JobId::of_slot(other, slot(1)));
        // Two ids with the same millisecond differ in the remaining bits, which come from the hash.
        let tail = |id: JobId| id.as_bytes()[9..].to_vec();
        assert_ne!(tail(id), tail(JobId::of_slot(other, slot(0))));
        let made_then = Uuid::new_v7(UuidTime::from_unix(uuid::NoContext, 1_790_000_001, 0));
        assert!(id < JobId(made_then));
    }

    #[test]
    fn ids_round_trip_as_text_and_bytes() {
        let id = JobId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(JobId::from_bytes(*id.as_bytes()), id);
        assert_ne!(NodeId::new(), NodeId::new());
    }
}
