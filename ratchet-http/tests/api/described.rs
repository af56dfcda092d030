//! The OpenAPI document of the API, and the check that a response matches it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use jsonschema::Validator;
use ratchet_core::{MemoryStore, Ratchet};
use ratchet_http::Api;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::kit::{Answer, request};

/// The OpenAPI document, with validators for the responses that it describes.
pub(crate) struct Described {
    pub(crate) document: Value,
    validators: Mutex<BTreeMap<String, Arc<Validator>>>,
}

/// Returns the OpenAPI document of the API, which is read once.
pub(crate) fn described() -> &'static Described {
    static DESCRIBED: OnceLock<Described> = OnceLock::new();
    DESCRIBED.get_or_init(|| {
        // Use a separate thread, because this code starts a runtime and the test already runs in
        // another one.
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
    /// Returns every method and path of the document.
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

    /// Returns the path template that a request matches: among several, the one with the most
    /// literal segments.
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

    /// Panics unless the response matches the document.
    #[track_caller]
    pub(crate) fn check(&self, method: &Method, path: &str, answer: &Answer) {
        let asked = format!("{method} {path}");
        let media = answer.media.as_deref().unwrap_or_default();
        if answer.status.is_client_error() || answer.status.is_server_error() {
            assert_ne!(answer.status.as_u16(), 500, "{asked}: {answer:?}");
            // A probe that returns 503 has a body of its own type instead of a `Problem`.
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
            "{asked}: the document does not describe the status {status}: {answer:?}"
        );
        let Some(content) = response.get("content") else {
            return;
        };
        let essence = media.split(';').next().unwrap_or_default();
        let content = &content[essence];
        assert!(
            !content.is_null(),
            "{asked}: expected the type of the response {status} to be {media}"
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
        assert!(
            errors.is_empty(),
            "{asked}: expected a value that fits the schema, found \
             {errors:#?} in {value:#}"
        );
    }
}
