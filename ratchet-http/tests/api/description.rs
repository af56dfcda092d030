//! The OpenAPI document and the router agree.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, header};
use ratchet_core::{JobState, MemoryStore, SharedStore};
use serde_json::{Value, json};

use crate::described::described;
use crate::kit::{self, HOSTILE, World, populate, request};

/// Returns the path with valid parameters that name no existing item.
fn filled(template: &str, operation: &Value) -> String {
    let mut path = template.to_owned();
    for parameter in operation["parameters"].as_array().unwrap() {
        if parameter["in"] == "path" {
            let value = match parameter["schema"]["format"].as_str() {
                Some("uuid") => "01890000-0000-7000-8000-000000000000",
                _ => "nothing",
            };
            let name = parameter["name"].as_str().unwrap();
            path = path.replace(&format!("{{{name}}}"), value);
        }
    }
    path
}

fn queries(operation: &Value) -> Vec<&Value> {
    let parameters = operation["parameters"].as_array().unwrap().iter();
    parameters
        .filter(|parameter| parameter["in"] == "query")
        .collect()
}

/// Returns a value that a schema allows.
fn example(schema: &Value) -> Value {
    let components = &described().document["components"]["schemas"];
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap();
        return example(&components[name]);
    }
    if let Some(one) = schema["oneOf"].get(0).or(schema["anyOf"].get(0)) {
        return example(one);
    }
    if let Some(one) = schema.get("const").or(schema["enum"].get(0)) {
        return one.clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str().unwrap(),
        kind => kind.as_str().unwrap(),
    };
    match kind {
        "string" if schema["format"] == "uuid" => json!("01890000-0000-7000-8000-000000000000"),
        "string" => json!("x"),
        "integer" => json!(1),
        "boolean" => json!(true),
        "array" => json!([example(&schema["items"])]),
        "object" => {
            let properties = schema["properties"].as_object().unwrap().iter();
            Value::Object(
                properties
                    .map(|(name, it)| (name.clone(), example(it)))
                    .collect(),
            )
        }
        other => panic!("no example value is known for the schema type {other}: {schema}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => text(&items[0]),
        other => other.to_string(),
    }
}

#[test]
fn every_schema_is_one() {
    let document = &described().document;
    assert_eq!(document["openapi"], "3.1.0");
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{name}");
    }
}

#[tokio::test]
async fn every_described_operation_is_routed_and_no_other_method_is() {
    let world = World::new();
    for (method, template, operation) in described().operations() {
        let path = filled(template, operation);
        let answer = world
            .send(request(method.clone(), &path, Body::empty()))
            .await;
        let code = &answer.json["code"];
        assert_ne!(answer.status.as_u16(), 405, "{method} {path}");
        assert_ne!(
            answer.json["detail"], "nothing is served at this path",
            "{method} {path}"
        );
        if code == "not_found" {
            let documented = &operation["responses"]["404"];
            assert!(!documented.is_null(), "{method} {path}");
        }
    }
    let verbs = [
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::POST,
        Method::GET,
    ];
    for (_, template, operation) in described().operations() {
        let allowed = described().document["paths"][template].as_object().unwrap();
        for verb in &verbs {
            if allowed.contains_key(&verb.as_str().to_lowercase()) {
                continue;
            }
            let path = filled(template, operation);
            let answer = world
                .send(request(verb.clone(), &path, Body::empty()))
                .await;
            let allow = answer.headers.get(header::ALLOW).cloned();
            answer.refused(405, "method_not_allowed");
            let allow = allow.unwrap_or_else(|| {
                panic!(
                    "expected a header Allow in the response to \
                     {verb} {path}"
                )
            });
            for verb in allowed.keys() {
                assert!(
                    allow.to_str().unwrap().contains(&verb.to_uppercase()),
                    "{allow:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn described_parameters_are_taken_and_others_are_refused() {
    let world = World::new();
    for (method, template, operation) in described().operations() {
        if operation["x-access"] == "open" {
            // The probes accept any query.
            continue;
        }
        let path = filled(template, operation);
        for parameter in queries(operation) {
            let name = parameter["name"].as_str().unwrap();
            let value = text(&example(&parameter["schema"]));
            let answer = world.get(&format!("{path}?{name}={value}")).await;
            assert_ne!(answer.json["field"], name, "{path}: {answer:?}");
        }
        let ask = request(method.clone(), &format!("{path}?nonsense=1"), Body::empty());
        let answer = world.send(ask).await;
        assert_eq!(answer.status.as_u16(), 422, "{method} {path}: {answer:?}");
        assert_eq!(answer.json["field"], "nonsense", "{method} {path}");
    }
}

#[tokio::test]
async fn described_bodies_are_taken_and_others_are_refused() {
    let world = World::new();
    for (method, template, operation) in described().operations() {
        if method != Method::POST {
            continue;
        }
        let path = filled(template, operation);
        let Some(body) = operation.get("requestBody") else {
            world.post_json(&path, &json!({})).await.invalid("body");
            continue;
        };
        let schema = &body["content"]["application/json"]["schema"];
        let whole = example(schema);
        for (name, value) in whole.as_object().unwrap() {
            let mut part = json!({ name: value });
            if let Some(action) = whole.get("action") {
                part["action"] = action.clone();
            }
            let answer = world.post_json(&path, &part).await;
            let detail = answer.json["detail"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            assert!(!detail.contains("unknown field"), "{path} {name}: {detail}");
        }
        let mut more = whole.clone();
        more["nonsense"] = json!(1);
        world.post_json(&path, &more).await.invalid("nonsense");
    }
}

#[tokio::test]
async fn every_operation_is_seen_to_answer_as_described() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let world = World::over(Arc::clone(&store));
    let things = populate(&world.client).await;
    let node = kit::node(&store);
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run().await }
    });
    kit::until("a job has ended in each way", || async {
        world.state(things.jobs[0]).await == JobState::Succeeded
            && world.state(things.jobs[1]).await == JobState::Failed
            && world.state(things.jobs[3]).await == JobState::Running
    })
    .await;
    // Until the API has read the node, it knows of due jobs but of no live node, so it is not
    // ready.
    kit::until("the node was read", || async {
        world.get("/cluster/nodes").await.ok()["nodes"][0]["live"] == true
    })
    .await;
    let mut seen = BTreeSet::new();
    let (done, dead, dead_too, held) = (
        things.jobs[0],
        things.jobs[1],
        things.jobs[2],
        things.jobs[3],
    );
    let (waiting, parent) = (things.jobs[6], things.jobs[10]);
    let batch = things.batch.unwrap();
    let name = percent(HOSTILE);
    let reads = [
        ("/api/jobs", "/api/jobs?limit=200".to_owned()),
        (
            "/api/jobs/count",
            "/api/jobs/count?action=cancel".to_owned(),
        ),
        ("/api/jobs/counts", "/api/jobs/counts".to_owned()),
        ("/api/jobs/{id}", format!("/api/jobs/{done}")),
        ("/api/jobs/{id}", format!("/api/jobs/{dead}")),
        ("/api/jobs/{id}", format!("/api/jobs/{held}")),
        (
            "/api/jobs/{id}/history",
            format!("/api/jobs/{dead}/history"),
        ),
        ("/api/jobs/{id}/graph", format!("/api/jobs/{parent}/graph")),
        ("/api/queues", "/api/queues".to_owned()),
        ("/api/recurring", "/api/recurring".to_owned()),
        ("/api/recurring/{name}", format!("/api/recurring/{name}")),
        ("/api/batches", "/api/batches".to_owned()),
        ("/api/batches/{id}", format!("/api/batches/{batch}")),
        ("/api/locks", "/api/locks".to_owned()),
        ("/api/permits", "/api/permits".to_owned()),
        ("/api/pauses", "/api/pauses".to_owned()),
        ("/api/fair-keys", "/api/fair-keys".to_owned()),
        ("/api/fair-limits", "/api/fair-limits".to_owned()),
        ("/api/openapi.json", "/api/openapi.json".to_owned()),
        ("/api/overview", "/api/overview".to_owned()),
        ("/api/events", "/api/events".to_owned()),
        ("/cluster/status", "/cluster/status".to_owned()),
        ("/cluster/nodes", "/cluster/nodes".to_owned()),
        ("/health", "/health".to_owned()),
        ("/ready", "/ready".to_owned()),
    ];
    for (template, uri) in reads {
        world.get(&uri).await.ok();
        seen.insert((Method::GET, template));
    }
    let queue = percent("nobody/polls this");
    let writes = [
        ("/api/jobs/{id}/pause", format!("/api/jobs/{waiting}/pause")),
        (
            "/api/jobs/{id}/resume",
            format!("/api/jobs/{waiting}/resume"),
        ),
        ("/api/jobs/{id}/cancel", format!("/api/jobs/{held}/cancel")),
        ("/api/jobs/{id}/delete", format!("/api/jobs/{dead}/delete")),
        (
            "/api/jobs/{id}/retry",
            format!("/api/jobs/{dead_too}/retry"),
        ),
        (
            "/api/queues/{name}/pause",
            format!("/api/queues/{queue}/pause"),
        ),
        (
            "/api/queues/{name}/resume",
            format!("/api/queues/{queue}/resume"),
        ),
        (
            "/api/kinds/{name}/pause",
            format!("/api/kinds/{queue}/pause"),
        ),
        (
            "/api/kinds/{name}/resume",
            format!("/api/kinds/{queue}/resume"),
        ),
        (
            "/api/recurring/{name}/pause",
            format!("/api/recurring/{name}/pause"),
        ),
        (
            "/api/recurring/{name}/resume",
            format!("/api/recurring/{name}/resume"),
        ),
        (
            "/api/recurring/{name}/trigger",
            format!("/api/recurring/{name}/trigger"),
        ),
        (
            "/api/batches/{id}/cancel",
            format!("/api/batches/{batch}/cancel"),
        ),
        (
            "/api/nodes/{id}/drain",
            format!("/api/nodes/{}/drain", node.id()),
        ),
    ];
    for (template, uri) in writes {
        world.post(&uri).await.ok();
        seen.insert((Method::POST, template));
    }
    let all = json!({"action": "cancel", "filter": {"queue": "nobody/polls this"}});
    world.post_json("/api/jobs/bulk", &all).await.ok();
    seen.insert((Method::POST, "/api/jobs/bulk"));
    let limit = json!({"queue": HOSTILE, "key": HOSTILE, "max": 2});
    world.post_json("/api/fair-limits/set", &limit).await.ok();
    seen.insert((Method::POST, "/api/fair-limits/set"));
    // The first two paths return 200 only on a leader, and the last path only if the API has a
    // recorder of metrics.
    let elsewhere = ["/leader", "/leader/{role}", "/metrics"];
    let missed: Vec<_> = (described().operations().into_iter())
        .map(|(method, path, _)| (method, path))
        .filter(|asked| !seen.contains(asked) && !elsewhere.contains(&asked.1))
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
    running.abort();
}

/// Encodes a parameter of a path.
fn percent(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
