use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::model::{Finding, Severity};
use crate::store::DiagnosticStore;

#[async_trait]
impl DiagnosticStore for MemoryStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        self.read("findings", |_, _| {
            let summary = "the store is in memory: its data is lost when the process ends";
            vec![Finding::new("volatile", Severity::Info, summary)]
        })
        .await
    }
}
