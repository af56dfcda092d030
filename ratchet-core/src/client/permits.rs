use super::Client;
use crate::cluster::Wakeup;
use crate::error::{InvalidInput, Result};
use crate::model::PermitInfo;
use crate::name::Name;
use crate::store::{Changed, IfKnown};

impl Client {
    /// Sets how many jobs with the [permit](crate::NewJob::permit) of this resource may run at once in
    /// the cluster; the first time it also makes the resource known. 0 lets none run.
    ///
    /// Jobs that run already go on, also if there are more of them than are allowed from now on.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or if the store has no permits (`permit`); or a failure of the store.
    pub async fn set_permits(&self, resource: &str, max: u32) -> Result<Changed> {
        let resource = &Name::new("permit", resource)?;
        let set = self.0.calls.call("set_permits", |store| async move {
            let permits = store.permits().ok_or_else(no_permits)?;
            permits.set_permits(resource, max, IfKnown::Change).await
        });
        let changed = set.await?;
        if changed == Changed::Changed {
            // There may be more than before, and jobs that wait for them in any queue.
            self.wake(Wakeup::any()).await;
        }
        Ok(changed)
    }

    /// Makes a resource known with this number of permits, unless it is known.
    pub(crate) async fn declare_permits(&self, resource: &Name, max: u32) -> Result<Changed> {
        let declared = self.0.calls.call("set_permits", |store| async move {
            let permits = store.permits().ok_or_else(no_permits)?;
            permits.set_permits(resource, max, IfKnown::Keep).await
        });
        declared.await
    }

    /// Lists the resources, how many permits each has, and how many are held.
    ///
    /// # Errors
    /// `Invalid` if the store has no permits (`permit`), or a failure of the store.
    pub async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.0
            .calls
            .call("permits", |store| async move {
                let permits = store.permits().ok_or_else(no_permits)?;
                permits.permits().await
            })
            .await
    }
}

fn no_permits() -> InvalidInput {
    InvalidInput::new("permit", "is nothing that this store has")
}
