//! What an enqueue needs of permits.

use mongodb::bson::doc;
use mongodb::options::FindOptions;
use ratchet_core::{InvalidInput, Name, Route};

use crate::error::{Failure, Result};
use crate::row;
use crate::store::MongoStore;

impl MongoStore {
    /// Refuses routes that need a permit of a resource that was never set. [permit.unknown]
    pub(crate) async fn require_permits(&self, routes: &[&Route]) -> Result<()> {
        // A route that is stored was checked then, and no resource is ever deleted.
        let unknown = routes.iter().filter(|route| !self.routes().is_known(route));
        let wanted: Vec<&Name> = unknown.filter_map(|route| route.permit.as_ref()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let side = self.main();
        let names: Vec<&str> = wanted.iter().map(|resource| resource.as_str()).collect();
        let set = doc! { "_id": { "$in": names } };
        let only = FindOptions::builder().projection(doc! { "_id": 1 }).build();
        let mut known = Vec::new();
        for row in side.plain().find(&side.permits, set, only).await? {
            known.extend(row::name(&row, "_id")?);
        }
        match wanted
            .into_iter()
            .find(|resource| !known.contains(resource))
        {
            None => Ok(()),
            Some(resource) => Err(Failure::refused(InvalidInput::unknown_permit(resource))),
        }
    }
}
