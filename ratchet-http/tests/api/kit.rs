//! Helpers of the tests: a store, a node and a router. Each response is compared with the OpenAPI
//! document.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use ratchet_core::model::{ClaimRequest, JobFilter, Outcome, Settlement};
use ratchet_core::{
    BatchId, Client, Job, JobContext, JobError, JobId, JobResult, JobState, MemoryStore, NewJob,
    Node, NodeId, Ratchet, Recurring, RetryPolicy, SharedStore,
};
use ratchet_http::{Access, Api, ApiBuilder, Authorizer, Denied, Limits, Payloads};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower::ServiceExt;

use crate::described::described;

/// An authorizer that allows every client the accesses for which the function returns true.
pub(crate) struct Allow(pub(crate) fn(Access) -> bool);

#[async_trait::async_trait]
impl Authorizer for Allow {
    async fn authorize(
        &self,
        _request: &http::request::Parts,
        access: Access,
    ) -> Result<(), Denied> {
        (self.0)(access).then_some(()).ok_or_else(Denied::forbidden)
    }
}

pub(crate) fn allow_all(_: Access) -> bool {
    true
}

/// A store and an API on it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) router: Router,
}

impl World {
    /// Creates an API that shows and allows everything, on an empty in-memory store.
    pub(crate) fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn over(store: SharedStore) -> Self {
        Self::built(store, open)
    }

    pub(crate) fn built(
        store: SharedStore,
        settings: impl FnOnce(ApiBuilder) -> ApiBuilder,
    ) -> Self {
        let client = Ratchet::client(store);
        let api = settings(Api::builder(client.clone())).build().unwrap();
        let router = api.router();
        Self { client, router }
    }

    pub(crate) async fn get(&self, uri: &str) -> Answer {
        self.send(request(Method::GET, uri, Body::empty())).await
    }

    pub(crate) async fn post(&self, uri: &str) -> Answer {
        self.send(request(Method::POST, uri, Body::empty())).await
    }

    pub(crate) async fn post_json(&self, uri: &str, body: &Value) -> Answer {
        let mut request = request(Method::POST, uri, Body::from(body.to_string()));
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        self.send(request).await
    }

    /// Sends a request and checks the response against the document.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let media = head.headers.get(header::CONTENT_TYPE);
        let media = media.map(|media| media.to_str().unwrap().to_owned());
        let bytes = if media.as_deref() == Some("text/event-stream") {
            // The body of an event stream has no end.
            Vec::new()
        } else {
            body.collect().await.unwrap().to_bytes().to_vec()
        };
        let answer = Answer {
            status: head.status,
            json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            media,
            headers: head.headers,
            bytes,
        };
        described().check(&method, uri.path(), &answer);
        answer
    }

    pub(crate) async fn enqueue(&self, job: NewJob) -> JobId {
        self.client.enqueue(job).await.unwrap().id()
    }

    pub(crate) async fn state(&self, job: JobId) -> JobState {
        self.client.job(job).await.unwrap().unwrap().state
    }

    /// Returns the number of jobs.
    pub(crate) async fn count(&self) -> u64 {
        let counts = self.client.count(&JobFilter::all()).await.unwrap();
        counts.values().sum()
    }
}

/// Returns a builder that shows and allows everything.
pub(crate) fn open(builder: ApiBuilder) -> ApiBuilder {
    builder
        .authorize(Allow(allow_all))
        .payloads(Payloads::Shown)
        .limits(Limits::default().writes_per_second(1_000_000))
}

pub(crate) fn request(method: Method, uri: &str, body: Body) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(uri)
        .body(body)
        .unwrap()
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) media: Option<String>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) bytes: Vec<u8>,
    pub(crate) json: Value,
}

impl Answer {
    /// Returns the JSON of a successful response.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        self.json
    }

    /// Returns the problem of a refused request, and checks its status and code.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.json["code"], code, "{self:?}");
        self.json
    }

    /// Checks that this field or parameter was refused.
    #[track_caller]
    pub(crate) fn invalid(self, field: &str) {
        let problem = self.refused(422, "invalid");
        assert_eq!(problem["field"], field, "{problem}");
    }
}

/// The job of the tests. The variant determines what its body does.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Report progress and succeed.
    Succeed,
    /// Fail.
    Fail,
    /// Run until cancelled.
    Hold,
}

impl Job for Act {
    const KIND: &'static str = "act";
    type Output = String;

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        match self {
            Self::Succeed => {
                ctx.progress(50, "<b>half</b>");
                Ok("<script>alert('result')</script>".to_owned())
            }
            Self::Fail => Err(JobError::from("<script>alert('error')</script>")),
            Self::Hold => {
                ctx.cancelled().await;
                Err(JobError::from("cancelled"))
            }
        }
    }
}

/// Builds a node with short intervals.
pub(crate) fn node(store: &SharedStore) -> Node {
    Ratchet::builder(Arc::clone(store))
        .register::<Act>()
        .label("test")
        .concurrency(64)
        .poll_interval(Duration::from_millis(5), Duration::from_millis(50))
        .drain_grace(Duration::from_millis(100))
        .build()
        .unwrap()
}

/// The ids of items that [`populate`] created.
#[derive(Debug, Default)]
pub(crate) struct Things {
    pub(crate) jobs: Vec<JobId>,
    pub(crate) batch: Option<BatchId>,
}

/// A text that no page may interpret as markup.
pub(crate) const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&é日";

/// Creates one item of each kind: jobs in every state that needs no node, links, a batch, recurring
/// definitions, permits, locks.
pub(crate) async fn populate(client: &Client) -> Things {
    let later = || Act::Hold.into_job().delay(Duration::from_secs(3_600));
    let once = RetryPolicy::never();
    client.set_permits("gpu", 2).await.unwrap();
    let batch = client.create_batch().await.unwrap();
    let parent = later().tag(HOSTILE).queue("bulk");
    let child = Act::Succeed
        .into_job()
        .after(parent.id(), ratchet_core::Condition::Succeeded);
    let signalled = Act::Succeed
        .into_job()
        .wait_for("go", Duration::from_secs(3_600));
    let jobs = vec![
        Act::Succeed.into_job(),
        Act::Fail.into_job().retry(once).unique_key("only"),
        Act::Fail.into_job().retry(once).tag("t"),
        Act::Hold.into_job(),
        Act::Hold.into_job().lane("l"),
        Act::Succeed.into_job().lane("l"),
        later().permit("gpu"),
        later().idempotency_key(HOSTILE),
        later().in_batch(batch),
        NewJob::new("unknown kind", &HOSTILE).queue("nobody/polls this"),
        parent.clone(),
        child,
        signalled,
    ];
    client.enqueue_all(&jobs).await.unwrap();
    client.close_batch(batch).await.unwrap();
    let paused = later();
    client.enqueue(paused.clone()).await.unwrap();
    client.pause(paused.id()).await.unwrap();
    for (name, expression) in [("yearly", "0 0 1 1 *"), (HOSTILE, "@yearly")] {
        let job = NewJob::new("unknown kind", &HOSTILE);
        let definition = Recurring::cron(expression).job(job).named(name);
        client.recurring().put(definition).await.unwrap();
    }
    client.recurring().pause("yearly").await.unwrap();
    client.pause_queue("paused").await.unwrap();
    let ids = jobs.iter().map(NewJob::id);
    Things {
        jobs: ids.chain([paused.id()]).collect(),
        batch: Some(batch),
    }
}

/// Creates a job in this state without a node, in a store without other jobs.
pub(crate) async fn job_in(world: &World, state: JobState) -> JobId {
    let mut job = NewJob::new("k", &1);
    if state == JobState::Blocked {
        job = job.wait_for("s", Duration::from_secs(60));
    }
    let id = world.enqueue(job).await;
    let outcome = match state {
        JobState::Succeeded => Some(Outcome::Succeeded { result: None }),
        JobState::Failed => Some(Outcome::Failed {
            error: "it failed".to_owned(),
        }),
        _ => None,
    };
    if outcome.is_some() || state == JobState::Running {
        let jobs = world.client.store().jobs();
        let claim = ClaimRequest::new(NodeId::new(), 1);
        let claimed = jobs.claim_next_batch(&claim).await.unwrap();
        let token = claimed[0].claim.token;
        assert_eq!(token.job, id);
        if let Some(outcome) = outcome {
            let settlement = Settlement::new(token, outcome);
            jobs.settle(&[settlement]).await.unwrap();
        }
    }
    match state {
        JobState::Paused => world.client.pause(id).await.map(drop).unwrap(),
        JobState::Cancelled => world.client.cancel(id).await.map(drop).unwrap(),
        _ => {}
    }
    assert_eq!(world.state(id).await, state);
    id
}

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let patience = Duration::from_secs(20);
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(patience, wait).await.is_ok(),
        "never: {what}"
    );
}
