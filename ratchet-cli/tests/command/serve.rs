//! `ratchet serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::kit::Place;

/// The server, ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(place: &Place, args: &[&str]) -> Self {
        let url = format!("sqlite://{}", place.path("jobs.db").display());
        let mut child = place
            .command()
            .args(["--url", &url, "--json", "serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = said["address"].as_str().unwrap().to_owned();
        Self { child, address }
    }

    /// The head and the body of the answer.
    fn ask(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let end = "Host: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        write!(stream, "{head}\r\n{end}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn it_reads_and_says_the_same_as_the_command() {
    let place = Place::migrated();
    let id = place.enqueue(&["mail", "\"secret\""]);
    let server = Server::start(&place, &[]);
    assert!(
        server
            .ask("GET /health HTTP/1.1")
            .starts_with("HTTP/1.1 200")
    );
    let answer = server.ask(&format!("GET /api/jobs/{id} HTTP/1.1"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!answer.contains("secret"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let served: serde_json::Value = serde_json::from_str(body).unwrap();
    let shown = place.json(&["jobs", "show", &id]);
    for (field, value) in served.as_object().unwrap() {
        assert_eq!(&shown[field], value, "{field}");
    }
    let refused = server.ask(&format!("POST /api/jobs/{id}/cancel HTTP/1.1"));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
}

#[test]
fn it_has_metrics_for_prometheus() {
    let place = Place::migrated();
    let server = Server::start(&place, &[]);
    server.ask("GET /api/jobs HTTP/1.1");
    let answer = server.ask("GET /metrics HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("ratchet_store_calls_total{"), "{answer}");
    assert!(answer.contains("_seconds_bucket{"), "{answer}");
}

#[test]
fn writes_need_the_token() {
    let place = Place::migrated();
    let id = place.enqueue(&["mail", "1"]);
    place
        .run(&["serve", "--listen", "127.0.0.1:0", "--allow-writes"])
        .exits(7)
        .complains("http.token_file");
    std::fs::write(place.path("token"), "open sesame\n").unwrap();
    let server = Server::start(&place, &["--allow-writes", "--token-file", "token"]);
    let cancel = format!("POST /api/jobs/{id}/cancel HTTP/1.1");
    let with = |token: &str| server.ask(&format!("{cancel}\r\nAuthorization: Bearer {token}"));
    assert!(server.ask(&cancel).starts_with("HTTP/1.1 401"));
    assert!(with("close sesame").starts_with("HTTP/1.1 403"));
    // Browsers are asked for it, and send it as a password.
    let basic = |pair: &str| server.ask(&format!("{cancel}\r\nAuthorization: Basic {pair}"));
    let wrong = basic("bWU6Y2xvc2Ugc2VzYW1l");
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    let challenge = "www-authenticate: basic realm=\"ratchet\"";
    assert!(wrong.to_lowercase().contains(challenge), "{wrong}");
    let right = basic("bWU6b3BlbiBzZXNhbWU=");
    assert!(right.starts_with("HTTP/1.1 200"), "{right}");
    let id = place.enqueue(&["mail", "2"]);
    let cancel = format!("POST /api/jobs/{id}/cancel HTTP/1.1");
    let with = |token: &str| server.ask(&format!("{cancel}\r\nAuthorization: Bearer {token}"));
    let done = with("open sesame");
    assert!(done.starts_with("HTTP/1.1 200"), "{done}");
    assert_eq!(place.json(&["jobs", "show", &id])["state"], "cancelled");
}

#[cfg(unix)]
#[test]
fn it_ends_when_asked_to() {
    let place = Place::migrated();
    let mut server = Server::start(&place, &[]);
    let pid = server.child.id().to_string();
    std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
