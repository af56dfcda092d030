//! A bucket in memory whose requests fail as a test plans it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use tokio::sync::{Barrier, Notify};

/// What happens to a put of a segment.
#[derive(Clone)]
pub(super) enum Fault {
    /// The object is put, and the answer is lost.
    LoseAnswer,
    /// The service refuses the request because of its load.
    Throttle,
    /// The credentials have expired.
    Deny,
    /// The service refuses the put because of another put, which is still on its way: that of an
    /// earlier request.
    Conflict(Arc<Notify>),
    /// The answer is lost, and the object is put only when the test says so.
    Late(Arc<Notify>),
    /// The put waits until others have come as far.
    Meet(Arc<Barrier>),
    /// The put takes effect when the test says so.
    Hold(Arc<Notify>),
}

/// The requests that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) puts: u32,
    pub(super) gets: u32,
    pub(super) lists: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Faulty(Arc<Inside>);

#[derive(Default)]
struct Inside {
    objects: Arc<InMemory>,
    faults: Mutex<VecDeque<Fault>>,
    counts: Mutex<Counts>,
    /// Whether puts replace objects although they must not.
    ignores_conditions: bool,
}

impl Faulty {
    pub(super) fn without_conditions() -> Self {
        Self(Arc::new(Inside {
            ignores_conditions: true,
            ..Inside::default()
        }))
    }

    /// The objects, without faults.
    pub(super) fn objects(&self) -> &InMemory {
        &self.0.objects
    }

    /// Another client of the same objects, without faults and with its own counts.
    pub(super) fn other(&self) -> Self {
        Self(Arc::new(Inside {
            objects: Arc::clone(&self.0.objects),
            ..Inside::default()
        }))
    }

    /// Plans the faults of the next puts of segments.
    pub(super) fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.faults.lock().unwrap().extend(faults);
    }

    /// Forgets the faults that are still planned.
    pub(super) fn end(&self) {
        self.0.faults.lock().unwrap().clear();
    }

    /// Returns the requests since the last call.
    pub(super) fn counts(&self) -> Counts {
        std::mem::take(&mut *self.0.counts.lock().unwrap())
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.0.counts.lock().unwrap());
    }
}

fn failed(text: &str) -> Error {
    Error::Generic {
        store: "faulty",
        source: text.into(),
    }
}

fn taken(name: &Path) -> Error {
    Error::AlreadyExists {
        path: name.to_string(),
        source: "409 ConditionalRequestConflict".into(),
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        name: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        self.count(|counts| counts.puts += 1);
        if self.0.ignores_conditions {
            options.mode = PutMode::Overwrite;
        }
        let is_segment = name.as_ref().contains("/log/");
        let fault = is_segment.then(|| self.0.faults.lock().unwrap().pop_front());
        let put = self
            .0
            .objects
            .put_opts(name, payload.clone(), options.clone());
        match fault.flatten() {
            None => put.await,
            Some(Fault::LoseAnswer) => {
                put.await?;
                Err(failed("the connection was lost"))
            }
            Some(Fault::Throttle) => Err(failed("503 SlowDown")),
            Some(Fault::Deny) => Err(Error::Unauthenticated {
                path: name.to_string(),
                source: "the credentials have expired".into(),
            }),
            Some(fault @ (Fault::Late(_) | Fault::Conflict(_))) => {
                drop(put);
                let (objects, late) = (Arc::clone(&self.0.objects), name.clone());
                let (when, error) = match fault {
                    Fault::Conflict(when) => (when, taken(name)),
                    Fault::Late(when) => (when, failed("no answer in time")),
                    _ => return Err(failed("unplanned")),
                };
                tokio::spawn(async move {
                    when.notified().await;
                    let _ = objects.put_opts(&late, payload, options).await;
                });
                Err(error)
            }
            Some(Fault::Meet(others)) => {
                others.wait().await;
                put.await
            }
            Some(Fault::Hold(when)) => {
                when.notified().await;
                put.await
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        name: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.objects.put_multipart_opts(name, options).await
    }

    async fn get_opts(&self, name: &Path, options: GetOptions) -> Result<GetResult> {
        self.count(|counts| counts.gets += 1);
        self.0.objects.get_opts(name, options).await
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.objects.delete_stream(names)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count(|counts| counts.lists += 1);
        self.0.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.objects.copy_opts(from, to, options).await
    }
}

impl Faulty {
    /// Replaces the content of an object.
    pub(super) async fn replace(&self, name: &Path, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let found = self.objects().get(name).await.unwrap();
        let bytes = change(found.bytes().await.unwrap().to_vec());
        self.objects().put(name, bytes.into()).await.unwrap();
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}
