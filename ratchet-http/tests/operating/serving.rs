//! `serve` and the limits that apply to every request, over real connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http::request::Parts;
use ratchet_core::{MemoryStore, NewJob, Ratchet};
use ratchet_http::{Access, Api, ApiBuilder, Authorizer, Denied, Limits, ServeError, Token, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::kit::{Anybody, SECOND, get, send};

/// An authorizer that never answers, so that requests hang until they time out. Panics if the path
/// ends with `locks`.
struct Hangs;

#[async_trait::async_trait]
impl Authorizer for Hangs {
    async fn authorize(&self, parts: &Parts, _: Access) -> Result<(), Denied> {
        assert!(
            !parts.uri.path().ends_with("locks"),
            "planned panic of the authorizer for the locks"
        );
        std::future::pending().await
    }
}

struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

fn builder() -> ApiBuilder {
    Api::builder(Ratchet::client(Arc::new(MemoryStore::new())))
}

async fn served(api: Api) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(serve(listener, api, async { drop(stopped.await) }));
    Served {
        address,
        stop,
        task,
    }
}

/// Sends `request`, and then reads until the server closes the connection.
async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // If the server closes a connection before it has read all bytes, the client's read may fail
    // with a reset.
    let _ = tokio::time::timeout(30 * SECOND, stream.read_to_end(&mut text))
        .await
        .expect("the server should close the connection");
    String::from_utf8(text).unwrap()
}

fn get_of(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn it_serves_until_it_is_told_to_stop_also_those_who_listen() {
    let served = served(builder().build().unwrap()).await;
    let answer = raw(served.address, &get_of("localhost", "/health")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut listener = TcpStream::connect(served.address).await.unwrap();
    let request = get_of("localhost", "/api/events");
    listener.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    listener.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    served.stop.send(()).unwrap();
    tokio::time::timeout(30 * SECOND, served.task)
        .await
        .expect("the shutdown should not wait for event streams")
        .unwrap()
        .unwrap();
    rest(&mut listener).await;
}

#[tokio::test]
async fn it_is_not_exposed_unless_it_is_allowed() {
    let bind = || async { TcpListener::bind("0.0.0.0:0").await.unwrap() };
    let refused = serve(bind().await, builder().build().unwrap(), async {}).await;
    assert!(
        matches!(refused, Err(ServeError::Exposed { .. })),
        "{refused:?}"
    );
    let allowed = builder().allow_remote().build().unwrap();
    serve(bind().await, allowed, async {}).await.unwrap();
    let protected = builder().authorize(Anybody).build().unwrap();
    serve(bind().await, protected, async {}).await.unwrap();
}

#[tokio::test]
async fn on_loopback_other_hosts_are_refused() {
    let served_alone = served(builder().build().unwrap()).await;
    for (host, status) in [
        ("localhost:80", "200"),
        ("127.0.0.1", "200"),
        ("[::1]:7000", "200"),
        ("evil.example", "421"),
        ("127.0.0.1.evil.example", "421"),
    ] {
        let answer = raw(served_alone.address, &get_of(host, "/api/jobs")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{host}: {answer}"
        );
    }
    let named = builder().hosts(["ops.example.com"]).build().unwrap();
    let named = served(named).await;
    let protected = served(builder().authorize(Anybody).build().unwrap()).await;
    let open = builder().authorize(Anybody).allow_remote();
    let open = served(open.build().unwrap()).await;
    for (served, host, status) in [
        (&named, "ops.example.com", "200"),
        (&named, "evil.example", "421"),
        (&protected, "localhost", "200"),
        (&protected, "evil.example", "421"),
        (&open, "evil.example", "200"),
    ] {
        let answer = raw(served.address, &get_of(host, "/api/jobs")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{host}: {answer}"
        );
    }
}

#[tokio::test]
async fn probes_are_answered_for_any_host_and_for_none() {
    let named = builder().hosts(["ops.example.com"]).build().unwrap();
    for api in [named, builder().build().unwrap()] {
        let served = served(api).await;
        let without = "GET /health HTTP/1.0\r\n\r\n".to_owned();
        for request in [get_of("10.1.2.3:8080", "/health"), without] {
            let answer = raw(served.address, &request).await;
            assert!(answer.contains(" 200 OK\r\n"), "{answer}");
        }
        for path in ["/", "/nothing", "/api/openapi.json"] {
            let answer = raw(served.address, &get_of("evil.example", path)).await;
            assert!(answer.starts_with("HTTP/1.1 421"), "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn slow_and_idle_clients_are_dropped() {
    let limits = Limits::default().header_timeout(Duration::from_millis(300));
    let served = served(builder().limits(limits).build().unwrap()).await;
    // The client sends only the first part of a request head.
    let answer = raw(served.address, "GET /health HTTP/1.1\r\nHost: loc").await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The first client sends nothing. The second client sends one request and then nothing.
    assert_eq!(raw(served.address, "").await, "");
    let answer = raw(
        served.address,
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let limits = Limits::default().body_timeout(Duration::from_millis(300));
    let api = builder().authorize(Anybody).limits(limits).build().unwrap();
    let served = served(api).await;
    let request = "POST /api/jobs/bulk HTTP/1.1\r\nHost: localhost\r\n\
                   Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"action\":";
    let answer = raw(served.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"too_slow\""), "{answer}");
}

#[tokio::test]
async fn huge_bodies_are_refused_before_and_while_they_come() {
    let served = served(builder().authorize(Anybody).build().unwrap()).await;
    let head =
        "POST /api/jobs/bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let announced = format!("{head}Content-Length: 1000000000\r\n\r\n");
    let answer = raw(served.address, &announced).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}");
    let answer = raw(served.address, &chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // The request head is longer than the limit.
    let header = format!(
        "GET /health HTTP/1.1\r\nX: {}\r\n\r\n",
        "x".repeat(1_000_000)
    );
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let _ = stream.write_all(header.as_bytes()).await;
    let answer = rest(&mut stream).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(store));
    let tags = |number: usize| format!("{number}{}", "x".repeat(100));
    for _ in 0..20 {
        let jobs: Vec<NewJob> = (0..10)
            .map(|number| NewJob::new("a", &1).tag(&tags(number)))
            .collect();
        client.enqueue_all(&jobs).await.unwrap();
    }
    let limits = Limits::default().write_timeout(Duration::from_millis(300));
    let api = Api::builder(client).limits(limits).build().unwrap();
    let served = served(api).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = "GET /api/jobs?limit=200 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(400);
    let sends = async {
        // The client never reads the responses, so the server's writes block. The server then stops
        // reading, and later closes the connection.
        loop {
            stream.write_all(request.as_bytes()).await?;
        }
    };
    let sent: Result<std::io::Result<()>, _> = tokio::time::timeout(60 * SECOND, sends).await;
    assert!(
        sent.expect("the server should close the connection")
            .is_err()
    );
}

/// Opens a connection and keeps it open after the first response. Fails if the process cannot open
/// another connection.
async fn keep_alive(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    answer(&mut stream).await?;
    Ok(stream)
}

/// Reads one response. Its JSON body must not contain nested objects.
async fn answer(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = String::new();
    while !text.ends_with('}') {
        text.push(char::from(stream.read_u8().await?));
    }
    Ok(text)
}

/// Opens a connection and sends only the first part of a request head.
async fn half_open(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: loc")
        .await?;
    Ok(stream)
}

#[tokio::test]
async fn connections_without_requests_do_not_starve_the_probes() {
    // The timeouts are longer than the test, so no connection is closed because of them.
    let limits = Limits::default().header_timeout(3_600 * SECOND);
    let alone = limits.clone().connections_per_peer(usize::MAX);
    for limits in [limits, alone] {
        let most = limits.connections;
        let served = served(builder().limits(limits).build().unwrap()).await;
        let mut held = Vec::new();
        for _ in 0..most + 76 {
            held.extend(keep_alive(served.address).await);
        }
        for _ in 0..most + 76 {
            held.extend(half_open(served.address).await);
        }
        if held.len() <= most {
            // The process has no free file descriptors, so the server cannot accept further
            // connections. Close some connections, so that the probes can connect.
            held.truncate(held.len() - 16);
        }
        for (path, status) in [("/health", "200"), ("/ready", "200"), ("/leader", "503")] {
            let answer = raw(served.address, &get_of("localhost", path)).await;
            let begin = format!("HTTP/1.1 {status}");
            assert!(answer.starts_with(&begin), "{path}: {answer}");
        }
        // The server closed the connections that were idle for the longest time, so their number
        // stays bounded.
        assert_eq!(rest(&mut held[0]).await, "");
    }
}

#[tokio::test]
async fn connections_in_use_are_not_closed_for_others() {
    let limits = Limits::default()
        .connections(3)
        .header_timeout(3_600 * SECOND);
    let served = served(builder().limits(limits).build().unwrap()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = get_of("localhost", "/api/events");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(keep_alive(served.address).await.unwrap());
    }
    // The server closed the oldest idle connections. The newest connections are still open, and the
    // event stream continues.
    assert_eq!(rest(&mut held[0]).await, "");
    let last = held.last_mut().unwrap();
    last.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert!(answer(last).await.unwrap().contains("\"ok\""));
    let mut told = String::new();
    while told.matches("event: tick").count() < 2 {
        told.push(char::from(stream.read_u8().await.unwrap()));
    }
}

#[tokio::test]
async fn long_heads_are_refused() {
    let served = served(builder().build().unwrap()).await;
    for (length, status) in [(30, "200"), (33, "431")] {
        let head = format!(
            "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: {}\r\n\r\n",
            "x".repeat(length * 1024 - 70)
        );
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(begin, format!("HTTP/1.1 {status}").as_bytes());
    }
}

/// Stops the paused clock of a test until the returned sender is dropped. The runtime does not
/// advance the paused clock while a blocking task runs.
fn stopped_clock() -> std::sync::mpsc::Sender<()> {
    let (hold, held) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || held.recv());
    hold
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_proxy_are_told_apart() {
    // The limit for wrong passwords allows more attempts over time. With a stopped clock, it allows
    // no more attempts between the requests.
    let _stopped = stopped_clock();
    for (proxies, other) in [(vec![[127, 0, 0, 1].into()], "401"), (vec![], "429")] {
        let token = Token::new("right").protect_reads(true);
        let api = builder().authorize(token).proxies(proxies).build().unwrap();
        let served = served(api).await;
        let ask = async |client: &str| {
            let request = format!(
                "GET /api/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 X-Forwarded-For: {client}\r\nAuthorization: Basic bWU6d3Jvbmc=\r\n\r\n"
            );
            let answer = raw(served.address, &request).await;
            answer[9..12].to_owned()
        };
        for _ in 0..10 {
            assert_eq!(ask("192.0.2.1").await, "401");
        }
        assert_eq!(ask("192.0.2.1").await, "429");
        assert_eq!(ask("192.0.2.2").await, other);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_hangs_or_panics_is_an_error_and_no_more() {
    let router = builder().authorize(Hangs).build().unwrap().router();
    let asked_at = ratchet_core::time::monotonic();
    let answer = get(&router, "/api/queues").await;
    assert_eq!(asked_at.elapsed().as_secs(), 15);
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["code"]),
        (503, &"timeout".into())
    );
    let answer = get(&router, "/api/locks").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["code"]),
        (500, &"internal".into())
    );
    assert!(
        !answer
            .text
            .contains("planned panic of the authorizer for the locks")
    );
}

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_browsers_in_bounds() {
    let router = builder().build().unwrap().router();
    for uri in ["/health", "/api/jobs", "/api/jobs?x=1", "/nothing", "/"] {
        let headers = get(&router, uri).await.headers;
        assert_eq!(headers["x-content-type-options"], "nosniff", "{uri}");
        assert_eq!(headers["x-frame-options"], "DENY", "{uri}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self';"), "{uri}: {policy}");
        assert!(!policy.contains("unsafe"), "{uri}: {policy}");
        assert_eq!(headers["cache-control"], "no-store", "{uri}");
        assert!(
            !headers.contains_key("access-control-allow-origin"),
            "{uri}"
        );
    }
    let asked = Request::options("/api/jobs")
        .header("origin", "http://other.example")
        .header("access-control-request-method", "POST")
        .body(Body::empty())
        .unwrap();
    let answer = send(&router, asked).await;
    assert_eq!(answer.status, 405);
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn settings_that_cannot_work_are_all_named() {
    let refused = builder()
        .limits(Limits::default().page(0))
        .hosts(["http://x"])
        .versions([""])
        .build();
    let problems = refused.unwrap_err().problems().to_vec();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[0].contains("limits.page"), "{problems:?}");
    assert!(problems[1].contains("http://x"), "{problems:?}");
    assert!(problems[2].contains("namespace"), "{problems:?}");
}
