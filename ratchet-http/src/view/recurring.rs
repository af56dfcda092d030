use ratchet_core::RecurringRecord;
use ratchet_core::schedule::{Misfire, Overlap};
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Level, millis};

/// One page of recurring definitions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Recurrings {
    /// The definitions, sorted by name.
    pub recurring: Vec<RecurringJob>,
    /// The value of `after` for the next page; null on the last page.
    pub next: Option<String>,
}

/// A recurring definition: a schedule and the job that it enqueues.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Recurring")]
#[non_exhaustive]
pub struct RecurringJob {
    /// The name of the definition.
    pub name: String,
    /// The kind of its jobs.
    pub kind: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The priority of its jobs.
    pub priority: Level,
    /// The schedule: the cron expression, or an interval such as `every 90s`.
    pub schedule: String,
    /// The time zone of the cron expression.
    pub zone: Option<String>,
    /// The interval; null for a cron expression.
    pub interval_ms: Option<u64>,
    /// Whether the definition is paused: its slots are not fired.
    pub paused: bool,
    /// Whether a program declares the definition. If false, a client created it at run time.
    pub declared: bool,
    /// The next slot; null if there is none. A paused definition does not fire it.
    pub next_at: Option<At>,
    /// The last slot that was fired.
    pub last_at: Option<At>,
    /// The policy for missed slots: `skip`, `fire_once` or `catch_up`.
    pub misfire: String,
    /// How many missed slots are fired; null unless the policy is `catch_up`.
    pub catch_up: Option<u32>,
    /// The overlap policy: with `skip`, a slot is skipped while the job of an earlier slot has not
    /// ended; with `allow`, it is not.
    pub overlap: String,
    /// The definition has no slots before this time.
    pub starts_at: Option<At>,
    /// The definition has no slots after this time.
    pub ends_at: Option<At>,
    /// When the definition was created.
    pub created_at: At,
}

impl From<&RecurringRecord> for RecurringJob {
    fn from(record: &RecurringRecord) -> Self {
        let definition = &record.definition;
        let (schedule, route) = (definition.schedule(), &definition.job().route);
        let (misfire, catch_up) = match definition.misfire() {
            Misfire::Skip => ("skip", None),
            Misfire::FireOnce => ("fire_once", None),
            Misfire::CatchUp(slots) => ("catch_up", Some(slots)),
        };
        let overlap = match definition.overlap() {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
        };
        let in_words = || schedule.to_string();
        Self {
            name: definition.name().to_string(),
            kind: route.kind.to_string(),
            queue: route.queue.to_string(),
            priority: definition.job().priority.into(),
            schedule: (schedule.expression()).map_or_else(in_words, ToOwned::to_owned),
            zone: schedule.zone().map(ToOwned::to_owned),
            interval_ms: schedule.interval().map(millis),
            paused: record.paused,
            declared: record.declared,
            next_at: record.next_fire.map(At),
            last_at: record.last_slot.map(At),
            misfire: misfire.to_owned(),
            catch_up,
            overlap: overlap.to_owned(),
            starts_at: definition.starts_at().map(At),
            ends_at: definition.ends_at().map(At),
            created_at: At(record.created_at),
        }
    }
}
