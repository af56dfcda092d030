//! The objects of a store: their names, and the requests on them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt, PutMode, PutPayload};
use ratchet_core::StoreErrorKind;
use ratchet_core::time;
use uuid::Uuid;

use crate::budget::Budget;
use crate::clock::{Measured, Moment};
use crate::error::{Failure, Result};

/// How often a failed request is repeated, and the pause before the first time.
const REPEATS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How long a small request may take. All calls wait for a request that hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes are transferred in a second at least.
const SLOWEST: u64 = 256 << 10;
/// How many objects one request deletes at most, if the service can delete several.
const DELETED_AT_ONCE: usize = 250;

/// The bucket, and the prefix of all names in it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    store: Arc<dyn object_store::ObjectStore>,
    prefix: Path,
    /// How long a small request may take.
    patience: Duration,
    pub(crate) budget: Option<Budget>,
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
            budget: None,
        }
    }

    /// Waits until this process may put an object.
    async fn may_put(&self) {
        if let Some(budget) = &self.budget {
            budget.take().await;
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

    /// The folder of the floors: see [`Bucket::floor`].
    pub(crate) fn floors(&self) -> Path {
        self.prefix.clone().join("floors")
    }

    /// Returns the name of the floor with this number.
    pub(crate) fn new_floor(&self, number: u64) -> Path {
        self.floors().join(format!("{number:020}"))
    }

    /// Returns the name of the note by which a process asks the others for a pause.
    pub(crate) fn waiting(&self) -> Path {
        self.prefix.clone().join("waiting")
    }

    /// Returns the name of the note by which a process asks the others for a snapshot.
    pub(crate) fn wanted(&self) -> Path {
        self.prefix.clone().join("wanted")
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
        self.may_put().await;
        let size = bytes.len();
        let payload = PutPayload::from(bytes);
        let put = self.store.put_opts(name, payload, PutMode::Create.into());
        match self.timed(size, put).await.flatten() {
            Ok(_) => Ok(Created::Created),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Created::Taken),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts an object, and replaces the one that has this name.
    pub(crate) async fn put(&self, name: &Path, bytes: Bytes) -> Result<()> {
        self.may_put().await;
        self.put_at_once(name, bytes).await
    }

    async fn put_at_once(&self, name: &Path, bytes: Bytes) -> Result<()> {
        let size = bytes.len();
        let put = self.store.put(name, PutPayload::from(bytes));
        self.timed(size, put).await??;
        Ok(())
    }

    /// Returns the object with this name, or `None` if there is none. Repeats the request if it
    /// fails for a reason that may pass.
    pub(crate) async fn get(&self, name: &Path) -> Result<Option<Found>> {
        repeated(|| self.get_once(name)).await
    }

    /// Returns the object with this name, or `None` if there is none.
    pub(crate) async fn get_once(&self, name: &Path) -> Result<Option<Found>> {
        let got = match self.timed(0, self.store.get(name)).await.flatten() {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = usize::try_from(got.meta.size).unwrap_or(usize::MAX);
        let bytes = self.timed(size, got.bytes()).await??;
        let name = name.clone();
        Ok(Some(Found { name, bytes }))
    }

    /// Returns when the object with this name was put, by the server's clock.
    pub(crate) async fn put_at(&self, name: &Path) -> Result<i64> {
        let found = self.timed(0, self.store.head(name)).await??;
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
        while let Some(object) = self.timed(0, list.try_next()).await?? {
            objects.push(object);
        }
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }

    /// Returns the floor of the log: segments with smaller numbers may have been deleted. A process
    /// puts an object with the number of the floor before it deletes segments. It never puts the
    /// number of an older floor over a newer one, because each number is an object of its own.
    pub(crate) async fn floor(&self) -> Result<u64> {
        let floors = self.list(&self.floors()).await?;
        let numbers = floors
            .iter()
            .filter_map(|floor| Self::number(&floor.location));
        Ok(numbers.max().unwrap_or(0))
    }

    /// Deletes an object. It is no failure if no object has this name.
    pub(crate) async fn delete(&self, name: &Path) -> Result<()> {
        self.delete_all(vec![name.clone()]).await
    }

    /// Deletes objects in any order, many at once. It is no failure if no object has one of the
    /// names.
    pub(crate) async fn delete_all(&self, names: Vec<Path>) -> Result<()> {
        let mut names = names.into_iter();
        loop {
            let batch: Vec<Path> = names.by_ref().take(DELETED_AT_ONCE).collect();
            if batch.is_empty() {
                return Ok(());
            }
            let count = batch.len();
            let batch = stream::iter(batch.into_iter().map(Ok)).boxed();
            let mut deleted = self.store.delete_stream(batch);
            for _ in 0..count {
                match self.timed(0, deleted.next()).await? {
                    Some(Ok(_) | Err(Error::NotFound { .. })) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => break,
                }
            }
        }
    }

    /// Ends a request that transfers this number of bytes if it takes too long.
    async fn timed<T>(
        &self,
        bytes: usize,
        request: impl Future<Output = T>,
    ) -> object_store::Result<T> {
        let transfer = u64::try_from(bytes).unwrap_or(u64::MAX) / SLOWEST;
        let patience = self.patience.saturating_add(Duration::from_secs(transfer));
        let answered = tokio::time::timeout(patience, request).await;
        answered.map_err(|_| Error::Generic {
            store: "request",
            source: format!("no answer within {patience:?}").into(),
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
/// the object, and that objects can be replaced and deleted.
pub(crate) async fn check_service(bucket: &Bucket) -> Result<()> {
    // Each repetition has another name: the puts of the one before may still be on their way.
    repeated(|| async {
        let name = bucket.new_probe();
        let checked = check_race(bucket, &name).await;
        if checked.is_err() {
            // A probe that remains does no harm.
            let _ = bucket.delete(&name).await;
        }
        checked?;
        let replaced = bucket.put(&name, Bytes::from_static(b"4")).await;
        replaced.map_err(|failure| {
            failure.needed("the store must be able to replace objects, such as the manifest")
        })?;
        let deleted = bucket.delete(&name).await;
        deleted.map_err(|failure| {
            failure.needed("the store must be able to delete objects, such as old segments")
        })
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
    if raced == (Created::Taken, Created::Taken) {
        // Neither was ignored. One of the requests may take effect later.
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

/// Measures the server's time by a put, with these readings of the clocks before and after it. Each
/// put is a measurement of its own, so that pauses do not make it less exact.
pub(crate) async fn measure(bucket: &Bucket, moment: impl Fn() -> Moment) -> Result<Measured> {
    let name = bucket.new_probe();
    bucket.may_put().await;
    let began = moment();
    bucket.put_at_once(&name, Bytes::new()).await?;
    let ended = moment();
    let put_at = bucket.put_at(&name).await?;
    let _ = bucket.delete(&name).await;
    Measured::new(put_at, began, ended)
}
