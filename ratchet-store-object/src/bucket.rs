//! The objects of a store: their names, and the requests on them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt, PutMode, PutPayload};
use ratchet_core::StoreErrorKind;
use ratchet_core::time;
use uuid::Uuid;

use crate::error::{Failure, Result};

/// How often a failed request for an object is repeated, and the pause before the first time.
const GET_REPEATS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The bucket, and the prefix of all names in it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    store: Arc<dyn object_store::ObjectStore>,
    prefix: Path,
    /// How long a request may take.
    patience: Duration,
}

/// An object that was read.
pub(crate) struct Found {
    pub(crate) name: Path,
    pub(crate) bytes: Bytes,
    /// When the object was put, by the server's clock, in milliseconds since 1970.
    pub(crate) put_at: i64,
}

/// The result of a put on the condition that no object has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    Created,
    /// Another object has the name.
    Taken,
}

impl Bucket {
    pub(crate) fn new(
        store: Arc<dyn object_store::ObjectStore>,
        prefix: Path,
        patience: Duration,
    ) -> Self {
        Self {
            store,
            prefix,
            patience,
        }
    }

    /// Returns a name of the store and the prefix, for messages.
    pub(crate) fn describe(&self) -> String {
        format!("{}, prefix `{}`", self.store, self.prefix)
    }

    pub(crate) fn segments(&self) -> Path {
        self.prefix.clone().join("log")
    }

    /// Returns the name of the segment with this number.
    pub(crate) fn segment(&self, number: u64) -> Path {
        self.segments().join(format!("{number:020}"))
    }

    pub(crate) fn snapshots(&self) -> Path {
        self.prefix.clone().join("snapshots")
    }

    /// Returns a new name for a snapshot of the data after the segment with this number.
    pub(crate) fn new_snapshot(&self, number: u64) -> Path {
        let id = Uuid::new_v4().simple();
        self.snapshots().join(format!("{number:020}-{id}"))
    }

    pub(crate) fn manifest(&self) -> Path {
        self.prefix.clone().join("manifest")
    }

    pub(crate) fn probes(&self) -> Path {
        self.prefix.clone().join("probes")
    }

    /// Returns a new name for a probe.
    pub(crate) fn new_probe(&self) -> Path {
        self.probes().join(Uuid::new_v4().simple().to_string())
    }

    /// Returns the number at the beginning of the name of a segment or a snapshot.
    pub(crate) fn number(name: &Path) -> Option<u64> {
        let file = name.filename()?;
        file.get(..20)?.parse().ok()
    }

    /// Puts an object if no object has this name.
    pub(crate) async fn create(&self, name: &Path, bytes: Bytes) -> Result<Created> {
        let payload = PutPayload::from(bytes);
        let put = self.store.put_opts(name, payload, PutMode::Create.into());
        match self.timed(put).await {
            Ok(_) => Ok(Created::Created),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Created::Taken),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts an object, and replaces the one that has this name.
    pub(crate) async fn put(&self, name: &Path, bytes: Bytes) -> Result<()> {
        let put = self.store.put(name, PutPayload::from(bytes));
        self.timed(put).await?;
        Ok(())
    }

    /// Returns the object with this name, or `None` if there is none. Repeats the request if it
    /// fails for a reason that may pass.
    pub(crate) async fn get(&self, name: &Path) -> Result<Option<Found>> {
        let mut pause = FIRST_PAUSE;
        for _ in 0..GET_REPEATS {
            match self.get_once(name).await {
                Err(failure) if !failure.refused => {
                    tracing::debug!(?failure, %name, "repeating a request");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
        self.get_once(name).await
    }

    async fn get_once(&self, name: &Path) -> Result<Option<Found>> {
        let got = self.timed(async {
            let got = self.store.get(name).await?;
            let put_at = time::to_millis(got.meta.last_modified);
            Ok((got.bytes().await?, put_at))
        });
        match got.await {
            Ok((bytes, put_at)) => Ok(Some(Found {
                name: name.clone(),
                bytes,
                put_at,
            })),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns when the object with this name was put, by the server's clock.
    pub(crate) async fn put_at(&self, name: &Path) -> Result<i64> {
        let found = self.timed(self.store.head(name)).await?;
        Ok(time::to_millis(found.last_modified))
    }

    /// Returns the objects below this name, in the order of their names.
    pub(crate) async fn list(&self, below: &Path) -> Result<Vec<ObjectMeta>> {
        let mut objects: Vec<ObjectMeta> = self.store.list(Some(below)).try_collect().await?;
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }

    /// Deletes an object. It is no failure if no object has this name.
    pub(crate) async fn delete(&self, name: &Path) -> Result<()> {
        match self.timed(self.store.delete(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn timed<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        tokio::time::timeout(self.patience, request)
            .await
            .unwrap_or_else(|_| {
                Err(Error::Generic {
                    store: "request",
                    source: format!("no answer within {:?}", self.patience).into(),
                })
            })
    }
}

/// Checks that of several puts on the condition that no object has the name, exactly one creates
/// the object. Returns when the object was put, by the server's clock.
pub(crate) async fn check_conditions(bucket: &Bucket) -> Result<i64> {
    let name = bucket.new_probe();
    let payloads = [Bytes::from_static(b"1"), Bytes::from_static(b"2")];
    let [one, two] = payloads.each_ref();
    let raced = futures_util::future::try_join(
        bucket.create(&name, one.clone()),
        bucket.create(&name, two.clone()),
    );
    let checked = check_race(bucket, &name, raced.await, &payloads).await;
    // A probe that remains does no harm.
    let _ = bucket.delete(&name).await;
    checked
}

async fn check_race(
    bucket: &Bucket,
    name: &Path,
    raced: Result<(Created, Created)>,
    payloads: &[Bytes; 2],
) -> Result<i64> {
    let (one, two) = raced?;
    let late = bucket.create(name, Bytes::from_static(b"3")).await?;
    let found = bucket.get(name).await?;
    let won = match (one, two) {
        (Created::Created, Created::Taken) => Some(&payloads[0]),
        (Created::Taken, Created::Created) => Some(&payloads[1]),
        _ => None,
    };
    match (won, found) {
        (Some(won), Some(found)) if late == Created::Taken && found.bytes == *won => {
            Ok(found.put_at)
        }
        _ => Err(Failure::new(
            StoreErrorKind::Misconfigured,
            format!(
                "{} ignores the condition that a put creates an object, so processes would \
                 overwrite each other's commands; use a service with conditional writes \
                 (If-None-Match)",
                bucket.describe()
            ),
        )),
    }
}
