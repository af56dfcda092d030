//! A bucket in memory whose requests fail as a test plans it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use ratchet_core::memory::ManualClock;
use ratchet_core::time::{self, Timestamp};
use tokio::sync::{Barrier, Notify};

/// What happens to a request.
#[derive(Clone)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// The object is put, and the answer is lost.
    LoseAnswer,
    /// The service refuses the request because of its load.
    Throttle,
    /// The credentials have expired.
    Deny,
    /// The request fails with this error.
    Fail(fn(&Path) -> Error),
    /// The service refuses the put because of another put, which is still on its way: that of an
    /// earlier request.
    Conflict(Arc<Notify>),
    /// The answer is lost, and the object is put only when the test says so.
    Late(Arc<Notify>),
    /// The put waits until others have come as far.
    Meet(Arc<Barrier>),
    /// The request takes effect when the test says so: the process was suspended before it, or the
    /// request hangs.
    Hold(Gate),
    /// The request takes effect, and its answer comes when the test says so: the process was
    /// suspended after it.
    HoldAnswer(Gate),
}

/// Where a request waits for the test.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Notify, Notify)>);

impl Gate {
    /// Waits until a request has come here.
    pub(super) async fn reached(&self) {
        self.0.0.notified().await;
    }

    /// Lets the request continue.
    pub(super) fn open(&self) {
        self.0.1.notify_one();
    }

    async fn pass(&self) {
        self.0.0.notify_one();
        self.0.1.notified().await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Put,
    Get,
    List,
    Delete,
}

/// The requests that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) puts: u32,
    pub(super) gets: u32,
    pub(super) lists: u32,
    pub(super) deletes: u32,
}

/// A client of a bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Faulty(Arc<Inside>);

#[derive(Default)]
struct Inside {
    service: Arc<Service>,
    /// The planned faults: each for the next request of this kind whose name contains the text.
    faults: Mutex<Vec<(Operation, String, Fault)>>,
    counts: Mutex<Counts>,
    /// How long each request takes.
    latency: Mutex<Duration>,
    /// Whether puts replace objects although they must not.
    ignores_conditions: bool,
}

/// The objects, which all clients share.
struct Service {
    objects: Arc<InMemory>,
    /// The clock of the service and of all machines.
    clock: ManualClock,
    /// When objects were put, by this clock.
    put_at: Mutex<HashMap<Path, Timestamp>>,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            objects: Arc::default(),
            clock: ManualClock::new(time::from_millis(1_790_000_000_123)),
            put_at: Mutex::default(),
        }
    }
}

impl Service {
    async fn put(
        &self,
        name: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let put = self.objects.put_opts(name, payload, options).await?;
        let mut put_at = self.put_at.lock().unwrap();
        put_at.insert(name.clone(), self.clock.now());
        Ok(put)
    }

    fn set_time(&self, object: &mut ObjectMeta) {
        let put_at = self.put_at.lock().unwrap();
        if let Some(put_at) = put_at.get(&object.location) {
            object.last_modified = *put_at;
        }
    }
}

impl Faulty {
    pub(super) fn without_conditions() -> Self {
        Self(Arc::new(Inside {
            ignores_conditions: true,
            ..Inside::default()
        }))
    }

    /// A bucket whose service has this clock.
    pub(super) fn with_clock(clock: ManualClock) -> Self {
        let service = Service {
            clock,
            ..Service::default()
        };
        Self(Arc::new(Inside {
            service: Arc::new(service),
            ..Inside::default()
        }))
    }

    /// The objects, without faults.
    pub(super) fn objects(&self) -> &InMemory {
        &self.0.service.objects
    }

    /// The clock of the service and of all machines.
    pub(super) fn clock(&self) -> &ManualClock {
        &self.0.service.clock
    }

    /// Another client of the same objects, without faults and with its own counts.
    pub(super) fn other(&self) -> Self {
        Self(Arc::new(Inside {
            service: Arc::clone(&self.0.service),
            ..Inside::default()
        }))
    }

    /// Plans the faults of the next puts of segments.
    pub(super) fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        for fault in faults {
            self.plan_at(Operation::Put, "/log/", fault);
        }
    }

    /// Plans a fault of the next such request for an object whose name contains this text.
    pub(super) fn plan_at(&self, operation: Operation, name: &str, fault: Fault) {
        let planned = (operation, name.to_owned(), fault);
        self.0.faults.lock().unwrap().push(planned);
    }

    /// Returns how many faults are still planned.
    pub(super) fn planned(&self) -> usize {
        self.0.faults.lock().unwrap().len()
    }

    /// Forgets the faults that are still planned.
    pub(super) fn end(&self) {
        self.0.faults.lock().unwrap().clear();
    }

    /// Sets how long each request takes.
    pub(super) fn set_latency(&self, latency: Duration) {
        *self.0.latency.lock().unwrap() = latency;
    }

    /// Returns the requests since the last call.
    pub(super) fn counts(&self) -> Counts {
        std::mem::take(&mut *self.0.counts.lock().unwrap())
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.0.counts.lock().unwrap());
    }

    fn next(&self, operation: Operation, name: &str) -> Option<Fault> {
        let mut faults = self.0.faults.lock().unwrap();
        let fits = |(of, part, _): &(Operation, String, Fault)| {
            *of == operation && name.contains(part.as_str())
        };
        let place = faults.iter().position(fits)?;
        Some(faults.remove(place).2)
    }

    async fn delay(&self) {
        let latency = *self.0.latency.lock().unwrap();
        if latency.is_zero() {
            // A test that loops for ever then reaches its deadline.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(latency).await;
        }
    }
}

pub(super) fn failed(text: &str) -> Error {
    Error::Generic {
        store: "faulty",
        source: text.into(),
    }
}

pub(super) fn taken(name: &Path) -> Error {
    Error::AlreadyExists {
        path: name.to_string(),
        source: "409 ConditionalRequestConflict".into(),
    }
}

/// Returns the error of a fault that is none of waiting.
fn error(fault: &Fault, name: &Path) -> Error {
    match fault {
        Fault::LoseAnswer => failed("the connection was lost"),
        Fault::Throttle => failed("503 SlowDown"),
        Fault::Deny => Error::Unauthenticated {
            path: name.to_string(),
            source: "the credentials have expired".into(),
        },
        Fault::Fail(error) => error(name),
        Fault::Conflict(_) => taken(name),
        _ => failed("no answer in time"),
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
        let service = &self.0.service;
        let Some(fault) = self.next(Operation::Put, name.as_ref()) else {
            self.delay().await;
            return service.put(name, payload, options).await;
        };
        match &fault {
            Fault::None => service.put(name, payload, options).await,
            Fault::LoseAnswer => {
                service.put(name, payload, options).await?;
                Err(error(&fault, name))
            }
            Fault::Late(when) | Fault::Conflict(when) => {
                let (service, late) = (Arc::clone(service), name.clone());
                let when = Arc::clone(when);
                tokio::spawn(async move {
                    when.notified().await;
                    let _ = service.put(&late, payload, options).await;
                });
                Err(error(&fault, name))
            }
            Fault::Meet(others) => {
                others.wait().await;
                service.put(name, payload, options).await
            }
            Fault::Hold(gate) => {
                gate.pass().await;
                service.put(name, payload, options).await
            }
            Fault::HoldAnswer(gate) => {
                let put = service.put(name, payload, options).await;
                gate.pass().await;
                put
            }
            fault => Err(error(fault, name)),
        }
    }

    async fn put_multipart_opts(
        &self,
        name: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects().put_multipart_opts(name, options).await
    }

    async fn get_opts(&self, name: &Path, options: GetOptions) -> Result<GetResult> {
        self.count(|counts| counts.gets += 1);
        let fault = self.next(Operation::Get, name.as_ref());
        let hold = match &fault {
            Some(Fault::Hold(gate)) => {
                gate.pass().await;
                None
            }
            Some(Fault::HoldAnswer(gate)) => Some(gate),
            Some(fault) => return Err(error(fault, name)),
            None => {
                self.delay().await;
                None
            }
        };
        let mut got = self.objects().get_opts(name, options).await;
        if let Some(gate) = hold {
            gate.pass().await;
        }
        if let Ok(got) = &mut got {
            self.0.service.set_time(&mut got.meta);
        }
        got
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let client = self.clone();
        let deleted = names.and_then(move |name| {
            let client = client.clone();
            async move {
                client.count(|counts| counts.deletes += 1);
                match client.next(Operation::Delete, name.as_ref()) {
                    Some(Fault::Hold(gate)) => gate.pass().await,
                    Some(fault) => return Err(error(&fault, &name)),
                    None => client.delay().await,
                }
                client.objects().delete(&name).await?;
                Ok(name)
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count(|counts| counts.lists += 1);
        let prefix = prefix.cloned().unwrap_or_default();
        let fault = self.next(Operation::List, prefix.as_ref());
        let service = Arc::clone(&self.0.service);
        let began = stream::once(async move {
            match &fault {
                None => Ok(()),
                Some(Fault::Hold(gate)) => {
                    gate.pass().await;
                    Ok(())
                }
                Some(fault) => Err(error(fault, &prefix)),
            }
            .map(|()| service.objects.list(Some(&prefix)))
        });
        let service = Arc::clone(&self.0.service);
        let listed = began.try_flatten().map_ok(move |mut object| {
            service.set_time(&mut object);
            object
        });
        listed.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects().copy_opts(from, to, options).await
    }
}

impl Faulty {
    /// Replaces the content of an object.
    pub(super) async fn replace(&self, name: &Path, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let found = self.objects().get(name).await.unwrap();
        let bytes = change(found.bytes().await.unwrap().to_vec());
        self.objects().put(name, bytes.into()).await.unwrap();
    }

    pub(super) async fn has(&self, name: &Path) -> bool {
        self.objects().head(name).await.is_ok()
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
