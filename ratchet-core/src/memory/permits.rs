use async_trait::async_trait;

use super::MemoryStore;
use super::tables::Tables;
use crate::error::{InvalidInput, Result, StoreError};
use crate::model::{NewJob, PermitInfo};
use crate::name::Name;
use crate::route::Route;
use crate::store::{Changed, IfKnown, PermitStore};

#[async_trait]
impl PermitStore for MemoryStore {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        self.call("set_permits", |tables, _| {
            if if_known == IfKnown::Keep && tables.permits.contains_key(resource) {
                return Ok(Changed::Unchanged);
            }
            let before = tables.permits.insert(resource.clone(), max);
            Ok(Changed::when(before != Some(max)))
        })
        .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.call("permits", |tables, _| Ok(tables.held_permits()))
            .await
    }
}

impl Tables {
    /// Refuses an enqueue if one of its jobs needs a permit of a resource without a limit.
    pub(super) fn require_permits(&self, jobs: &[NewJob]) -> Result<()> {
        let mut routes = jobs.iter().map(|job| &job.spec().route);
        routes.try_for_each(|route| self.require_permit(route, "enqueue"))
    }

    /// Refuses a route that needs a permit of a resource without a limit.
    pub(super) fn require_permit(&self, route: &Route, operation: &'static str) -> Result<()> {
        match &route.permit {
            Some(resource) if !self.permits.contains_key(resource) => {
                Err(StoreError::from(InvalidInput::unknown_permit(resource)).during(operation))
            }
            _ => Ok(()),
        }
    }

    /// Returns every resource that has a limit, with the number of running jobs that hold its
    /// permits.
    pub(super) fn held_permits(&self) -> Vec<PermitInfo> {
        let held = |resource: &Name| {
            self.running()
                .filter(|row| row.record.spec.route.permit.as_ref() == Some(resource))
                .count() as u64
        };
        self.permits
            .iter()
            .map(|(resource, max)| PermitInfo::new(resource.clone(), *max, held(resource)))
            .collect()
    }
}
