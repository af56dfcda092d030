use super::Client;
use crate::error::Result;
use crate::model::Finding;

impl Client {
    /// What the store finds when it looks at its database; none if it cannot look.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn findings(&self) -> Result<Option<Vec<Finding>>> {
        let calls = &self.0.calls;
        let look = calls.call("findings", |store| async move {
            match store.diagnostics() {
                Some(diagnostics) => diagnostics.findings().await.map(Some),
                None => Ok(None),
            }
        });
        look.await
    }
}
