//! A process of the shop, and requests to it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A running process, which is killed when it is dropped.
pub(crate) struct Program {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Program {
    /// Starts the program with this label, and waits until it listens. Its log goes to a file.
    pub(crate) async fn start(folder: &Path, url: &str, label: &str, gateway_ms: u64) -> Self {
        let log = folder.join(format!("{label}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_shop-example"))
            .env("SHOP_DATABASE_URL", url)
            .env("SHOP_GATEWAY_MS", gateway_ms.to_string())
            .env("RATCHET_NODE__LABEL", label)
            // No node may count as dead, even on a slow machine. A restarted node reclaims its own
            // jobs at once, because it has the same label.
            .env("RATCHET_CLUSTER__DEAD_AFTER", "10m")
            .env_remove("SHOP_LISTEN")
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .await
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .expect("the program listens");
        Self {
            address: address.parse().unwrap(),
            child,
        }
    }

    /// Sends SIGTERM, and waits until the process has exited successfully.
    pub(crate) async fn terminate(mut self) {
        let pid = self.child.id().unwrap().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.await.unwrap().success());
        let status = self.child.wait().await.unwrap();
        assert!(status.success(), "{status}");
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Sends one request and returns the status and the body of the answer.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((
        status.ok_or(std::io::ErrorKind::InvalidData)?,
        body.to_owned(),
    ))
}
