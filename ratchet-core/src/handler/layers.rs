//! Tower layers around the bodies of jobs.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_layer::Layer;
use tower_service::Service;

use super::JobContext;
use super::error::{BoxError, JobError, Verdict};
use super::registry::Body;
use crate::json::Json;

/// The request that tower layers receive: a job whose body is about to run.
///
/// A request cannot be cloned, because a body runs only once for each claim. To repeat a failed
/// job, use its [`RetryPolicy`](crate::RetryPolicy) and not a retry layer.
///
/// ```
/// # use std::sync::Arc;
/// # use ratchet::{MemoryStore, Ratchet};
/// use ratchet::JobRequest;
/// use tower::util::MapRequestLayer;
///
/// let log = MapRequestLayer::new(|request: JobRequest| {
///     let context = request.context();
///     println!("{} {} begins attempt {}", context.kind(), context.job_id(), context.attempt());
///     request
/// });
/// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).layer(log);
/// # let _ = builder;
/// ```
pub struct JobRequest {
    context: JobContext,
    body: Body,
    /// The layers of the job's kind, which are called after the layers of the node. `None` if there
    /// are no such layers, or if they have already been called.
    of_kind: Option<JobService>,
}

impl JobRequest {
    /// Returns the context of the body. It provides the job, its trace, the node's state and the
    /// node's client.
    #[must_use]
    pub const fn context(&self) -> &JobContext {
        &self.context
    }
}

impl fmt::Debug for JobRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobRequest").field(&self.context).finish()
    }
}

/// The response that tower layers return for a body that succeeded.
///
/// The documentation of [`new`](Self::new) shows a layer that responds without running the body.
/// This example reads the results of bodies:
///
/// ```
/// # use std::sync::Arc;
/// # use ratchet::{MemoryStore, Ratchet};
/// use ratchet::{JobResponse, Json};
/// use tower::util::MapResponseLayer;
///
/// let log = MapResponseLayer::new(|response: JobResponse| {
///     println!("the job succeeded with {:?}", response.result().map(Json::as_str));
///     response
/// });
/// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).layer(log);
/// # let _ = builder;
/// ```
#[derive(Clone, Debug)]
pub struct JobResponse {
    result: Option<Json>,
}

impl JobResponse {
    /// Creates the response of a successful job. Use it in a layer that responds without running
    /// the body.
    ///
    /// ```
    /// # use std::future::{Ready, ready};
    /// # use std::sync::Arc;
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # use std::task::{Context, Poll};
    /// # use ratchet::{JobRequest, JobResponse, JobService, MemoryStore, Ratchet, ServiceError};
    /// use futures_util::future::Either;
    /// use tower::{Layer, Service};
    ///
    /// /// Makes jobs succeed without running them while the switch is thrown.
    /// #[derive(Clone)]
    /// struct KillSwitch(Arc<AtomicBool>);
    ///
    /// impl Layer<JobService> for KillSwitch {
    ///     type Service = Switched;
    ///     fn layer(&self, inner: JobService) -> Switched {
    ///         Switched { inner, switch: self.clone() }
    ///     }
    /// }
    ///
    /// #[derive(Clone)]
    /// struct Switched {
    ///     inner: JobService,
    ///     switch: KillSwitch,
    /// }
    ///
    /// impl Service<JobRequest> for Switched {
    ///     type Response = JobResponse;
    ///     type Error = ServiceError;
    ///     type Future = Either<
    ///         Ready<Result<JobResponse, ServiceError>>,
    ///         <JobService as Service<JobRequest>>::Future,
    ///     >;
    ///
    ///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
    ///         self.inner.poll_ready(cx)
    ///     }
    ///
    ///     fn call(&mut self, request: JobRequest) -> Self::Future {
    ///         if self.switch.0.load(Ordering::Relaxed) {
    ///             return Either::Left(ready(Ok(JobResponse::new(None))));
    ///         }
    ///         Either::Right(self.inner.call(request))
    ///     }
    /// }
    ///
    /// let thrown = Arc::new(AtomicBool::new(false));
    /// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).layer(KillSwitch(thrown.clone()));
    /// thrown.store(true, Ordering::Relaxed);
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub const fn new(result: Option<Json>) -> Self {
        Self { result }
    }

    /// Returns the result of the job. `None` if the job has no result.
    #[must_use]
    pub const fn result(&self) -> Option<&Json> {
        self.result.as_ref()
    }
}

/// The error that tower layers return for a body that did not succeed.
///
/// This type wraps a [`JobError`] and implements [`std::error::Error`], because many tower layers
/// require that trait.
///
/// A layer may also return an error of any other type. Such an error counts as a failed attempt,
/// unless it wraps a `ServiceError`. In that case, the verdict of the wrapped error applies. To
/// choose another verdict, a layer creates a `ServiceError` from a `JobError`, for example with
/// `JobError::snooze(…).into()`.
///
/// ```
/// # use std::sync::Arc;
/// # use ratchet::{MemoryStore, Ratchet};
/// use ratchet::{ServiceError, Verdict};
/// use tower::util::MapErrLayer;
///
/// let log = MapErrLayer::new(|error: ServiceError| {
///     if error.verdict() == Verdict::Retry {
///         eprintln!("the attempt failed: {error}");
///     }
///     error
/// });
/// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).layer(log);
/// # let _ = builder;
/// ```
pub struct ServiceError(JobError);

impl ServiceError {
    /// Returns the verdict, which decides what happens to the job.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.0.verdict()
    }

    /// Returns the wrapped [`JobError`].
    #[must_use]
    pub fn into_inner(self) -> JobError {
        self.0
    }

    /// Converts an error that a layer returned. If the error is a `ServiceError` or wraps one,
    /// keeps the verdict of that `ServiceError`.
    fn of_layer(error: BoxError) -> Self {
        let verdict = {
            let mut cause: Option<&(dyn StdError + 'static)> = Some(&*error);
            loop {
                match cause.map(|cause| (cause.downcast_ref::<Self>(), cause.source())) {
                    Some((Some(own), _)) => break Some(own.verdict()),
                    Some((None, deeper)) => cause = deeper,
                    None => break None,
                }
            }
        };
        let error = JobError::from(error);
        Self(match verdict {
            Some(verdict) => error.followed_by(verdict),
            None => error,
        })
    }
}

impl From<JobError> for ServiceError {
    fn from(error: JobError) -> Self {
        Self(error)
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for ServiceError {}

type Answer = BoxFuture<'static, Result<JobResponse, ServiceError>>;

/// The service that a layer wraps: the next inner layer, or the body.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use ratchet::{MemoryStore, Ratchet};
/// use ratchet::JobService;
/// use tower::layer::layer_fn;
/// use tower::timeout::Timeout;
///
/// let timeout = layer_fn(|inside: JobService| Timeout::new(inside, Duration::from_secs(30)));
/// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).layer(timeout);
/// # let _ = builder;
/// ```
pub struct JobService(Box<dyn Inside>);

/// The object-safe interface of the service that a [`JobService`] contains.
trait Inside: Send {
    fn another(&self) -> JobService;
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServiceError>>;
    fn call(&mut self, request: JobRequest) -> Answer;
}

impl Service<JobRequest> for JobService {
    type Response = JobResponse;
    type Error = ServiceError;
    type Future = BoxFuture<'static, Result<JobResponse, ServiceError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: JobRequest) -> Self::Future {
        self.0.call(request)
    }
}

impl JobService {
    /// Waits until the service is ready, and calls it.
    async fn run(mut self, request: JobRequest) -> Result<JobResponse, ServiceError> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.call(request).await
    }
}

impl Clone for JobService {
    fn clone(&self) -> Self {
        self.0.another()
    }
}

impl fmt::Debug for JobService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobService")
    }
}

/// The innermost service. It calls the layers of the job's kind if they have not been called yet,
/// and otherwise runs the body.
#[derive(Clone)]
struct Innermost;

impl Inside for Innermost {
    fn another(&self) -> JobService {
        JobService(Box::new(self.clone()))
    }

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: JobRequest) -> Answer {
        match request.of_kind.take() {
            Some(layers) => Box::pin(layers.run(request)),
            None => Box::pin(async {
                match request.body.await {
                    Ok(result) => Ok(JobResponse { result }),
                    Err(error) => Err(ServiceError(error)),
                }
            }),
        }
    }
}

/// Wraps the service that a layer of the application created.
#[derive(Clone)]
struct Layered<S>(S);

impl<S> Inside for Layered<S>
where
    S: Service<JobRequest, Response = JobResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    fn another(&self) -> JobService {
        JobService(Box::new(self.clone()))
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
        self.0
            .poll_ready(cx)
            .map_err(|error| ServiceError::of_layer(error.into()))
    }

    fn call(&mut self, request: JobRequest) -> Answer {
        let answer = self.0.call(request);
        Box::pin(async { answer.await.map_err(|e| ServiceError::of_layer(e.into())) })
    }
}

/// A tower layer that can wrap the bodies of jobs.
///
/// Every `tower::Layer` implements this trait if it turns a [`JobService`] into a service from
/// [`JobRequest`] to [`JobResponse`]. This service must be `Clone`, `Send` and `'static`. It may
/// have any error type.
///
/// ```
/// # use std::sync::Arc;
/// # use ratchet::{MemoryStore, Ratchet};
/// use ratchet::JobLayer;
/// use tower::limit::ConcurrencyLimitLayer;
///
/// /// Lets four bodies of the node run at once.
/// fn four_at_once() -> impl JobLayer {
///     ConcurrencyLimitLayer::new(4)
/// }
///
/// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).layer(four_at_once());
/// # let _ = builder;
/// ```
pub trait JobLayer: Send + 'static {
    /// Wraps `inside` in this layer.
    fn around(self, inside: JobService) -> JobService;
}

impl<L> JobLayer for L
where
    L: Layer<JobService> + Send + 'static,
    L::Service: Service<JobRequest, Response = JobResponse> + Clone + Send + 'static,
    <L::Service as Service<JobRequest>>::Error: Into<BoxError>,
    <L::Service as Service<JobRequest>>::Future: Send + 'static,
{
    fn around(self, inside: JobService) -> JobService {
        JobService(Box::new(Layered(self.layer(inside))))
    }
}

type Wrap = Box<dyn FnOnce(JobService) -> JobService + Send>;

/// The layers of a node that is being built, outermost first.
#[derive(Default)]
pub(crate) struct Layers {
    all: Vec<Wrap>,
    by_kind: Vec<(&'static str, Wrap)>,
}

impl Layers {
    pub(crate) fn add(&mut self, layer: impl JobLayer) {
        self.all.push(Box::new(|inner| layer.around(inner)));
    }

    pub(crate) fn add_for(&mut self, kind: &'static str, layer: impl JobLayer) {
        let wrap: Wrap = Box::new(|inner| layer.around(inner));
        self.by_kind.push((kind, wrap));
    }

    /// Nests the layers. `kinds` has the kinds for which the node has handlers.
    ///
    /// # Errors
    /// Returns one problem for each layer that was added for a kind without a handler.
    pub(super) fn stack(self, kinds: &[&'static str]) -> Result<Stacks, Vec<String>> {
        let around = |service: Option<JobService>, wrap: Wrap| {
            Some(wrap(service.unwrap_or(JobService(Box::new(Innermost)))))
        };
        let all = self.all.into_iter().rev().fold(None, around);
        let mut problems = Vec::new();
        let mut by_kind: BTreeMap<&'static str, Option<JobService>> = BTreeMap::new();
        for (kind, wrap) in self.by_kind.into_iter().rev() {
            if !kinds.contains(&kind) {
                problems.push(format!(
                    "a layer is for the kind {kind}, but no job of this kind is registered"
                ));
            }
            let inner = by_kind.entry(kind).or_default();
            *inner = around(inner.take(), wrap);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let by_kind = by_kind.into_iter();
        Ok(Stacks {
            all: all.map(Mutex::new),
            by_kind: by_kind
                .filter_map(|(kind, service)| Some((kind, Mutex::new(service?))))
                .collect(),
        })
    }
}

/// The nested layers of a node: those for all kinds, and those for single kinds.
#[derive(Default)]
pub(super) struct Stacks {
    all: Option<Mutex<JobService>>,
    by_kind: BTreeMap<&'static str, Mutex<JobService>>,
}

impl Stacks {
    /// Wraps a body in the layers of its kind, and then in the layers of the node.
    pub(super) fn around(&self, kind: &str, context: &JobContext, body: Body) -> Body {
        let of_kind = self.by_kind.get(kind).map(another);
        let of_node = self.all.as_ref().map(another);
        let (outer, inner) = match (of_node, of_kind) {
            (Some(of_node), of_kind) => (of_node, of_kind),
            (None, Some(of_kind)) => (of_kind, None),
            (None, None) => return body,
        };
        let request = JobRequest {
            context: context.clone(),
            body,
            of_kind: inner,
        };
        Box::pin(async {
            match outer.run(request).await {
                Ok(response) => Ok(response.result),
                Err(error) => Err(error.0),
            }
        })
    }
}

/// Clones the service for one job. The mutex is needed because services need not be `Sync`, but
/// several threads may clone the service.
fn another(stack: &Mutex<JobService>) -> JobService {
    let stack: MutexGuard<'_, JobService> =
        stack.lock().unwrap_or_else(|broken| broken.into_inner());
    stack.clone()
}
