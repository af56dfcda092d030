//! The OpenAPI 3.1 document of the API, built from the table of routes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::table::{Content, Route, get};
use crate::auth::Access;
use crate::problem::{Code, Problem};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/openapi.json", show)
            .says("Returns this document")
            .ok::<Map<String, Value>>("The document"),
    ]
}

async fn show() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| document(&super::all()).to_string());
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], TEXT.as_str()).into_response()
}

/// Builds the OpenAPI document of these routes.
fn document(routes: &[Route]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let operation = operation(route, &mut schemas);
        let path = paths.entry(route.path).or_default();
        path.insert(route.verb.as_str().to_owned(), operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ratchet",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable jobs: probes, the cluster, jobs and actions on them. \
                Times are RFC 3339 in UTC, durations whole milliseconds. Unknown parameters and \
                fields are refused. Errors are RFC 9457 problems with a `code`.",
        },
        // The URL is relative to this document, so it is correct wherever the API is nested.
        "servers": [{ "url": ".." }],
        "paths": paths,
        "components": { "schemas": schemas.definitions() },
    })
}

/// The generators of schemas: `sent` for the types of responses, and `received` for the types of
/// requests.
struct Schemas {
    sent: SchemaGenerator,
    received: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            sent: settings().for_serialize().into_generator(),
            received: settings().for_deserialize().into_generator(),
        }
    }

    fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.received.take_definitions(true);
        all.extend(self.sent.take_definitions(true));
        all
    }
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [tag(route.path)],
        "parameters": parameters(route, schemas),
        "responses": responses(route, schemas),
        "x-access": match route.access {
            None => "open",
            Some(Access::Write(_)) => "write",
            Some(_) => "read",
        },
    });
    if let Some(body) = route.body {
        operation["requestBody"] = json!({
            "required": !route.body_is_optional,
            "content": { "application/json": { "schema": body(&mut schemas.received) } },
        });
    }
    operation
}

/// Returns the id of an operation, such as `get_api_jobs_id` for `GET /api/jobs/{id}`.
fn operation_id(route: &Route) -> String {
    let words = |c: char| !c.is_ascii_alphanumeric();
    let words = route.path.split(words).filter(|word| !word.is_empty());
    let words: Vec<&str> = std::iter::once(route.verb.as_str()).chain(words).collect();
    words.join("_")
}

/// Returns the tag that groups a path in the OpenAPI document. For a path below `api`, the tag is
/// the next segment. For a path below `cluster`, the tag is `cluster`. For every other path, the
/// tag is `probes`.
fn tag(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or("ratchet");
    match first {
        "api" => parts.next().unwrap_or(first),
        "cluster" => first,
        _ => "probes",
    }
}

fn parameters(route: &Route, schemas: &mut Schemas) -> Vec<Value> {
    let mut parameters = Vec::new();
    for (name, schema) in &route.parts {
        let schema = schema(&mut schemas.received);
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    let Some(query) = route.query else {
        return parameters;
    };
    let query = query(&mut schemas.received).to_value();
    let required = query["required"].as_array().cloned().unwrap_or_default();
    for (name, schema) in query["properties"].as_object().into_iter().flatten() {
        let mut schema = schema.clone();
        let description = schema
            .as_object_mut()
            .and_then(|it| it.remove("description"));
        without_null(&mut schema);
        parameters.push(json!({
            "name": name,
            "in": "query",
            "required": required.contains(&json!(name)),
            "description": description,
            "schema": schema,
        }));
    }
    parameters
}

/// Removes `null` from the types of a query parameter, because a parameter cannot be null.
fn without_null(schema: &mut Value) {
    let Some(types) = schema.get_mut("type").filter(|types| types.is_array()) else {
        return;
    };
    if let Some(types) = types.as_array_mut() {
        types.retain(|one| one != "null");
    }
    if let Some(only) = types.as_array().filter(|types| types.len() == 1) {
        *types = only[0].clone();
    }
}

fn responses(route: &Route, schemas: &mut Schemas) -> Value {
    let mut responses: BTreeMap<u16, Value> = BTreeMap::new();
    for answer in &route.answers {
        let mut response = json!({ "description": answer.description });
        match answer.content {
            Content::Json(schema) => {
                let schema = schema(&mut schemas.sent);
                response["content"] = json!({ "application/json": { "schema": schema } });
            }
            Content::Other(media) => {
                response["content"] = json!({ media: { "schema": { "type": "string" } } });
            }
        }
        responses.insert(answer.status.as_u16(), response);
    }
    let mut codes: BTreeMap<StatusCode, Vec<Code>> = BTreeMap::new();
    for code in route.all_codes() {
        let of_status = codes.entry(code.status()).or_default();
        if !of_status.contains(&code) {
            of_status.push(code);
        }
    }
    let problem = schemas.sent.subschema_for::<Problem>();
    for (status, codes) in codes {
        let words: Vec<Value> = codes.iter().map(|code| json!(code)).collect();
        let texts: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        let described = json!({ "description": format!("Refused: {}.", texts.join(", ")) });
        let response = responses.entry(status.as_u16()).or_insert(described);
        response["content"]["application/problem+json"]["schema"] =
            json!({ "allOf": [problem, { "properties": { "code": { "enum": words } } }] });
        if status == StatusCode::TOO_MANY_REQUESTS {
            let seconds = json!({ "type": "integer", "minimum": 0 });
            response["headers"]["Retry-After"] = json!({ "schema": seconds });
        }
    }
    json!(responses)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn parts(path: &str) -> BTreeSet<&str> {
        let parts = path.split('/');
        let named = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        named.collect()
    }

    #[test]
    fn every_route_is_described_whole_and_once() {
        let routes = super::super::all();
        let mut seen = BTreeSet::new();
        for route in &routes {
            let name = format!("{} {}", route.verb.as_str(), route.path);
            assert!(seen.insert(name.clone()), "{name} occurs twice");
            assert!(!route.summary.is_empty(), "{name} has no summary");
            assert!(!route.answers.is_empty(), "{name} has no response");
            let described: BTreeSet<&str> = route.parts.iter().map(|(name, _)| *name).collect();
            assert_eq!(described, parts(route.path), "{name}");
            assert!(
                described.len() <= 1,
                "{name} has more than one parameter, and handlers get only the last one"
            );
        }
        let document = document(&routes);
        let paths = document["paths"].as_object().unwrap();
        let described: usize = paths
            .values()
            .map(|path| path.as_object().unwrap().len())
            .sum();
        assert_eq!(described, routes.len());
        let ids = routes.iter().map(operation_id).collect::<BTreeSet<_>>();
        assert_eq!(ids.len(), routes.len());
    }

    #[test]
    fn every_write_asks_for_leave_and_nothing_but_probes_is_open() {
        for route in super::super::all() {
            let writes = matches!(route.access, Some(Access::Write(_)));
            let is_post = route.verb == super::super::table::Verb::Post;
            assert_eq!(writes, is_post, "{}", route.path);
            if route.access.is_none() {
                assert_eq!(tag(route.path), "probes", "{}", route.path);
            }
        }
    }

    #[test]
    fn references_lead_somewhere() {
        let document = document(&super::super::all());
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"").skip(1) {
            let target = reference.split('"').next().unwrap();
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
        assert!(!text.contains("$defs"));
    }
}
