use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::{InvalidInput, Result};
use crate::model::{NewJob, PermitInfo};
use crate::name::Name;
use crate::route::Route;
use crate::store::{Changed, IfKnown, PermitStore};

#[async_trait]
impl PermitStore for MemoryStore {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        self.write(Command::SetPermits {
            resource: resource.clone(),
            max,
            if_known,
        })
        .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.read("permits", |tables, _| tables.held_permits())
            .await
    }
}

impl Tables {
    pub(super) fn set_permits(&mut self, resource: &Name, max: u32, if_known: IfKnown) -> Changed {
        if if_known == IfKnown::Keep && self.permits.contains_key(resource) {
            return Changed::Unchanged;
        }
        let before = self.permits.insert(resource.clone(), max);
        Changed::when(before != Some(max))
    }

    /// Refuses an enqueue if one of its jobs needs a permit of a resource without a limit.
    pub(super) fn require_permits(&self, jobs: &[NewJob]) -> Result<(), InvalidInput> {
        let mut routes = jobs.iter().map(|job| &job.spec().route);
        routes.try_for_each(|route| self.require_permit(route))
    }

    /// Refuses a route that needs a permit of a resource without a limit.
    pub(super) fn require_permit(&self, route: &Route) -> Result<(), InvalidInput> {
        match &route.permit {
            Some(resource) if !self.permits.contains_key(resource) => {
                Err(InvalidInput::unknown_permit(resource))
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
