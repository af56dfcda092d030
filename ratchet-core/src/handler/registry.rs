use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;

#[cfg(feature = "tower")]
use super::layers::{Layers, Stacks};
use super::{Job, JobContext, JobError, JobResult, Requires};
use crate::json::{Json, misfit};
use crate::model::check_payload_version;
use crate::name::Name;

/// The body of a job: a future that returns the result to store.
pub(crate) type Body = BoxFuture<'static, JobResult<Option<Json>>>;

/// A type-erased handler of one job type.
trait Handler: Send + Sync {
    /// Returns the kind of the job type, not one of its aliases.
    fn kind(&self) -> &'static str;

    /// Returns the payload version of the job type.
    fn version(&self) -> u32;

    fn job_type(&self) -> (TypeId, &'static str);

    fn requires(&self) -> Requires;

    /// Decodes the payload and returns the body, which has not started yet. If the payload does not
    /// decode, returns the reason as the error.
    fn body(&self, payload: &Json, version: u32, context: JobContext) -> Result<Body, String>;
}

struct Typed<J>(PhantomData<fn() -> J>);

impl<J: Job> Handler for Typed<J> {
    fn kind(&self) -> &'static str {
        J::KIND
    }

    fn version(&self) -> u32 {
        J::VERSION
    }

    fn job_type(&self) -> (TypeId, &'static str) {
        (TypeId::of::<J>(), type_name::<J>())
    }

    fn requires(&self) -> Requires {
        J::requires()
    }

    fn body(&self, payload: &Json, version: u32, context: JobContext) -> Result<Body, String> {
        let job: J = decode(payload, version)?;
        Ok(Box::pin(async move {
            let output = job.run(context.of::<J>()).await?;
            // Discards the job, because another attempt would probably return the same output.
            let result = Json::encode("result", &output).map_err(JobError::discard)?;
            Ok(Some(result).filter(|json| !json.is_null()))
        }))
    }
}

/// Decodes a payload. `version` is the version of its format. An older payload is upcast first. If
/// the payload does not decode, returns the reason as the error.
pub(crate) fn decode<J: Job>(payload: &Json, version: u32) -> Result<J, String> {
    let no_such = |error| {
        format!(
            "the payload does not decode as a {}: {}",
            J::KIND,
            misfit(&error)
        )
    };
    if version > J::VERSION {
        return Err(format!(
            "the payload has version {version}, but this node supports only versions up to {}",
            J::VERSION
        ));
    }
    if version == J::VERSION {
        return payload.decode().map_err(no_such);
    }
    let stored = payload.decode().map_err(no_such)?;
    let upcast = J::upcast(version, stored).map_err(|error| {
        // The message includes the causes of the error.
        let error = JobError::from(error);
        format!("the payload could not be upcast from version {version}: {error}")
    })?;
    // Encodes to text first, because some types decode only from text.
    let upcast = Json::encode("payload", &upcast).map_err(|error| error.to_string())?;
    upcast.decode().map_err(no_such)
}

/// The handlers of a node. Each handler is stored under its kind and under each of its aliases.
#[derive(Default)]
pub(crate) struct Registry {
    handlers: BTreeMap<Name, Arc<dyn Handler>>,
    #[cfg(feature = "tower")]
    stacks: Stacks,
}

impl Registry {
    /// Adds the handler of a job type under its kind and its aliases.
    ///
    /// # Errors
    /// Returns all problems with the kind, the aliases and the payload version.
    pub(crate) fn register<J: Job>(&mut self) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        let handler: Arc<dyn Handler> = Arc::new(Typed::<J>(PhantomData));
        let ours = handler.job_type();
        if let Err(problem) = check_payload_version(J::VERSION) {
            problems.push(format!(
                "the payload version of {} is invalid: {problem}",
                ours.1
            ));
        }
        let aliases = J::ALIASES.iter().map(|alias| ("alias", *alias));
        let names = [("kind", J::KIND)].into_iter().chain(aliases);
        let mut own: Vec<Name> = Vec::new();
        for (field, name) in names {
            let name = match Name::new(field, name) {
                Ok(name) => name,
                Err(problem) => {
                    problems.push(format!("{} cannot be registered: {problem}", ours.1));
                    continue;
                }
            };
            if own.contains(&name) {
                problems.push(format!("{} uses the name {name} twice", ours.1));
                continue;
            }
            own.push(name.clone());
            let Some(other) = self.handlers.get(&name).map(|other| other.job_type()) else {
                self.handlers.insert(name, Arc::clone(&handler));
                continue;
            };
            if other.0 == ours.0 {
                problems.push(format!("kind {name} is registered twice"));
                break;
            }
            problems.push(format!(
                "the kind or alias {name} belongs to both {} and {}",
                other.1, ours.1
            ));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems),
        }
    }

    /// Returns the names under which jobs of this kind may be stored: the kind and its aliases.
    pub(crate) fn names_of(&self, kind: &str) -> impl Iterator<Item = &Name> {
        let named = self.handlers.iter();
        named.filter_map(move |(name, handler)| (handler.kind() == kind).then_some(name))
    }

    /// Returns the payload version of the handler for this kind. `None` if the kind has no handler.
    pub(crate) fn version(&self, kind: &Name) -> Option<u32> {
        Some(self.handlers.get(kind)?.version())
    }

    /// Decodes a payload of this kind and returns the body, wrapped in the node's layers. The body
    /// has not started yet.
    ///
    /// Returns `None` if the kind has no handler. If the payload does not decode, returns the
    /// reason as the error.
    pub(crate) fn body(
        &self,
        kind: &Name,
        payload: &Json,
        version: u32,
        context: &JobContext,
    ) -> Option<Result<Body, String>> {
        let handler = self.handlers.get(kind)?;
        let body = handler.body(payload, version, context.clone());
        #[cfg(feature = "tower")]
        let body = body.map(|body| self.stacks.around(handler.kind(), context, body));
        Some(body)
    }

    /// Returns all kinds and aliases for which the node has a handler.
    pub(crate) fn kinds(&self) -> Vec<Name> {
        self.handlers.keys().cloned().collect()
    }

    /// Sets the layers that wrap the bodies of jobs.
    ///
    /// # Errors
    /// Returns one problem for each layer that was added for a kind without a handler.
    #[cfg(feature = "tower")]
    pub(crate) fn stack(&mut self, layers: Layers) -> Result<(), Vec<String>> {
        let kinds: Vec<&'static str> = self.handlers.values().map(|one| one.kind()).collect();
        self.stacks = layers.stack(&kinds)?;
        Ok(())
    }

    /// Returns the state types that handlers require but that `state` lacks. Each type is returned
    /// with the kind that requires it.
    pub(crate) fn missing_state(&self, state: &StateMap) -> Vec<(Name, &'static str)> {
        let once = self
            .handlers
            .iter()
            .filter(|(kind, handler)| **kind == handler.kind());
        once.flat_map(|(kind, handler)| {
            let lacks = state.lacks(&handler.requires());
            lacks.into_iter().map(|name| (kind.clone(), name))
        })
        .collect()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

/// The shared state of a node: at most one value of each type, which all bodies can read.
#[derive(Default)]
pub(crate) struct StateMap(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl StateMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Returns the names of the required types that have no value in this map.
    pub(crate) fn lacks(&self, requires: &Requires) -> Vec<&'static str> {
        let types = requires.types();
        let lacking = types.filter(|(id, _)| !self.0.contains_key(id));
        lacking.map(|(_, name)| name).collect()
    }
}

impl fmt::Debug for StateMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateMap({} values)", self.0.len())
    }
}
