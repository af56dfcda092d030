//! The keys of the rows and of the indexes.
//!
//! A key begins with the byte of its [`Table`]. Then come its parts, each encoded so that the bytes
//! have the order of the values. A name ends with a zero byte, which no name contains.

use std::collections::BTreeSet;
use std::ops::Range;

use ratchet_core::fair::is_parked;
use ratchet_core::model::{Parent, StoredJob};
use ratchet_core::state::JobState;
use ratchet_core::time::to_millis;
use ratchet_core::{BatchId, JobId, Name, NodeId, Priority, Route};

/// The first byte of a key. The numbers are stored, so they never change. Before the arrow or the
/// colon, each variant lists the parts of its keys. After an arrow comes the value.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Table {
    /// Job → the `StoredJob`, and its keys in the indexes.
    Job = 0,
    /// Job, number of the claim → `Attempt`.
    History = 1,
    /// Idempotency key → the first job that used it and, if the key has a lifetime, the time at
    /// which the key is free again.
    Idempotency = 2,
    /// Code of the scope, name → `PauseInfo`.
    Paused = 3,
    /// Node → `NodeRecord`.
    Node = 4,
    /// Name → `StoredLock`.
    Lock = 5,
    /// Namespace → version.
    Version = 6,
    /// Name → `RecurringRecord`.
    Recurring = 7,
    /// Job → the time at which the job was archived, and the document.
    Archive = 8,
    /// Time of the end, job: the archived jobs, by the time at which they ended.
    ArchivedBy = 9,
    /// Resource → the maximum number of permits.
    Permits = 10,
    /// Rate key → theoretical arrival time, in microseconds.
    Rate = 11,
    /// Batch → `BatchRecord`.
    Batch = 12,
    /// No further part → the number of the format.
    Format = 13,
    /// Name → an empty value: the recurring definition cannot be read, and a claim reported this.
    Unreadable = 14,
    /// Queue, fair key or nothing → `FairLimit`.
    FairLimit = 15,
    /// Pattern of queues, nothing → `FairLimit`. The number comes directly after that of
    /// `FairLimit`, so one read finds out whether there is any limit.
    FairPattern = 16,
    /// Queue, time, fair key: the freed entries (see `ratchet_core::fair`), the oldest first.
    Freed = 17,
    /// Route, priority, fair key, turn, cost, job: the pending jobs that have a turn. The cost of a
    /// parked job is 0, so parked jobs with the same turn come in the order of their ids.
    KeyTurn = 28,
    /// Route, priority, turn, fair key, due time, job: the same jobs in claim order. Two jobs of a
    /// key never have the same turn, so the due time does not change the order. Parked jobs come
    /// last.
    Turn = 29,
    /// Route, due time, job: the pending jobs with a fair key that have no turn.
    Asleep = 30,
    /// Route, priority, due time, job: the pending jobs with a fair key. The number comes directly
    /// before that of `Pending`, so one scan finds the routes of both.
    PendingFair = 31,
    /// Route, priority, due time, job: the pending jobs without a fair key.
    Pending = 32,
    /// Node, job: the running jobs.
    Running = 33,
    /// Resource, job: the running jobs that hold a permit.
    Holding = 34,
    /// State, time of the end, job: the ended jobs.
    Ended = 35,
    /// Unique key, job: the unfinished job that has the key.
    Unique = 36,
    /// Queue, lane, sequence number, job: the unfinished jobs of each lane.
    Lane = 37,
    /// Parent, job: the children of each parent.
    Child = 38,
    /// Key of the signal, job: the jobs that were enqueued to wait for this signal.
    Signal = 39,
    /// Deadline, job: the jobs that wait for a signal.
    Deadline = 40,
    /// Tag, job: the jobs with the tag.
    Tag = 41,
    /// Queue, state, job: every job, under its queue and its state.
    State = 42,
    /// Time, name: the idempotency keys with a lifetime, by the time at which they are free again.
    KeyExpiry = 43,
    /// Time, job: the waiting jobs that expire.
    Expiry = 44,
    /// Queue, fair key, job: the running jobs with a fair key.
    Place = 45,
}

/// A key, or the beginning of one.
#[derive(Clone, Debug)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn new(table: Table) -> Self {
        Self(vec![table as u8])
    }

    pub(crate) fn name(mut self, name: &str) -> Self {
        self.0.extend(name.as_bytes());
        self.0.push(0);
        self
    }

    pub(crate) fn job(mut self, id: JobId) -> Self {
        self.0.extend(id.as_bytes());
        self
    }

    pub(crate) fn batch(mut self, id: BatchId) -> Self {
        self.0.extend(id.as_bytes());
        self
    }

    /// Adds the id of a node. `None` is encoded so that it comes before every node.
    pub(crate) fn node(mut self, id: Option<NodeId>) -> Self {
        self.0.extend(id.map_or([0; 16], |id| *id.as_bytes()));
        self
    }

    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    /// Adds a number, encoded so that negative numbers come before positive ones.
    pub(crate) fn number(mut self, number: i64) -> Self {
        self.0.extend((number ^ i64::MIN).to_be_bytes());
        self
    }

    pub(crate) fn cost(mut self, cost: u32) -> Self {
        self.0.extend(cost.to_be_bytes());
        self
    }

    pub(crate) fn sequence(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn route(self, route: &Route) -> Self {
        self.name(route.queue.as_str())
            .name(route.kind.as_str())
            .name(route.capability_text())
            .name(route.permit_text())
    }

    pub(crate) fn parent(self, parent: Parent) -> Self {
        match parent {
            Parent::Job(job) => self.byte(0).job(job),
            Parent::Batch(batch) => self.byte(1).batch(batch),
        }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the range of the keys that begin with this one.
    pub(crate) fn all(self) -> Range<Vec<u8>> {
        let end = self.clone().end();
        self.0..end
    }

    /// Returns the range from `start` to the last key that begins with this one.
    pub(crate) fn from(self, start: Vec<u8>) -> Range<Vec<u8>> {
        start..self.end()
    }

    /// Returns the range of the keys that begin with this one and come before `end`.
    pub(crate) fn before(self, end: Vec<u8>) -> Range<Vec<u8>> {
        self.0..end
    }

    /// Returns the first key after all keys that begin with this one.
    pub(crate) fn end(mut self) -> Vec<u8> {
        while let Some(last) = self.0.pop() {
            if last < u8::MAX {
                self.0.push(last + 1);
                break;
            }
        }
        self.0
    }
}

/// Returns the smallest key after `key`.
pub(crate) fn after(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// Reads the parts of a key, in the order in which they were added.
#[derive(Clone, Debug)]
pub(crate) struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    pub(crate) fn of(key: &'a [u8]) -> Self {
        Self(key.get(1..).unwrap_or_default())
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*part)
    }

    pub(crate) fn name(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(&self.0[..end]).ok()?;
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    pub(crate) fn node(&mut self) -> Option<NodeId> {
        let bytes = self.take()?;
        (bytes != [0; 16]).then(|| NodeId::from_bytes(bytes))
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(crate) fn number(&mut self) -> Option<i64> {
        self.take()
            .map(|bytes| i64::from_be_bytes(bytes) ^ i64::MIN)
    }

    pub(crate) fn cost(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn route(&mut self) -> Option<Route> {
        let mut next = || self.name();
        Route::from_texts(next()?, next()?, next()?, next()?).ok()
    }
}

/// Returns the job whose id is at the end of an index key.
pub(crate) fn job_of(key: &[u8]) -> Option<JobId> {
    key.last_chunk().map(|bytes| JobId::from_bytes(*bytes))
}

/// Returns the due time before the id at the end of a key.
pub(crate) fn due_of(key: &[u8]) -> Option<i64> {
    let (rest, _) = key.split_last_chunk::<16>()?;
    Parts(rest.last_chunk::<8>()?).number()
}

/// Returns the bytes with which the keys of all jobs in a lane begin.
pub(crate) fn lane(queue: &Name, lane: &Name) -> Key {
    Key::new(Table::Lane)
        .name(queue.as_str())
        .name(lane.as_str())
}

/// Returns the bytes with which the keys of all jobs in a lane begin. `key` is the key of one of
/// these jobs. Returns `None` if the key belongs to another index.
pub(crate) fn lane_of(key: &[u8]) -> Option<Key> {
    /// The length of a sequence number and an id.
    const OF_ONE: usize = 8 + 16;
    let lane = &key[..key.len().checked_sub(OF_ONE)?];
    (key.first() == Some(&(Table::Lane as u8))).then(|| Key(lane.to_vec()))
}

/// Returns the node that runs a job, from the key of the job in the index of running jobs. `None`
/// if the key belongs to another index, or if no node has the claim.
pub(crate) fn runner_of(key: &[u8]) -> Option<NodeId> {
    let is_running = key.first() == Some(&(Table::Running as u8));
    is_running.then(|| Parts::of(key).node()).flatten()
}

/// Returns the bytes with which the keys of the running jobs of a fair key begin.
pub(crate) fn place(queue: &Name, key: &Name) -> Key {
    Key::new(Table::Place)
        .name(queue.as_str())
        .name(key.as_str())
}

/// Returns queue and fair key of a job that runs or has a turn and is not parked, from its key in
/// the index of running jobs or of turns. `None` if the key belongs to another index.
pub(crate) fn place_of(key: &[u8]) -> Option<(Name, Name)> {
    let mut parts = Parts::of(key);
    let (queue, key) = match *key.first()? {
        table if table == Table::Place as u8 => (parts.name()?, parts.name()?),
        table if table == Table::Turn as u8 => {
            let queue = parts.clone().name()?;
            parts.route()?;
            parts.byte()?;
            parts.number().filter(|turn| !is_parked(*turn))?;
            (queue, parts.name()?)
        }
        _ => return None,
    };
    Name::new("queue", queue)
        .ok()
        .zip(Name::new("fair_key", key).ok())
}

/// Returns the bytes with which the keys of a route and priority begin in an index of pending jobs.
pub(crate) fn level(table: Table, route: &Route, priority: Priority) -> Key {
    Key::new(table).route(route).byte(priority.level())
}

/// Returns the bytes with which the keys of the turns of a fair key begin.
pub(crate) fn turns_of(route: &Route, priority: Priority, key: &Name) -> Key {
    level(Table::KeyTurn, route, priority).name(key.as_str())
}

/// Returns the keys that a job has in the indexes.
pub(crate) fn entries(stored: &StoredJob) -> BTreeSet<Vec<u8>> {
    let job = &stored.record;
    let (spec, route) = (&job.spec, &job.spec.route);
    let state = Key::new(Table::State).name(route.queue.as_str());
    let mut keys = vec![state.byte(job.state.code())];
    match job.state {
        JobState::Pending => {
            let run_at = to_millis(job.run_at);
            let at = |table| level(table, route, spec.priority);
            let table = match &spec.fair_key {
                None => Table::Pending,
                Some(_) => Table::PendingFair,
            };
            keys.push(at(table).number(run_at));
            match (&spec.fair_key, stored.turn) {
                (Some(key), Some(turn)) => {
                    let name = key.name();
                    let cost = match is_parked(turn) {
                        true => 0,
                        false => key.cost(),
                    };
                    let turns = at(Table::Turn).number(turn);
                    keys.push(turns.name(name.as_str()).number(run_at));
                    let of_key = turns_of(route, spec.priority, name);
                    keys.push(of_key.number(turn).cost(cost));
                }
                (Some(_), None) => {
                    keys.push(Key::new(Table::Asleep).route(route).number(run_at));
                }
                (None, _) => {}
            }
        }
        JobState::Running => {
            keys.push(Key::new(Table::Running).node(job.node));
            let resource = route.permit.as_ref();
            keys.extend(resource.map(|name| Key::new(Table::Holding).name(name.as_str())));
            let fair_key = stored.fair_key();
            keys.extend(fair_key.map(|key| place(&route.queue, key)));
        }
        JobState::Blocked | JobState::Paused => {}
        JobState::Succeeded | JobState::Failed | JobState::Cancelled => {
            let at = job.finished_at.map_or(0, to_millis);
            keys.push(Key::new(Table::Ended).byte(job.state.code()).number(at));
        }
    }
    if let Some(unique) = spec
        .unique_key
        .as_ref()
        .filter(|_| !job.state.is_terminal())
    {
        keys.push(Key::new(Table::Unique).name(unique.as_str()));
    }
    if let (Some(name), Some(seq)) = (&spec.lane, stored.lane_seq) {
        keys.push(lane(&route.queue, name).number(seq));
    }
    for after in &spec.after {
        keys.push(Key::new(Table::Child).parent(after.parent()));
    }
    if let Some(wait) = &spec.signal {
        keys.push(Key::new(Table::Signal).name(wait.key.as_str()));
    }
    if let Some(deadline) = stored.signal_deadline() {
        keys.push(Key::new(Table::Deadline).number(deadline));
    }
    if let Some(expiry) = stored.expiry() {
        keys.push(Key::new(Table::Expiry).number(expiry));
    }
    for tag in &spec.tags {
        keys.push(Key::new(Table::Tag).name(tag.as_str()));
    }
    let with_job = |key: Key| key.job(job.id).bytes();
    keys.into_iter().map(with_job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_order_and_are_read_back() {
        let numbers = [i64::MIN, -2, -1, 0, 1, 255, 256, i64::MAX];
        let key = |number| Key::new(Table::Deadline).number(number).bytes();
        assert!(numbers.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        for number in numbers {
            assert_eq!(Parts::of(&key(number)).number(), Some(number));
        }
    }

    #[test]
    fn a_range_has_exactly_the_keys_that_begin_with_its_key() {
        let range = Key::new(Table::Lane).name("a").all();
        let key = |lane| Key::new(Table::Lane).name(lane).name("x").bytes();
        assert!(range.contains(&key("a")));
        assert!(!range.contains(&key("aa")) && !range.contains(&key("b")));
        let last = Key(vec![7, u8::MAX, u8::MAX]);
        assert_eq!(last.end(), [8]);
    }

    #[test]
    fn the_longest_key_has_the_length_that_engines_are_promised() {
        let name = "n".repeat(Name::MAX_BYTES);
        let route = Route::from_texts(&name, &name, &name, &name).unwrap();
        let name = Name::new("name", &name).unwrap();
        let length = |key: Key| key.job(JobId::new()).bytes().len();
        let turn = level(Table::Turn, &route, Priority::High);
        let turn = turn.number(0).name(name.as_str()).number(0);
        assert_eq!(length(turn), 679);
        let of_key = turns_of(&route, Priority::High, &name).number(0).cost(0);
        assert!(length(of_key) < 679);
        let pending = level(Table::Pending, &route, Priority::High).number(0);
        assert_eq!(length(pending), 542);
        assert!(length(lane(&name, &name).number(0)) < 542);
    }

    #[test]
    fn a_route_is_read_back() {
        for texts in [("q", "k", "", ""), ("q", "k", "gpu", "api")] {
            let route = Route::from_texts(texts.0, texts.1, texts.2, texts.3).unwrap();
            let key = level(Table::Pending, &route, Priority::High).number(-5);
            let key = key.job(JobId::new()).bytes();
            let mut parts = Parts::of(&key);
            assert_eq!(parts.route(), Some(route));
            assert_eq!((parts.byte(), parts.number()), (Some(3), Some(-5)));
            assert_eq!(due_of(&key), Some(-5));
        }
    }
}
