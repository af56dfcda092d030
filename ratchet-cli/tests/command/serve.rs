//! Tests of `ratchet serve`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::kit::WorkDir;

/// A running `ratchet serve`. Dropping this value stops the process.
struct Server {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Server {
    fn start(dir: &WorkDir, args: &[&str]) -> Self {
        let listen = ["--listen", "127.0.0.1:0"];
        Self::started(dir, dir.command(), &[&listen, args].concat())
    }

    /// Starts `ratchet serve` on the database of the directory. `command` is the program, or a
    /// wrapper that runs it.
    fn started(dir: &WorkDir, mut command: Command, args: &[&str]) -> Self {
        let url = format!("sqlite://{}", dir.path("jobs.db").display());
        let log = dir.path("log");
        let mut child = command
            .env("RATCHET_STORE__URL", &url)
            .args(["--json", "serve"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{line}{}", std::fs::read_to_string(&log).unwrap()));
        let address = said["address"].as_str().unwrap();
        let address = address.replace("0.0.0.0", "127.0.0.1");
        Self {
            child,
            address,
            log,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the status of the response to a GET with this token.
    fn status(&self, path: &str, token: Option<&str>) -> String {
        let token = token.map_or(String::new(), |token| {
            format!("\r\nAuthorization: Bearer {token}")
        });
        let answer = self.ask(&format!("GET {path} HTTP/1.1{token}"));
        answer[9..12].to_owned()
    }

    /// Sends a request with this request line and these headers. Returns the head and the body of
    /// the response.
    fn ask(&self, head: &str) -> String {
        self.ask_of("localhost", head)
    }

    fn ask_of(&self, host: &str, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let end = format!("Host: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
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
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&["mail", "\"secret\""]);
    let server = Server::start(&dir, &[]);
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
    let shown = dir.json(&["jobs", "show", &id]);
    for (field, value) in served.as_object().unwrap() {
        assert_eq!(&shown[field], value, "{field}");
    }
    let refused = server.ask(&format!("POST /api/jobs/{id}/cancel HTTP/1.1"));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
}

#[test]
fn it_has_metrics_for_prometheus() {
    let dir = WorkDir::migrated();
    let server = Server::start(&dir, &[]);
    server.ask("GET /api/jobs HTTP/1.1");
    let answer = server.ask("GET /metrics HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("ratchet_store_calls_total{"), "{answer}");
    assert!(answer.contains("_seconds_bucket{"), "{answer}");
}

#[test]
fn writes_need_the_token() {
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&["mail", "1"]);
    dir.run(&["serve", "--listen", "127.0.0.1:0", "--allow-writes"])
        .exits(7)
        .complains("http.token_file");
    std::fs::write(dir.path("token"), "open sesame\n").unwrap();
    let server = Server::start(&dir, &["--allow-writes", "--token-file", "token"]);
    let cancel = format!("POST /api/jobs/{id}/cancel HTTP/1.1");
    let with = |token: &str| server.ask(&format!("{cancel}\r\nAuthorization: Bearer {token}"));
    assert!(server.ask(&cancel).starts_with("HTTP/1.1 401"));
    assert!(with("close sesame").starts_with("HTTP/1.1 403"));
    // A failed login returns a Basic challenge. Browsers then send the token as the password.
    let basic = |pair: &str| server.ask(&format!("{cancel}\r\nAuthorization: Basic {pair}"));
    let wrong = basic("bWU6Y2xvc2Ugc2VzYW1l");
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    let challenge = "www-authenticate: basic realm=\"ratchet\"";
    assert!(wrong.to_lowercase().contains(challenge), "{wrong}");
    let right = basic("bWU6b3BlbiBzZXNhbWU=");
    assert!(right.starts_with("HTTP/1.1 200"), "{right}");
    let id = dir.enqueue(&["mail", "2"]);
    let cancel = format!("POST /api/jobs/{id}/cancel HTTP/1.1");
    let with = |token: &str| server.ask(&format!("{cancel}\r\nAuthorization: Bearer {token}"));
    let done = with("open sesame");
    assert!(done.starts_with("HTTP/1.1 200"), "{done}");
    assert_eq!(dir.json(&["jobs", "show", &id])["state"], "cancelled");
}

#[test]
fn another_address_than_loopback_needs_a_token_or_insecure() {
    let dir = WorkDir::migrated();
    dir.enqueue(&["mail", "1"]);
    let anywhere = ["--listen", "0.0.0.0:0"];
    let run = |more: &[&str]| dir.run(&[&["serve"], &anywhere[..], more].concat());
    run(&[]).exits(7).complains("--insecure");
    std::fs::write(dir.path("token"), "open sesame\n").unwrap();
    let with =
        |more: &[&str]| Server::started(&dir, dir.command(), &[&anywhere[..], more].concat());
    let exposed = with(&["--insecure"]);
    assert_eq!(exposed.status("/api/jobs", None), "200");
    assert!(
        exposed.log().contains("can read every job"),
        "{}",
        exposed.log()
    );
    let protected = with(&["--token-file", "token"]);
    for path in [
        "/api/jobs",
        "/api/overview",
        "/api/events",
        "/metrics",
        "/cluster/nodes",
    ] {
        assert_eq!(protected.status(path, None), "401", "{path}");
    }
    for path in ["/api/jobs", "/metrics"] {
        assert_eq!(protected.status(path, Some("open sesame")), "200", "{path}");
        assert_eq!(
            protected.status(path, Some("close sesame")),
            "403",
            "{path}"
        );
    }
    assert_eq!(protected.status("/health", None), "200");
    let log = protected.log();
    assert!(
        log.contains("unencrypted") && !log.contains("can read every job"),
        "{log}"
    );
    // With `protect_reads = false`, reads need no token, and a warning says so.
    std::fs::write(dir.path("ratchet.toml"), "[http]\nprotect_reads = false\n").unwrap();
    let open = with(&["--token-file", "token"]);
    assert_eq!(open.status("/api/jobs", None), "200");
    assert!(open.log().contains("can read every job"), "{}", open.log());
}

#[test]
fn reads_on_loopback_are_protected_if_asked_to() {
    let dir = WorkDir::migrated();
    dir.run(&["serve", "--listen", "127.0.0.1:0", "--protect-reads"])
        .exits(7)
        .complains("needs a token");
    std::fs::write(dir.path("token"), "open sesame\n").unwrap();
    let token = ["--token-file", "token"];
    let open = Server::start(&dir, &token);
    assert_eq!(open.status("/api/jobs", None), "200");
    assert_eq!(open.log(), "");
    let protected = Server::start(&dir, &["--protect-reads", "--token-file", "token"]);
    assert_eq!(protected.status("/api/jobs", None), "401");
    assert_eq!(protected.status("/api/jobs", Some("open sesame")), "200");
    // Without `--allow-writes`, the server refuses a write even with the right token.
    let write = "POST /api/queues/q/pause HTTP/1.1\r\nAuthorization: Bearer open sesame";
    let refused = protected.ask(write);
    assert!(refused.contains("\"read_only\""), "{refused}");
    assert!(
        protected
            .ask("GET /cluster/status HTTP/1.1\r\nAuthorization: Bearer open sesame")
            .contains("\"writes\":false")
    );
}

#[test]
fn payloads_always_need_the_token() {
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&["mail", "\"a secret\""]);
    std::fs::write(dir.path("ratchet.toml"), "[http]\npayloads = \"shown\"\n").unwrap();
    let refused = dir.run(&["serve", "--listen", "127.0.0.1:0"]);
    refused
        .exits(7)
        .complains("http.payloads")
        .complains("token");
    std::fs::write(dir.path("token"), "open sesame\n").unwrap();
    let server = Server::start(&dir, &["--token-file", "token"]);
    let get = format!("GET /api/jobs/{id} HTTP/1.1");
    let answer = server.ask(&get);
    assert!(
        answer.starts_with("HTTP/1.1 200") && !answer.contains("a secret"),
        "{answer}"
    );
    let wrong = server.ask(&format!("{get}\r\nAuthorization: Bearer close sesame"));
    assert!(!wrong.contains("a secret"), "{wrong}");
    let right = server.ask(&format!("{get}\r\nAuthorization: Bearer open sesame"));
    assert!(right.contains("a secret"), "{right}");
}

#[test]
fn the_name_of_a_proxy_is_answered_once_it_is_configured() {
    let dir = WorkDir::migrated();
    let get = "GET /api/jobs HTTP/1.1";
    let refused = Server::start(&dir, &[]).ask_of("ops.example.com", get);
    assert!(refused.starts_with("HTTP/1.1 421"), "{refused}");
    assert!(refused.contains("http.hosts"), "{refused}");
    let settings = "[http]\nhosts = [\"ops.example.com\"]\nproxies = [\"127.0.0.1\"]\n";
    std::fs::write(dir.path("ratchet.toml"), settings).unwrap();
    let server = Server::start(&dir, &[]);
    let answer = server.ask_of("ops.example.com", get);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        server
            .ask_of("evil.example", get)
            .starts_with("HTTP/1.1 421")
    );
    assert!(
        server.log().contains("ops.example.com can read every job"),
        "{}",
        server.log()
    );
}

#[test]
fn writes_are_logged_and_logs_have_no_colours_in_a_file() {
    let dir = WorkDir::migrated();
    std::fs::write(dir.path("token"), "open sesame\n").unwrap();
    let write = |server: &Server, token: &str| {
        let head = "POST /api/queues/q/pause HTTP/1.1\r\nAuthorization: Bearer";
        server.ask(&format!("{head} {token}"));
    };
    let writes = ["--allow-writes", "--token-file", "token"];
    let quiet = Server::start(&dir, &writes);
    write(&quiet, "open sesame");
    assert_eq!(quiet.log(), "");
    write(&quiet, "close sesame");
    assert!(quiet.log().contains("wrong token"), "{}", quiet.log());
    for (color, has) in [("auto", false), ("never", false), ("always", true)] {
        let more = [&writes[..], &["-v", "--color", color]].concat();
        let server = Server::start(&dir, &more);
        write(&server, "open sesame");
        let log = server.log();
        let written = log.lines().find(|line| line.contains("PauseQueue"));
        let written = written.unwrap_or_else(|| {
            panic!(
                "expected a log line about the write, \
                 found: {log}"
            )
        });
        assert!(
            written.contains("127.0.0.1") && written.contains("200"),
            "{log}"
        );
        assert_eq!(log.contains('\u{1b}'), has, "{color}: {log}");
    }
}

/// When the process has no more file descriptors, new connections replace idle ones.
#[cfg(unix)]
#[test]
fn it_answers_when_there_are_no_more_file_descriptors() {
    let dir = WorkDir::migrated();
    let mut shell = Command::new("sh");
    shell
        .current_dir(dir.path(""))
        .args(["-c", "ulimit -n 96 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_ratchet"));
    let server = Server::started(&dir, shell, &["--listen", "127.0.0.1:0"]);
    let began = ratchet::store_api::time::monotonic();
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        drop(stream.write_all(b"GET /health HTTP/1.1\r\nHost: loc"));
        held.push(stream);
    }
    for path in ["/health", "/ready"] {
        assert_eq!(server.status(path, None), "200", "{path}");
    }
    assert!(
        server.log().contains("could not accept a connection"),
        "{}",
        server.log()
    );
    // The server logs the failure to accept at most once a minute.
    let most = 1 + usize::try_from(began.elapsed().as_secs() / 60).unwrap();
    let log = server.log();
    assert!(log.lines().count() <= most, "{log}");
}

#[cfg(unix)]
#[test]
fn it_ends_when_asked_to() {
    let dir = WorkDir::migrated();
    let mut server = Server::start(&dir, &[]);
    let pid = server.child.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
