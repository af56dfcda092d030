//! The JSON format in which archives and recurring definitions keep a [`JobSpec`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::InvalidInput;
use crate::json::Json;
use crate::model::{After, FairKey, JobSpec, Parent, RecurringOrigin, SignalWait};
use crate::name::Name;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::route::Route;
use crate::time::{duration_millis, from_millis, to_millis};
use crate::trace::TraceContext;

/// The JSON form of a [`JobSpec`]. A missing optional field gets its default value, so documents of
/// earlier versions stay readable.
#[derive(Serialize, Deserialize)]
pub(super) struct SpecDocument {
    queue: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capability: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permit: Option<String>,
    payload: String,
    #[serde(default = "first_version", skip_serializing_if = "is_first")]
    payload_version: u32,
    #[serde(default = "usual_priority")]
    priority: u8,
    #[serde(default)]
    retry: RetryPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stall_timeout: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fair_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fair_cost: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recurring: Option<Origin>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<LinkDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<WaitDocument>,
}

#[derive(Serialize, Deserialize)]
struct Origin {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct LinkDocument {
    kind: u8,
    parent: String,
    condition: String,
}

#[derive(Serialize, Deserialize)]
struct WaitDocument {
    key: String,
    timeout: i64,
}

const fn first_version() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the version by reference"
)]
const fn is_first(version: &u32) -> bool {
    *version == 1
}

fn usual_priority() -> u8 {
    Priority::default().level()
}

impl SpecDocument {
    pub(super) fn of(spec: &JobSpec) -> Self {
        // Lists every field, so that this code stops compiling when a field is added and not
        // handled here.
        let JobSpec {
            route,
            payload,
            payload_version,
            priority,
            retry,
            timeout,
            stall_timeout,
            unique_key,
            idempotency_key,
            lane,
            fair_key,
            trace,
            tags,
            recurring,
            after,
            batch,
            signal,
        } = spec;
        let Route {
            queue,
            kind,
            capability,
            permit,
        } = route;
        let name = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
        Self {
            queue: queue.to_string(),
            kind: kind.to_string(),
            capability: name(capability),
            permit: name(permit),
            payload: payload.as_str().to_owned(),
            payload_version: *payload_version,
            priority: priority.level(),
            retry: *retry,
            timeout: timeout.map(duration_millis),
            stall_timeout: stall_timeout.map(duration_millis),
            unique_key: name(unique_key),
            idempotency_key: name(idempotency_key),
            lane: name(lane),
            fair_key: fair_key.as_ref().map(|key| key.name().to_string()),
            fair_cost: fair_key.as_ref().map(FairKey::cost),
            traceparent: trace.as_ref().map(|trace| trace.traceparent().to_owned()),
            tracestate: (trace.as_ref()).and_then(|trace| trace.tracestate().map(str::to_owned)),
            tags: tags.iter().map(ToString::to_string).collect(),
            recurring: recurring.as_ref().map(|origin| Origin {
                name: origin.name.to_string(),
                slot: origin.slot.map(to_millis),
            }),
            after: after.iter().map(link).collect(),
            batch: batch.map(|batch| batch.to_string()),
            signal: signal.as_ref().map(|wait| WaitDocument {
                key: wait.key.to_string(),
                timeout: duration_millis(wait.timeout),
            }),
        }
    }

    /// Converts the document into a [`JobSpec`].
    ///
    /// # Errors
    /// [`InvalidInput`] naming the invalid part.
    pub(super) fn into_spec(self) -> Result<JobSpec, InvalidInput> {
        let name =
            |field, text: Option<String>| text.map(|text| Name::new(field, text)).transpose();
        let route = Route {
            queue: Name::new("queue", self.queue)?,
            kind: Name::new("kind", self.kind)?,
            capability: name("capability", self.capability)?,
            permit: name("permit", self.permit)?,
        };
        let mut spec = JobSpec::new(route, Json::from_stored(self.payload));
        spec.payload_version = self.payload_version;
        spec.priority = Priority::from_level(self.priority.into())?;
        self.retry.validate()?;
        spec.retry = self.retry;
        spec.timeout = self.timeout.map(millis);
        spec.stall_timeout = self.stall_timeout.map(millis);
        spec.unique_key = name("unique_key", self.unique_key)?;
        spec.idempotency_key = name("idempotency_key", self.idempotency_key)?;
        spec.lane = name("lane", self.lane)?;
        spec.fair_key = match self.fair_key {
            None => None,
            Some(key) => {
                let cost = self.fair_cost.unwrap_or(FairKey::UNIT);
                Some(FairKey::from_stored(&key, cost.into())?)
            }
        };
        let state = self.tracestate;
        spec.trace = (self.traceparent).map(|parent| TraceContext::from_stored(parent, state));
        let tags = self.tags.into_iter().map(|tag| Name::new("tag", tag));
        spec.tags = tags.collect::<Result<_, _>>()?;
        spec.recurring = match self.recurring {
            None => None,
            Some(origin) => Some(RecurringOrigin {
                name: Name::new("recurring", origin.name)?,
                slot: origin.slot.map(from_millis),
            }),
        };
        let after = self.after.iter().map(after);
        spec.after = after.collect::<Result<_, _>>()?;
        spec.batch = (self.batch.map(|batch| batch.parse()).transpose())
            .map_err(|_| InvalidInput::new("batch", "is not a valid id"))?;
        spec.signal = match self.signal {
            None => None,
            Some(wait) => {
                let key = Name::new("signal", wait.key)?;
                Some(SignalWait::new(key, millis(wait.timeout)))
            }
        };
        Ok(spec)
    }
}

fn link(after: &After) -> LinkDocument {
    let parent = after.parent();
    LinkDocument {
        kind: parent.code(),
        parent: Uuid::from_bytes(*parent.as_bytes()).to_string(),
        condition: after.to_stored(),
    }
}

fn after(link: &LinkDocument) -> Result<After, InvalidInput> {
    let id: Uuid =
        (link.parent.parse()).map_err(|_| InvalidInput::new("parent", "is not a valid id"))?;
    let parent = Parent::from_stored(link.kind.into(), id.into_bytes())?;
    After::from_stored(parent, &link.condition)
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}
