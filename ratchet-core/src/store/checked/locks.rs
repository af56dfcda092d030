use std::time::Duration;

use async_trait::async_trait;

use super::{Checked, check};
use crate::error::Result;
use crate::id::Fence;
use crate::limits::check_limit;
use crate::model::{Fenced, positive};
use crate::name::Name;
use crate::store::{Acquired, LockInfo, LockStore, Store};

#[async_trait]
impl<S: Store + ?Sized> LockStore for Checked<S> {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        check("acquire", positive("ttl", ttl))?;
        self.call("acquire", || self.store.locks().acquire(name, owner, ttl))
            .await
    }

    async fn renew(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Fenced> {
        check("renew", positive("ttl", ttl))?;
        self.call("renew", || {
            self.store.locks().renew(name, owner, fence, ttl)
        })
        .await
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        self.call("release", || self.store.locks().release(name, owner, fence))
            .await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        self.call("inspect", || self.store.locks().inspect(name))
            .await
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        check("list_locks", check_limit("limit", limit))?;
        self.call("list_locks", || self.store.locks().list_locks(after, limit))
            .await
    }
}
