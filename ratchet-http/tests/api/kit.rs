//! What the tests share: a world of a store, a node and a router, each answer of which is compared with
//! the OpenAPI document.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use jsonschema::Validator;
use ratchet_core::model::{ClaimRequest, JobFilter, Outcome, Settlement};
use ratchet_core::{
    BatchId, Client, Job, JobContext, JobError, JobId, JobResult, JobState, MemoryStore, NewJob,
    Node, NodeId, Ratchet, Recurring, RetryPolicy, SharedStore,
};
use ratchet_http::{Access, Api, ApiBuilder, Authorizer, Denied, Limits, Payloads};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::ServiceExt;

/// An authorizer that lets everybody do what this says.
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

/// A store and the API on it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) router: Router,
}

impl World {
    /// An API that shows and allows everything, over an empty store in memory.
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

    /// Sends a request and compares the answer with what the document says.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let media = head.headers.get(header::CONTENT_TYPE);
        let media = media.map(|media| media.to_str().unwrap().to_owned());
        let bytes = if media.as_deref() == Some("text/event-stream") {
            // It has no end.
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

    /// How many jobs there are.
    pub(crate) async fn count(&self) -> u64 {
        let counts = self.client.count(&JobFilter::all()).await.unwrap();
        counts.values().sum()
    }
}

/// Settings that show and allow everything.
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

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) media: Option<String>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) bytes: Vec<u8>,
    pub(crate) json: Value,
}

impl Answer {
    /// The JSON of a good answer.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        self.json
    }

    /// The problem of a refused request, which has this status and code.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.json["code"], code, "{self:?}");
        self.json
    }

    /// That one field or parameter was refused.
    #[track_caller]
    pub(crate) fn invalid(self, field: &str) {
        let problem = self.refused(422, "invalid");
        assert_eq!(problem["field"], field, "{problem}");
    }
}

/// The document, and what it says of each answer.
pub(crate) struct Described {
    pub(crate) document: Value,
    validators: Mutex<BTreeMap<String, Arc<Validator>>>,
}

/// The document of the API.
pub(crate) fn described() -> &'static Described {
    static DESCRIBED: OnceLock<Described> = OnceLock::new();
    DESCRIBED.get_or_init(|| {
        // On a thread of its own: it is a runtime inside that of the test.
        let read = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let client = Ratchet::client(Arc::new(MemoryStore::new()));
                let api = Api::builder(client).build().unwrap();
                let ask = request(Method::GET, "/api/openapi.json", Body::empty());
                let response = api.router().oneshot(ask).await.unwrap();
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                serde_json::from_slice(&bytes).unwrap()
            })
        });
        Described {
            document: read.join().unwrap(),
            validators: Mutex::default(),
        }
    })
}

impl Described {
    /// Every method and path there is.
    pub(crate) fn operations(&self) -> Vec<(Method, &str, &Value)> {
        let paths = self.document["paths"].as_object().unwrap();
        let operations = paths.iter().flat_map(|(path, verbs)| {
            let verbs = verbs.as_object().unwrap().iter();
            verbs.map(move |(verb, operation)| {
                let method = verb.to_uppercase().parse().unwrap();
                (method, path.as_str(), operation)
            })
        });
        operations.collect()
    }

    /// The path of the document that a request is for: the one with the most parts that are the same.
    fn template(&self, path: &str) -> Option<&str> {
        let asked: Vec<&str> = path.split('/').collect();
        let paths = self.document["paths"].as_object().unwrap().keys();
        let fits = paths.filter_map(|template| {
            let parts: Vec<&str> = template.split('/').collect();
            let same = |(part, asked): (&&str, &&str)| {
                part == asked || (part.starts_with('{') && !asked.is_empty())
            };
            let fits = parts.len() == asked.len() && parts.iter().zip(&asked).all(same);
            let literal = parts.iter().filter(|part| !part.starts_with('{')).count();
            fits.then_some((literal, template.as_str()))
        });
        fits.max().map(|(_, template)| template)
    }

    /// Fails unless the answer is one that the document promises.
    #[track_caller]
    fn check(&self, method: &Method, path: &str, answer: &Answer) {
        let asked = format!("{method} {path}");
        let media = answer.media.as_deref().unwrap_or_default();
        if answer.status.is_client_error() || answer.status.is_server_error() {
            assert_ne!(answer.status.as_u16(), 500, "{asked}: {answer:?}");
            // The probes say no with an answer of their own.
            let says_no = answer.status.as_u16() == 503 && media == "application/json";
            if method != Method::HEAD && !says_no {
                assert_eq!(media, "application/problem+json", "{asked}: {answer:?}");
                let problem = json!({ "$ref": "#/components/schemas/Problem" });
                self.validate("problem", &problem, &answer.json, &asked);
                assert_eq!(answer.json["status"], answer.status.as_u16());
            }
        }
        let verb = match *method {
            Method::GET => "get",
            Method::POST => "post",
            _ => return,
        };
        let Some(template) = self.template(path) else {
            return;
        };
        let operation = &self.document["paths"][template][verb];
        if operation.is_null() {
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{asked}");
            return;
        }
        let status = answer.status.as_str();
        let response = &operation["responses"][status];
        assert!(
            !response.is_null(),
            "{asked} may not answer {status}: {answer:?}"
        );
        let Some(content) = response.get("content") else {
            return;
        };
        let essence = media.split(';').next().unwrap_or_default();
        let content = &content[essence];
        assert!(
            !content.is_null(),
            "{asked}: {status} is not of type {media}"
        );
        if essence.ends_with("json") {
            let key = format!("{verb} {template} {status} {essence}");
            self.validate(&key, &content["schema"], &answer.json, &asked);
        }
    }

    #[track_caller]
    fn validate(&self, key: &str, schema: &Value, value: &Value, asked: &str) {
        let validator = {
            let mut validators = self.validators.lock().unwrap();
            let validator = validators.entry(key.to_owned()).or_insert_with(|| {
                let components = &self.document["components"];
                let schema = json!({ "allOf": [schema], "components": components });
                let options = jsonschema::draft202012::options().should_validate_formats(true);
                Arc::new(options.build(&schema).unwrap())
            });
            Arc::clone(validator)
        };
        let errors: Vec<String> = (validator.iter_errors(value))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{asked}: {errors:#?} in {value:#}");
    }
}

/// What the bodies of the tests do.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Say something and succeed.
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

/// A node of the tests, quick to react.
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

/// Ids of things that [`populate`] made.
#[derive(Debug, Default)]
pub(crate) struct Things {
    pub(crate) jobs: Vec<JobId>,
    pub(crate) batch: Option<BatchId>,
}

/// Text that no page may take for markup.
pub(crate) const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&é日";

/// One of everything: jobs in every state a node need not run for, links, a batch, recurring
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

/// A job in this state, in a store without others, made without a node.
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

/// Waits for something to be so.
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
