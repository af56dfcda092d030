use std::collections::BTreeMap;

use tokio::sync::OnceCell;

use super::Client;
use crate::cluster::Wakeup;
use crate::error::{InvalidInput, Result};
use crate::model::PermitInfo;
use crate::name::Name;
use crate::store::{Changed, IfKnown};

impl Client {
    /// Sets how many jobs with the [permit](crate::NewJob::permit) of this resource may run at once
    /// in the cluster. The first call for a resource also creates it. With 0, no such job may run.
    ///
    /// Jobs that already run continue, even if more of them run than the new maximum.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or naming `permit` if the store has no permits; or a failure of
    /// the store.
    pub async fn set_permits(&self, resource: &str, max: u32) -> Result<Changed> {
        let resource = &Name::new("permit", resource)?;
        let set = self.0.calls.call("set_permits", |store| async move {
            let permits = store.permits().ok_or_else(no_permits)?;
            permits.set_permits(resource, max, IfKnown::Change).await
        });
        let changed = set.await?;
        if changed == Changed::Changed {
            // Jobs in any queue may wait for the permits that this call added.
            self.wake(Wakeup::any()).await;
        }
        Ok(changed)
    }

    /// Creates the resources that the node's program declares, and keeps the numbers of existing
    /// ones. Does nothing after the first success.
    pub(crate) async fn declare_permits(&self) -> Result<()> {
        let DeclaredPermits { permits, known } = &*self.0.permits;
        if permits.is_empty() {
            return Ok(());
        }
        known.get_or_try_init(|| self.declare(permits)).await?;
        Ok(())
    }

    async fn declare(&self, permits: &BTreeMap<Name, u32>) -> Result<()> {
        let listed = self.permits().await?;
        for (resource, max) in permits {
            match listed.iter().find(|info| info.resource == *resource) {
                // Setting the same number again would lock the row, so each joining node would wait
                // for the claims that hold this lock.
                Some(info) if info.max == *max => {}
                Some(info) => tracing::info!(
                    target: "ratchet::node",
                    %resource, known = info.max, declared = max,
                    "the store has another number of permits for this resource than the node \
                     declares, and keeps it; to change it, call Client::set_permits"
                ),
                None => {
                    let declared = self.0.calls.call("set_permits", |store| async move {
                        let permits = store.permits().ok_or_else(no_permits)?;
                        permits.set_permits(resource, *max, IfKnown::Keep).await
                    });
                    declared.await?;
                }
            }
        }
        Ok(())
    }

    /// Lists the resources with the number of permits of each, and how many are held.
    ///
    /// # Errors
    /// `Invalid`, naming `permit`, if the store has no permits; or a failure of the store.
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
    InvalidInput::new("permit", "is not supported by this store")
}

/// The permits that the node's program declares, by resource.
#[derive(Debug, Default)]
pub(super) struct DeclaredPermits {
    permits: BTreeMap<Name, u32>,
    /// Set once every declared resource exists in the store.
    known: OnceCell<()>,
}

impl DeclaredPermits {
    pub(super) fn new(permits: BTreeMap<Name, u32>) -> Self {
        Self {
            permits,
            known: OnceCell::new(),
        }
    }
}
