use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Job, JobContext, JobError, JobResult, Requires};
use crate::error::InvalidInput;
use crate::json::Json;
use crate::name::Name;

/// The body of a job, running: its result is what is to be kept.
pub(crate) type Body = BoxFuture<'static, JobResult<Option<Json>>>;

/// A handler whose job type is forgotten.
pub(crate) trait Handler: Send + Sync {
    /// The body for this payload, not yet begun.
    fn body(&self, payload: &Json, context: JobContext) -> Result<Body, serde_json::Error>;

    fn requires(&self) -> Requires;
}

struct Typed<J>(PhantomData<fn() -> J>);

impl<J: Job> Handler for Typed<J> {
    fn body(&self, payload: &Json, context: JobContext) -> Result<Body, serde_json::Error> {
        let job: J = payload.decode()?;
        Ok(Box::pin(async move {
            let output = job.run(context).await?;
            // Another attempt would give the same.
            let result = Json::encode("result", &output).map_err(JobError::discard)?;
            Ok(Some(result).filter(|json| !json.is_null()))
        }))
    }

    fn requires(&self) -> Requires {
        J::requires()
    }
}

/// The handlers of a node, by kind.
#[derive(Clone, Default)]
pub(crate) struct Registry(BTreeMap<Name, Arc<dyn Handler>>);

impl Registry {
    /// Adds the handler of a job type.
    pub(crate) fn register<J: Job>(&mut self) -> Result<(), InvalidInput> {
        let kind = Name::new("kind", J::KIND)?;
        let handler = Arc::new(Typed::<J>(PhantomData));
        match self.0.insert(kind, handler) {
            None => Ok(()),
            Some(_) => Err(InvalidInput::new(
                "kind",
                format!("{:?} is registered twice", J::KIND),
            )),
        }
    }

    pub(crate) fn get(&self, kind: &Name) -> Option<&Arc<dyn Handler>> {
        self.0.get(kind)
    }

    pub(crate) fn kinds(&self) -> Vec<Name> {
        self.0.keys().cloned().collect()
    }

    /// Kinds and the state types they need and do not have.
    pub(crate) fn missing_state(&self, state: &StateMap) -> Vec<(Name, &'static str)> {
        let missing = |(kind, handler): (&Name, &Arc<dyn Handler>)| {
            let types = handler.requires();
            let lacks: Vec<&'static str> = types
                .types()
                .filter(|(id, _)| !state.0.contains_key(id))
                .map(|(_, name)| name)
                .collect();
            let kind = kind.clone();
            lacks.into_iter().map(move |name| (kind.clone(), name))
        };
        self.0.iter().flat_map(missing).collect()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Values shared by all bodies of a node, one per type.
#[derive(Default)]
pub(crate) struct StateMap(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl StateMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for StateMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateMap({} values)", self.0.len())
    }
}
