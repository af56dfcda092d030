//! Generates random requests: mostly operations of the OpenAPI document with mostly valid
//! parameters, and a few arbitrary ones.

use axum::body::Body;
use http::{Method, Request};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use crate::described::described;
use crate::kit::{HOSTILE, Things};

/// A random request. It selects jobs by [`Index`], because the ids in the store are not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    method: String,
    path: Vec<Part>,
    query: Vec<(String, Text)>,
    headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Sent,
}

/// A parameter of a path.
#[derive(Clone, Debug)]
enum Part {
    Literal(String),
    Filled(Text),
}

/// A value of a parameter or field.
#[derive(Clone, Debug)]
enum Text {
    /// The id of one of the jobs.
    Job(Index),
    Batch,
    Node,
    Any(String),
    /// Bytes that are percent-encoded, perhaps wrongly.
    Raw(Vec<u8>),
}

/// The body of a request.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    Nothing,
    Json(Value),
    /// A body for `/api/jobs/bulk` with the ids of some jobs.
    Bulk(Value, Vec<Index>),
    Bytes(Vec<u8>),
}

fn any_text() -> BoxedStrategy<String> {
    let known = select(vec![
        "",
        "yearly",
        "t",
        "act",
        "default",
        "bulk",
        "paused",
        HOSTILE,
        "failed",
        "failed,pending",
        "succeeded",
        "newest",
        "oldest",
        "0",
        "1",
        "-1",
        "7",
        "200",
        "201",
        "1e9",
        "NaN",
        "99999999999999999999",
        "null",
        "true",
        "..",
        ".",
        "%",
        "bulk",
        "nobody/polls this",
        "00000000-0000-0000-0000-000000000000",
        "01890000-0000-7000-8000-000000000000",
        "{01890000-0000-7000-8000-000000000000}",
        "'; DROP TABLE jobs; --",
        "\u{202e}\u{0}",
    ]);
    prop_oneof![
        4 => known.prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-z]{1,200}",
    ]
    .boxed()
}

fn text() -> BoxedStrategy<Text> {
    prop_oneof![
        6 => any::<Index>().prop_map(Text::Job),
        1 => Just(Text::Batch),
        1 => Just(Text::Node),
        4 => any_text().prop_map(Text::Any),
        1 => prop::collection::vec(any::<u8>(), 0..12).prop_map(Text::Raw),
    ]
    .boxed()
}

fn any_json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let key = prop_oneof![
            select(vec![
                "action", "filter", "all", "limit", "after", "ids", "states", "queue"
            ])
            .prop_map(str::to_owned),
            any_text(),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
    .boxed()
}

/// Generates a body that is mostly valid.
fn bulk() -> BoxedStrategy<Sent> {
    let action = select(vec![
        "retry", "cancel", "pause", "resume", "delete", "explode",
    ]);
    let states = prop::collection::vec(
        select(vec![
            "pending",
            "blocked",
            "paused",
            "running",
            "succeeded",
            "failed",
            "cancelled",
        ]),
        0..3,
    );
    let field = prop_oneof![
        6 => Just(None),
        1 => (select(vec!["action", "filter", "all", "limit", "after", "ids", "x"]), any_json())
            .prop_map(Some),
    ];
    let tag = prop::option::weighted(0.3, select(vec!["t", HOSTILE, "none"]));
    let limit = prop::option::of(0_u64..20);
    let ids = prop::collection::vec(any::<Index>(), 0..4);
    (action, states, tag, limit, any::<bool>(), field, ids)
        .prop_map(|(action, states, tag, limit, all, field, ids)| {
            let mut body = json!({ "action": action });
            if ids.is_empty() {
                body["filter"] = json!({ "states": states });
                if let Some(tag) = tag {
                    body["filter"]["tag"] = json!(tag);
                }
                if let Some(limit) = limit {
                    body["limit"] = json!(limit);
                }
                if all {
                    body["all"] = json!(true);
                }
            }
            if let Some((name, value)) = field {
                body[name] = value;
            }
            Sent::Bulk(body, ids)
        })
        .boxed()
}

fn sent() -> BoxedStrategy<Sent> {
    let deep = (1_usize..3_000).prop_map(|depth| Sent::Bytes("[".repeat(depth).into_bytes()));
    let long = (60_000_usize..70_000).prop_map(|length| Sent::Bytes(vec![b' '; length]));
    prop_oneof![
        6 => Just(Sent::Nothing),
        4 => bulk(),
        3 => any_json().prop_map(Sent::Json),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Sent::Bytes),
        1 => deep,
        1 => long,
    ]
    .boxed()
}

fn headers() -> BoxedStrategy<Vec<(&'static str, Vec<u8>)>> {
    let name = select(vec![
        "content-type",
        "content-length",
        "accept",
        "host",
        "origin",
        "sec-fetch-site",
        "cookie",
        "authorization",
        "if-none-match",
        "last-event-id",
        "transfer-encoding",
        "range",
    ]);
    let value = prop_oneof![
        select(vec![
            "application/json",
            "text/plain",
            "0",
            "-1",
            "99999999999999999999",
            "*/*",
            "null",
            "http://evil.example",
            "cross-site",
            "chunked",
            "bytes=0-1",
            "\"x\"",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(32_u8..=255, 0..40),
    ];
    prop::collection::vec((name, value), 0..3).boxed()
}

/// Generates a request for an operation of the document, with mostly valid parameters.
fn described_draft() -> BoxedStrategy<Draft> {
    let operations: Vec<(String, String, Vec<String>)> = (described().operations().into_iter())
        .map(|(method, path, operation)| {
            let parameters = operation["parameters"].as_array().unwrap().iter();
            let names = parameters.filter(|parameter| parameter["in"] == "query");
            let names = names.map(|it| it["name"].as_str().unwrap().to_owned());
            (method.to_string(), path.to_owned(), names.collect())
        })
        .collect();
    let query = |names: Vec<String>| {
        let known = if names.is_empty() {
            Just("x".to_owned()).boxed()
        } else {
            select(names).boxed()
        };
        let name = prop_oneof![9 => known, 1 => any_text()];
        prop_oneof![
            1 => Just(Vec::new()),
            1 => prop::collection::vec((name, text()), 0..3),
        ]
    };
    // Generate more writes than reads, because only writes can lose jobs.
    let weighted = operations.into_iter().flat_map(|operation| {
        let times = if operation.0 == "POST" { 3 } else { 1 };
        vec![operation; times]
    });
    let operation = select(weighted.collect::<Vec<_>>());
    (operation, headers(), any::<bool>())
        .prop_flat_map(move |((method, path, names), headers, plain)| {
            let parts: Vec<BoxedStrategy<Part>> = path
                .split('/')
                .skip(1)
                .map(|part| match part {
                    "{id}" if path.starts_with("/api/jobs") => {
                        let job = any::<Index>().prop_map(|job| Part::Filled(Text::Job(job)));
                        prop_oneof![5 => job, 1 => text().prop_map(Part::Filled)].boxed()
                    }
                    part if part.starts_with('{') => text().prop_map(Part::Filled).boxed(),
                    part => Just(Part::Literal(part.to_owned())).boxed(),
                })
                .collect();
            let body = match (plain, path.ends_with("/bulk")) {
                (true, true) => bulk(),
                (true, false) => Just(Sent::Nothing).boxed(),
                (false, _) => sent(),
            };
            let query = if plain && method == "POST" {
                Just(Vec::new()).boxed()
            } else {
                query(names).boxed()
            };
            let headers = if plain { Vec::new() } else { headers };
            (parts, query, body).prop_map(move |(path, query, body)| Draft {
                method: method.clone(),
                path,
                query,
                headers: headers.clone(),
                body,
            })
        })
        .boxed()
}

/// Generates an arbitrary request.
fn wild_draft() -> BoxedStrategy<Draft> {
    let literal = select(vec![
        "api",
        "jobs",
        "bulk",
        "queues",
        "recurring",
        "batches",
        "cluster",
        "nodes",
        "leader",
        "events",
        "dashboard",
        "metrics",
        "openapi.json",
        "cancel",
        "delete",
        "history",
        "graph",
        "",
        "health",
    ]);
    let part = prop_oneof![
        3 => literal.prop_map(|part| Part::Literal(part.to_owned())),
        1 => text().prop_map(Part::Filled),
    ];
    let method = prop_oneof![
        6 => select(vec!["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"])
            .prop_map(str::to_owned),
        1 => "[A-Z]{1,12}",
    ];
    let path = prop::collection::vec(part, 0..6);
    let query = prop::collection::vec((any_text(), text()), 0..4);
    (method, path, query, headers(), sent())
        .prop_map(|(method, path, query, headers, body)| Draft {
            method,
            path,
            query,
            headers,
            body,
        })
        .boxed()
}

/// Generates up to this many requests.
pub(crate) fn drafts(most: usize) -> impl Strategy<Value = Vec<Draft>> {
    let draft = prop_oneof![4 => described_draft(), 1 => wild_draft()];
    prop::collection::vec(draft, 1..most)
}

fn percent(bytes: &[u8]) -> String {
    percent_encoding::percent_encode(bytes, percent_encoding::NON_ALPHANUMERIC).to_string()
}

impl Text {
    fn write(&self, things: &Things, node: &str) -> String {
        match self {
            Self::Job(index) => index.get(&things.jobs).to_string(),
            Self::Batch => things.batch.unwrap().to_string(),
            Self::Node => node.to_owned(),
            Self::Any(text) => percent(text.as_bytes()),
            Self::Raw(bytes) => percent(bytes),
        }
    }
}

impl Draft {
    /// Returns the request, with ids of items in the store filled in.
    pub(crate) fn request(&self, things: &Things, node: &str) -> Request<Body> {
        let mut uri = String::new();
        for part in &self.path {
            uri.push('/');
            match part {
                Part::Literal(part) => uri.push_str(part),
                Part::Filled(text) => uri.push_str(&text.write(things, node)),
            }
        }
        if uri.is_empty() {
            uri.push('/');
        }
        for (place, (name, value)) in self.query.iter().enumerate() {
            uri.push(if place == 0 { '?' } else { '&' });
            uri.push_str(&percent(name.as_bytes()));
            uri.push('=');
            uri.push_str(&value.write(things, node));
        }
        let mut is_json = false;
        let body = match &self.body {
            Sent::Nothing => Body::empty(),
            Sent::Bytes(bytes) => Body::from(bytes.clone()),
            Sent::Json(json) => {
                is_json = true;
                Body::from(json.to_string())
            }
            Sent::Bulk(json, indices) => {
                is_json = true;
                let mut json = json.clone();
                if !indices.is_empty() {
                    let ids = indices.iter().map(|one| one.get(&things.jobs).to_string());
                    json["ids"] = ids.collect();
                }
                Body::from(json.to_string())
            }
        };
        let mut request = Request::builder()
            .method(Method::from_bytes(self.method.as_bytes()).unwrap())
            .uri(uri)
            .body(body)
            .unwrap();
        let json = http::HeaderValue::from_static("application/json");
        if is_json {
            request.headers_mut().insert("content-type", json);
        }
        for (name, value) in &self.headers {
            if let Ok(value) = http::HeaderValue::from_bytes(value) {
                request.headers_mut().insert(*name, value);
            }
        }
        request
    }
}
