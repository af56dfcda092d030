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
    /// Value of the query parameter `after` that requests the next page. Null on the last page.
    pub next: Option<String>,
}

/// A recurring definition: a schedule, and the job that Ratchet enqueues for each slot of the
/// schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Recurring")]
#[non_exhaustive]
pub struct RecurringJob {
    /// The name of the definition.
    pub name: String,
    /// Kind of the definition's jobs.
    pub kind: String,
    /// Queue of the definition's jobs.
    pub queue: String,
    /// Priority of the definition's jobs.
    pub priority: Level,
    /// Schedule of the definition: a cron expression, or an interval such as `every 90s`.
    pub schedule: String,
    /// Time zone of the cron expression. Null if the schedule is an interval.
    pub zone: Option<String>,
    /// Interval between two slots, in milliseconds. Null if the schedule is a cron expression.
    pub interval_ms: Option<u64>,
    /// Whether the definition is paused. No slots of a paused definition are fired.
    pub paused: bool,
    /// Whether a program declares the definition in its code. If false, a client created the
    /// definition at run time.
    pub declared: bool,
    /// Next slot of the definition. Null if the definition has no more slots. The slot is not fired
    /// while the definition is paused.
    pub next_at: Option<At>,
    /// Last slot that was fired. Null if no slot was fired yet.
    pub last_at: Option<At>,
    /// Policy for missed slots: `skip`, `fire_once` or `catch_up`.
    pub misfire: String,
    /// Maximum number of missed slots that are fired. Null unless `misfire` is `catch_up`.
    pub catch_up: Option<u32>,
    /// Overlap policy. With `allow`, the jobs of different slots may run at the same time. With
    /// `skip`, a slot is skipped while a job of an earlier slot has not ended.
    pub overlap: String,
    /// Unique key of the definition's jobs. A slot is skipped while any job with this key has not
    /// ended. Null if the definition sets no key.
    pub unique_key: Option<String>,
    /// Start of the schedule: the definition has no slots before this time. Null if the schedule
    /// has no start.
    pub starts_at: Option<At>,
    /// End of the schedule: the definition has no slots after this time. Null if the schedule has
    /// no end.
    pub ends_at: Option<At>,
    /// Time at which the definition was created.
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
            unique_key: definition
                .job()
                .unique_key
                .as_ref()
                .map(ToString::to_string),
            starts_at: definition.starts_at().map(At),
            ends_at: definition.ends_at().map(At),
            created_at: At(record.created_at),
        }
    }
}
