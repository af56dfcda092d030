use async_trait::async_trait;

use super::MemoryStore;
use super::tables::Tables;
use crate::error::{InvalidInput, Result, StoreError};
use crate::model::{NewJob, PermitInfo};
use crate::name::Name;
use crate::store::{Changed, PermitStore};

#[async_trait]
impl PermitStore for MemoryStore {
    async fn set_permits(&self, resource: &Name, max: u32) -> Result<Changed> {
        self.call("set_permits", |tables, _| {
            let before = tables.permits.insert(resource.clone(), max);
            Ok(if before == Some(max) {
                Changed::Unchanged
            } else {
                Changed::Changed
            })
        })
        .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.call("permits", |tables, _| Ok(tables.held_permits()))
            .await
    }
}

impl Tables {
    /// Refuses a batch with a job that needs a permit of an unknown resource.
    pub(super) fn require_permits(&self, jobs: &[NewJob]) -> Result<()> {
        let mut resources = jobs
            .iter()
            .filter_map(|job| job.spec().route.permit.as_ref());
        match resources.find(|resource| !self.permits.contains_key(*resource)) {
            None => Ok(()),
            Some(resource) => {
                Err(StoreError::from(InvalidInput::unknown_permit(resource)).during("enqueue"))
            }
        }
    }

    /// Every resource and how many jobs run that need it.
    pub(super) fn held_permits(&self) -> Vec<PermitInfo> {
        let held = |resource: &Name| {
            self.running()
                .filter(|row| row.job.spec.route.permit.as_ref() == Some(resource))
                .count() as u64
        };
        self.permits
            .iter()
            .map(|(resource, max)| PermitInfo::new(resource.clone(), *max, held(resource)))
            .collect()
    }
}
