//! The conformance suite on MongoDB: collections of its own per case, several handles on them.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, doc};
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Suite, TestClock, Vandal};
use ratchet_core::{JobId, SharedStore};

use crate::server::Space;

fn main() -> ExitCode {
    Suite::new("mongodb", Power::STORE).run(async {
        let Some(url) = server::url(server::URL) else {
            return Provision::unavailable(server::missing(server::URL));
        };
        Provision::ready(move || {
            let url = url.clone();
            async move { Ok(MongoFixture(Space::create(&url).await?)) }
        })
    })
}

struct MongoFixture(Space);

#[async_trait]
impl Fixture for MongoFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let clock = self.0.name("clock");
        let builder = self.0.builder().clock_collection(clock);
        Ok(Arc::new(builder.connect().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.0)
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(self)
    }

    async fn teardown(&self) {
        self.0.take_away().await;
    }
}

#[async_trait]
impl Vandal for MongoFixture {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        let id = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: job.as_bytes().to_vec(),
        };
        let spoil = doc! { "$set": { "retry": "{" } };
        let jobs = self.0.of_majority("jobs");
        jobs.update_one(doc! { "_id": id }, spoil).await?;
        Ok(())
    }
}
