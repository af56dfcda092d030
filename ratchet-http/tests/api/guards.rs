//! The guards of every route: authorization and the rate limit of writes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Method;
use ratchet_core::memory::Fault;
use ratchet_core::{JobState, MemoryStore};
use ratchet_http::{Access, ClientAddr, Limits, Payloads, Token};
use serde_json::json;

use crate::described::described;
use crate::kit::{Allow, World, allow_all, job_in, request};

/// Returns every operation that the authorizer decides on, with valid path parameters and whether
/// it writes.
fn closed() -> Vec<(Method, String, bool)> {
    let operations = described().operations().into_iter();
    let closed = operations.filter(|(_, _, operation)| operation["x-access"] != "open");
    closed
        .map(|(method, template, operation)| {
            let id = "01890000-0000-7000-8000-000000000000";
            let path = template.replace("{id}", id).replace("{name}", "x");
            (method, path, operation["x-access"] == "write")
        })
        .collect()
}

#[tokio::test]
async fn without_an_authorizer_nothing_is_written() {
    let store = Arc::new(MemoryStore::new());
    let world = World::built(store, |builder| builder);
    let id = job_in(&world, JobState::Pending).await;
    for (method, path, writes) in closed() {
        let answer = world
            .send(request(method.clone(), &path, Body::empty()))
            .await;
        if writes {
            answer.refused(403, "read_only");
        } else {
            assert_ne!(answer.status.as_u16(), 403, "{method} {path}");
        }
    }
    let uri = format!("/api/jobs/{id}/cancel");
    world.post(&uri).await.refused(403, "read_only");
    let body = json!({"action": "cancel", "all": true});
    world
        .post_json("/api/jobs/bulk", &body)
        .await
        .refused(403, "read_only");
    assert_eq!(world.state(id).await, JobState::Pending);
}

#[tokio::test]
async fn the_authorizer_is_asked_before_anything_is_looked_at() {
    let nothing = |_| false;
    let denied = World::built(Arc::new(MemoryStore::new()), |builder| {
        builder.authorize(Allow(nothing))
    });
    let reads = |access| access == Access::Read;
    let reader = World::built(Arc::new(MemoryStore::new()), |builder| {
        builder.authorize(Allow(reads))
    });
    for (method, path, writes) in closed() {
        let ask = || {
            request(
                method.clone(),
                &format!("{path}?nonsense=1"),
                Body::from("{"),
            )
        };
        denied.send(ask()).await.refused(403, "denied");
        let answer = reader.send(ask()).await;
        assert_eq!(answer.status.as_u16() == 403, writes, "{method} {path}");
    }
    for probe in ["/health", "/ready", "/leader"] {
        let answer = denied.get(probe).await;
        assert!(matches!(answer.status.as_u16(), 200 | 503), "{probe}");
    }
}

#[tokio::test]
async fn too_many_writes_are_told_when_to_come_again() {
    let world = World::built(Arc::new(MemoryStore::new()), |builder| {
        builder
            .authorize(Allow(allow_all))
            .limits(Limits::default().writes_per_second(3))
    });
    let mut refused = 0;
    for _ in 0..5 {
        let answer = world.post("/api/queues/q/pause").await;
        if answer.status.as_u16() == 429 {
            let after = answer.headers["retry-after"].to_str().unwrap().to_owned();
            answer.refused(429, "too_many_requests");
            assert!(after.parse::<u64>().unwrap() >= 1);
            refused += 1;
        }
    }
    assert!((1..=2).contains(&refused), "{refused}");
    // The limit does not apply to reads.
    for _ in 0..50 {
        world.get("/api/jobs").await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_who_read_at_once_are_told_when_to_come_again() {
    let store = MemoryStore::new().with_faults(|operation| match operation {
        "list" => Fault::Delay(Duration::from_secs(3)),
        _ => Fault::None,
    });
    let limits = Limits::default().reads(1);
    let world = World::built(Arc::new(store), |builder| builder.limits(limits));
    let (one, other) = tokio::join!(world.get("/api/jobs"), world.get("/api/jobs"));
    let (read, refused) = match one.status.as_u16() {
        200 => (one, other),
        _ => (other, one),
    };
    read.ok();
    assert_eq!(refused.headers["retry-after"], "1");
    refused.refused(503, "too_many_clients");
    world.get("/api/jobs").await.ok();
}

#[tokio::test(start_paused = true)]
async fn one_client_that_reads_a_lot_does_not_take_the_reads_of_others() {
    let store = MemoryStore::new().with_faults(|operation| match operation {
        "list" => Fault::Delay(Duration::from_millis(500)),
        _ => Fault::None,
    });
    let world = World::built(Arc::new(store), |builder| builder);
    let list = |client: u8| {
        let mut ask = request(Method::GET, "/api/jobs", Body::empty());
        let client = ClientAddr([192, 0, 2, client].into());
        ask.extensions_mut().insert(client);
        ask
    };
    let flood: Vec<_> = (0..200)
        .map(|_| {
            let (world, list) = (world.clone(), list);
            tokio::spawn(async move {
                for _ in 0..20 {
                    world.send(list(1)).await;
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    for _ in 0..20 {
        world.send(list(2)).await.ok();
    }
    flood.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_token_protects_reads_and_an_api_that_only_reads_takes_none_for_writes() {
    let built = |protect: bool| {
        World::built(Arc::new(MemoryStore::new()), |builder| {
            builder
                .authorize(Token::new("right").protect_reads(protect))
                .payloads(Payloads::Shown)
                .read_only()
        })
    };
    let with = |path: &str, token: &str| {
        let mut ask = request(Method::GET, path, Body::empty());
        let value = format!("Bearer {token}").parse().unwrap();
        ask.headers_mut().insert("authorization", value);
        ask
    };
    let protected = built(true);
    for (method, path, writes) in closed() {
        let ask = request(method.clone(), &path, Body::empty());
        let answer = protected.send(ask).await;
        match writes {
            true => answer.refused(403, "read_only"),
            false => answer.refused(401, "unauthorized"),
        };
    }
    protected.send(with("/api/jobs", "right")).await.ok();
    let open = built(false);
    let id = job_in(&open, JobState::Pending).await;
    let path = format!("/api/jobs/{id}");
    let shown = async |ask| open.send(ask).await.ok()["payload"].clone();
    assert_eq!(shown(with(&path, "right")).await, json!(1));
    for hidden in [
        request(Method::GET, &path, Body::empty()),
        with(&path, "wrong"),
    ] {
        assert_eq!(shown(hidden).await, json!(null));
    }
    assert_eq!(open.get("/cluster/status").await.ok()["writes"], false);
    // After too many wrong tokens, the client's correct token is refused too.
    for number in 0..10 {
        let guess = with("/api/jobs", &format!("wrong {number}"));
        protected.send(guess).await.refused(403, "denied");
    }
    let throttled = protected.send(with("/api/jobs", "right")).await;
    assert!(throttled.headers.contains_key("retry-after"));
    throttled.refused(429, "too_many_attempts");
}

#[tokio::test]
async fn bodies_that_are_not_json_or_too_long_are_refused() {
    let world = World::new();
    let send = async |media: Option<&str>, body: Vec<u8>| {
        let mut ask = request(Method::POST, "/api/jobs/bulk", Body::from(body));
        if let Some(media) = media {
            let value = media.parse().unwrap();
            ask.headers_mut().insert("content-type", value);
        }
        world.send(ask).await
    };
    let json = Some("application/json; charset=utf-8");
    send(None, b"{}".to_vec())
        .await
        .refused(415, "unsupported_media_type");
    let text = send(Some("text/plain"), b"{}".to_vec()).await;
    text.refused(415, "unsupported_media_type");
    for broken in [
        &b""[..],
        b"{",
        b"nul",
        b"\xff\xfe",
        b"{\"action\":\"cancel\",}",
    ] {
        send(json, broken.to_vec()).await.refused(400, "malformed");
    }
    let deep = "[".repeat(60_000).into_bytes();
    let answer = send(json, deep).await;
    assert!(matches!(answer.status.as_u16(), 400 | 422), "{answer:?}");
    let long = vec![b' '; 64 * 1_024 + 1];
    send(json, long).await.refused(413, "too_large");
}
