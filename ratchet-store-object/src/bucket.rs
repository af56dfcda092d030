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

use crate::clock::{Measured, Moment};
use crate::error::{Failure, Result};

/// How often a failed request is repeated, and the pause before the first time.
const REPEATS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How long a small request may take. All calls wait for a request that hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes are transferred in a second at least.
const SLOWEST: u64 = 256 << 10;

/// The bucket, and the prefix of all names in it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    store: Arc<dyn object_store::ObjectStore>,
    prefix: Path,
    /// How long a small request may take.
    patience: Duration,
}

/// An object that was read.
pub(crate) struct Found {
    pub(crate) name: Path,
    pub(crate) bytes: Bytes,
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
        deadline: Duration,
    ) -> Self {
        Self {
            store,
            prefix,
            patience: PATIENCE.min(deadline),
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

    /// Returns the number in the name of a segment or a snapshot. `None` for any other name.
    pub(crate) fn number(name: &Path) -> Option<u64> {
        let (number, rest) = name.filename()?.split_at_checked(20)?;
        let is_digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let is_ours = is_digits && (rest.is_empty() || rest.starts_with('-'));
        is_ours.then(|| number.parse().ok()).flatten()
    }

    /// Puts an object if no object has this name.
    pub(crate) async fn create(&self, name: &Path, bytes: Bytes) -> Result<Created> {
        let size = bytes.len();
        let payload = PutPayload::from(bytes);
        let put = self.store.put_opts(name, payload, PutMode::Create.into());
        match self.timed(size, put).await {
            Ok(_) => Ok(Created::Created),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Created::Taken),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts an object, and replaces the one that has this name.
    pub(crate) async fn put(&self, name: &Path, bytes: Bytes) -> Result<()> {
        let size = bytes.len();
        let put = self.store.put(name, PutPayload::from(bytes));
        self.timed(size, put).await?;
        Ok(())
    }

    /// Returns the object with this name, or `None` if there is none. Repeats the request if it
    /// fails for a reason that may pass.
    pub(crate) async fn get(&self, name: &Path) -> Result<Option<Found>> {
        repeated(|| self.get_once(name)).await
    }

    /// Returns the object with this name, or `None` if there is none.
    pub(crate) async fn get_once(&self, name: &Path) -> Result<Option<Found>> {
        let got = match self.timed(0, self.store.get(name)).await {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = usize::try_from(got.meta.size).unwrap_or(usize::MAX);
        let bytes = self.timed(size, got.bytes()).await?;
        let name = name.clone();
        Ok(Some(Found { name, bytes }))
    }

    /// Returns when the object with this name was put, by the server's clock.
    pub(crate) async fn put_at(&self, name: &Path) -> Result<i64> {
        let found = self.timed(0, self.store.head(name)).await?;
        Ok(time::to_millis(found.last_modified))
    }

    /// Returns the objects below this name, in the order of their names. Repeats the request if it
    /// fails for a reason that may pass.
    pub(crate) async fn list(&self, below: &Path) -> Result<Vec<ObjectMeta>> {
        repeated(|| self.list_once(below)).await
    }

    async fn list_once(&self, below: &Path) -> Result<Vec<ObjectMeta>> {
        let mut objects = Vec::new();
        let mut list = self.store.list(Some(below));
        while let Some(object) = self.timed(0, list.try_next()).await? {
            objects.push(object);
        }
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }

    /// Deletes an object. It is no failure if no object has this name.
    pub(crate) async fn delete(&self, name: &Path) -> Result<()> {
        match self.timed(0, self.store.delete(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a request that transfers this number of bytes if it takes too long.
    async fn timed<T>(
        &self,
        bytes: usize,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let transfer = u64::try_from(bytes).unwrap_or(u64::MAX) / SLOWEST;
        let patience = self.patience.saturating_add(Duration::from_secs(transfer));
        tokio::time::timeout(patience, request)
            .await
            .unwrap_or_else(|_| {
                Err(Error::Generic {
                    store: "request",
                    source: format!("no answer within {patience:?}").into(),
                })
            })
    }
}

/// Makes a request, and repeats it if it fails for a reason that may pass.
pub(crate) async fn repeated<T, R>(request: impl Fn() -> R) -> Result<T>
where
    R: Future<Output = Result<T>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 0..REPEATS {
        match request().await {
            Err(failure) if !failure.refused => {
                tracing::debug!(?failure, "repeating a request");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            done => return done,
        }
    }
    request().await
}

/// Checks that of several puts on the condition that no object has the name, exactly one creates
/// the object.
pub(crate) async fn check_conditions(bucket: &Bucket) -> Result<()> {
    // Each repetition has another name: the puts of the one before may still be on their way.
    repeated(|| async {
        let name = bucket.new_probe();
        let checked = check_race(bucket, &name).await;
        // A probe that remains does no harm.
        let _ = bucket.delete(&name).await;
        checked
    })
    .await
}

async fn check_race(bucket: &Bucket, name: &Path) -> Result<()> {
    let payloads = [Bytes::from_static(b"1"), Bytes::from_static(b"2")];
    let [one, two] = payloads.each_ref();
    let raced = futures_util::future::try_join(
        bucket.create(name, one.clone()),
        bucket.create(name, two.clone()),
    );
    let raced = raced.await?;
    if raced == (Created::Taken, Created::Taken) && bucket.get(name).await?.is_none() {
        return Err(Failure::conflict());
    }
    let late = bucket.create(name, Bytes::from_static(b"3")).await?;
    let found = bucket.get(name).await?;
    let won = match raced {
        (Created::Created, Created::Taken) => Some(one),
        (Created::Taken, Created::Created) => Some(two),
        _ => None,
    };
    match (won, found) {
        (Some(won), Some(found)) if late == Created::Taken && found.bytes == *won => Ok(()),
        _ => Err(Failure::refusal(
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

/// Measures the server's time by a put, with these readings of the clocks before and after it.
pub(crate) async fn measure(bucket: &Bucket, moment: impl Fn() -> Moment) -> Result<Measured> {
    // Each put is a measurement of its own, so that pauses do not make it less exact.
    repeated(|| async {
        let name = bucket.new_probe();
        let began = moment();
        bucket.put(&name, Bytes::new()).await?;
        let ended = moment();
        let put_at = bucket.put_at(&name).await?;
        let _ = bucket.delete(&name).await;
        Measured::new(put_at, began, ended)
    })
    .await
}
