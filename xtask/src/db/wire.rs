//! The part of MongoDB's protocol that creates a replica set, since no shell comes with the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

const OP_MSG: i32 = 2_013;

/// A document in the server's format. Only the types that are needed here can be in it.
#[derive(Default)]
pub(super) struct Document(Vec<u8>);

impl Document {
    pub(super) fn int(mut self, name: &str, value: i32) -> Self {
        self.element(0x10, name);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn text(mut self, name: &str, value: &str) -> Self {
        self.element(0x02, name);
        self.0.extend(size(value.len() + 1));
        self.0.extend(value.bytes().chain([0]));
        self
    }

    pub(super) fn document(self, name: &str, value: Self) -> Self {
        self.nested(0x03, name, value)
    }

    pub(super) fn array(self, name: &str, items: Vec<Self>) -> Self {
        let numbered = items.into_iter().enumerate();
        let array = numbered.fold(Self::default(), |array, (number, item)| {
            array.document(&number.to_string(), item)
        });
        self.nested(0x04, name, array)
    }

    fn nested(mut self, kind: u8, name: &str, value: Self) -> Self {
        self.element(kind, name);
        self.0.extend(value.bytes());
        self
    }

    fn element(&mut self, kind: u8, name: &str) {
        self.0.push(kind);
        self.0.extend(name.bytes().chain([0]));
    }

    fn bytes(self) -> Vec<u8> {
        let mut bytes = size(self.0.len() + 5).to_vec();
        bytes.extend(self.0);
        bytes.push(0);
        bytes
    }
}

fn size(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_le_bytes()
}

/// Runs a command on the database `admin` and returns the undecoded answer.
pub(super) fn run(port: u16, command: Document) -> Result<Vec<u8>> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).context("no server listens")?;
    server.set_read_timeout(Some(Duration::from_secs(20)))?;
    let body = command.text("$db", "admin").bytes();
    let mut message = size(16 + 4 + 1 + body.len()).to_vec();
    for word in [1, 0, OP_MSG, 0] {
        message.extend(i32::to_le_bytes(word));
    }
    message.push(0);
    message.extend(body);
    server.write_all(&message)?;
    let mut head = [0; 4];
    server.read_exact(&mut head)?;
    let rest = usize::try_from(i32::from_le_bytes(head))?;
    ensure!(
        (21..100_000).contains(&rest),
        "the length of the server's answer is invalid"
    );
    let mut answer = vec![0; rest - 4];
    server.read_exact(&mut answer)?;
    Ok(answer)
}

/// Creates a replica set of the servers on these ports, and waits until one of them is the primary.
/// An election then begins after two seconds without a primary, and not after the default ten.
pub(super) fn initiate(ports: &[u16], set: &str) -> Result<()> {
    let member = |(number, port): (i32, &u16)| {
        Document::default()
            .int("_id", number)
            .text("host", &format!("127.0.0.1:{port}"))
    };
    let config = Document::default()
        .text("_id", set)
        .array("members", (0..).zip(ports).map(member).collect())
        .document(
            "settings",
            Document::default().int("electionTimeoutMillis", 2_000),
        );
    let first = ports.first().context("no servers")?;
    run(
        *first,
        Document::default().document("replSetInitiate", config),
    )?;
    for _ in 0..400 {
        for port in ports {
            if is_primary(&run(*port, Document::default().int("hello", 1))?) {
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("the replica set has no primary after 20 s")
}

/// Returns whether the answer of `hello` contains `isWritablePrimary: true`.
fn is_primary(answer: &[u8]) -> bool {
    const FLAG: &[u8] = b"\x08isWritablePrimary\0\x01";
    answer.windows(FLAG.len()).any(|window| window == FLAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_those_of_the_specification() {
        // This is the example from the BSON specification.
        let hello = Document::default().text("hello", "world").bytes();
        assert_eq!(hello, b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0");
        let nested = Document::default().array("a", vec![Document::default().int("b", 1)]);
        let bytes = b"\x1c\0\0\0\x04a\0\x14\0\0\0\x030\0\x0c\0\0\0\x10b\0\x01\0\0\0\0\0\0";
        assert_eq!(nested.bytes(), bytes);
    }

    #[test]
    fn a_primary_says_so() {
        assert!(is_primary(b"..\x08isWritablePrimary\0\x01.."));
        assert!(!is_primary(b"..\x08isWritablePrimary\0\x00.."));
    }
}
