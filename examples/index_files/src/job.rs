use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ratchet::{Job, JobContext, JobError, JobResult, NewJob, RetryPolicy};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A job that records the SHA-256, the size and the number of lines of one file.
#[derive(Serialize, Deserialize)]
pub(crate) struct IndexFile {
    path: AnyPath,
}

/// A path that is stored as text if it is valid UTF-8, and as an `OsString` otherwise.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum AnyPath {
    Text(String),
    Other(OsString),
}

impl AnyPath {
    pub(crate) fn to_path(&self) -> PathBuf {
        match self {
            Self::Text(text) => text.into(),
            Self::Other(other) => other.into(),
        }
    }
}

impl From<PathBuf> for AnyPath {
    fn from(path: PathBuf) -> Self {
        path.into_os_string()
            .into_string()
            .map_or_else(Self::Other, Self::Text)
    }
}

/// The recorded result for one file.
#[derive(Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) path: AnyPath,
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) micros: u64,
}

impl IndexFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path: path.into() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.to_path()
    }
}

impl Job for IndexFile {
    const KIND: &'static str = "index_file";
    type Output = Entry;

    async fn run(self, _: JobContext) -> JobResult<Entry> {
        let path = self.path.to_path();
        match tokio::task::spawn_blocking(move || read(&path)).await? {
            Ok((sha256, bytes, lines, micros)) => Ok(Entry {
                path: self.path,
                sha256,
                bytes,
                lines,
                micros,
            }),
            Err(error) => Err(match error.kind() {
                // A file that no longer exists needs no entry, and no retry.
                ErrorKind::NotFound => JobError::cancel(),
                ErrorKind::PermissionDenied => JobError::discard(error),
                _ => error.into(),
            }),
        }
    }

    /// Creates the job for one path. Its idempotency key allows only one job per path.
    fn into_job(self) -> NewJob {
        let key = hex(&Sha256::digest(self.path().as_os_str().as_encoded_bytes()));
        NewJob::new(Self::KIND, &self)
            .idempotency_key(&key)
            .retry(RetryPolicy::fixed(3, Duration::from_millis(100)))
    }
}

/// Reads a file. Returns its SHA-256 in hexadecimal, its number of bytes, its number of lines, and
/// the time that reading took, in microseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "this is an application, which may read the clock"
)]
fn read(path: &Path) -> std::io::Result<(String, u64, u64, u64)> {
    let begun = Instant::now();
    let mut file = BufReader::with_capacity(256 * 1024, File::open(path)?);
    let (mut digest, mut bytes, mut lines) = (Sha256::new(), 0, 0);
    let mut last = b'\n';
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        let chunk = &buffer[..count];
        let Some(end) = chunk.last() else {
            break;
        };
        last = *end;
        digest.update(chunk);
        bytes += count as u64;
        lines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    lines += u64::from(last != b'\n');
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok((hex(&digest.finalize()), bytes, lines, micros))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
