use super::Client;
use crate::error::Result;
use crate::model::Finding;

impl Client {
    /// Returns the findings of the store about its database. Returns `None` if the store cannot
    /// inspect its database.
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
