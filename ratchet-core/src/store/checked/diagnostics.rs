use async_trait::async_trait;

use super::{Checked, part};
use crate::error::Result;
use crate::model::Finding;
use crate::store::{DiagnosticStore, Store};

#[async_trait]
impl<S: Store + ?Sized> DiagnosticStore for Checked<S> {
    async fn findings(&self) -> Result<Vec<Finding>> {
        let store = part("findings", self.store.diagnostics())?;
        self.call("findings", || store.findings()).await
    }
}
