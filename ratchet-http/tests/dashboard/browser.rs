//! A headless browser: a process with a fresh profile, controlled over its WebSocket.

use std::collections::HashMap;
use std::env;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

const VARIABLE: &str = "RATCHET_TEST_CHROMIUM";
const NAMES: [&str; 6] = [
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    // No host name resolves, so the browser sends no requests to the internet.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];
const PATIENCE: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// Returns the path of the browser, or why there is none.
pub(crate) fn find() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!(
                "the environment variable {VARIABLE} does not name a file: {}",
                path.display()
            ))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path).flat_map(|dir| NAMES.map(|name| dir.join(name)));
    places.find(|place| place.is_file()).ok_or_else(|| {
        format!(
            "no Chromium found: {VARIABLE} is not set, and the PATH has no \
             Chromium"
        )
    })
}

/// A running browser with one page. Dropping this value kills the browser.
pub(crate) struct Browser {
    _process: Processes,
    _profile: TempDir,
    sink: tokio::sync::Mutex<SplitSink<Socket, Message>>,
    waiting: Waiting,
    events: Arc<Mutex<Vec<Value>>>,
    last: AtomicU64,
    session: String,
}

/// The process of the browser and all processes that it started. On some systems the program is a
/// script, and killing only the script would leave the browser running.
struct Processes(Child);

impl Drop for Processes {
    fn drop(&mut self) {
        if let Some(group) = self.0.id() {
            let mut kill = std::process::Command::new("kill");
            drop(kill.args(["-KILL", "--", &format!("-{group}")]).status());
        }
    }
}

impl Browser {
    /// Starts a browser.
    pub(crate) async fn start() -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let program = find().map_err(|reason| anyhow!(reason))?;
        let process = Command::new(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()?;
        let mut process = Processes(process);
        let said = process.0.stderr.take().context("no standard error")?;
        let url = tokio::time::timeout(PATIENCE, address(said))
            .await
            .context("the browser did not start in time")??;
        let (socket, _) = tokio_tungstenite::connect_async(url).await?;
        let (sink, mut stream) = socket.split();
        let (waiting, events) = (Waiting::default(), Arc::new(Mutex::new(Vec::new())));
        let (answers, heard) = (Arc::clone(&waiting), Arc::clone(&events));
        tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                let Ok(value) = serde_json::from_slice::<Value>(&message.into_data()) else {
                    continue;
                };
                match value["id"].as_u64() {
                    Some(id) => {
                        let answer = answers.lock().unwrap().remove(&id);
                        answer.map(|answer| answer.send(value));
                    }
                    None => heard.lock().unwrap().push(value),
                }
            }
            answers.lock().unwrap().clear();
        });
        let mut browser = Self {
            _process: process,
            _profile: profile,
            sink: tokio::sync::Mutex::new(sink),
            waiting,
            events,
            last: AtomicU64::new(0),
            session: String::new(),
        };
        let target = browser
            .call("Target.createTarget", json!({ "url": "about:blank" }))
            .await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach).await?;
        browser.session = session["sessionId"]
            .as_str()
            .context("no session")?
            .to_owned();
        Ok(browser)
    }

    /// Calls a method of the protocol.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        let mut request = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        let text = request.to_string();
        self.sink.lock().await.send(Message::text(text)).await?;
        let answer = tokio::time::timeout(PATIENCE, receiver)
            .await
            .with_context(|| format!("the browser did not answer {method} in time"))?
            .context("the browser is gone")?;
        if answer["error"].is_object() {
            bail!("{method}: {}", answer["error"]);
        }
        Ok(answer["result"].clone())
    }

    /// Returns the events with this name since the start or the last clear.
    pub(crate) fn told(&self, name: &str) -> Vec<Value> {
        let events = self.events.lock().unwrap();
        let chosen = events.iter().filter(|event| event["method"] == name);
        chosen.map(|event| event["params"].clone()).collect()
    }

    /// Clears the recorded events.
    pub(crate) fn forget(&self) {
        self.events.lock().unwrap().clear();
    }
}

/// Reads the browser's standard error until it contains the address of the debugger, and returns
/// the address. A background task continues to read, so that the pipe never fills.
async fn address(said: tokio::process::ChildStderr) -> Result<String> {
    let mut lines = BufReader::new(said).lines();
    let mut all = String::new();
    while let Some(line) = lines.next_line().await? {
        if let Some(url) = line.strip_prefix("DevTools listening on ") {
            let url = url.to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(url);
        }
        all.push_str(&line);
        all.push('\n');
    }
    bail!("the browser ended right after its start: {all}")
}
