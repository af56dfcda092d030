use std::io::{ErrorKind, Write};

use anyhow::Result;
use ratchet::{Client, Job, JobFilter, JobOrder, JobState, Name, PageRequest};

use crate::job::{Entry, IndexFile};

/// Number of slowest files to print.
const SLOWEST: usize = 5;

/// Prints the recorded results of all jobs. Returns whether every file could be read.
pub(crate) async fn print(client: &Client) -> Result<bool> {
    let (mut files, mut bytes, mut lines, mut failed) = (0_u64, 0, 0, 0_u64);
    let mut slowest: Vec<Entry> = Vec::new();
    let filter = JobFilter::all().kind(Name::new("kind", IndexFile::KIND)?);
    let mut page = PageRequest::first(1_000).order(JobOrder::OldestFirst);
    loop {
        let read = client.list(&filter, &page).await?;
        for job in read.jobs {
            let path = job.spec.payload.decode::<IndexFile>();
            let path = path.map(|file| file.path()).unwrap_or_default();
            let entry: Option<Entry> = job.result.and_then(|result| result.decode().ok());
            match entry {
                Some(entry) => {
                    files += 1;
                    bytes += entry.bytes;
                    lines += entry.lines;
                    slowest.push(entry);
                    slowest.sort_by_key(|entry| std::cmp::Reverse(entry.micros));
                    slowest.truncate(SLOWEST);
                }
                None if job.state == JobState::Cancelled => {
                    eprintln!("index_files: {}: vanished", path.display());
                }
                None => {
                    let error = job.last_error.unwrap_or_default();
                    eprintln!("index_files: {}: {error}", path.display());
                    failed += 1;
                }
            }
        }
        if read.next.is_none() {
            break;
        }
        page = page.after(read.next);
    }
    let mut text = format!(
        "{files} files, {bytes} bytes, {lines} lines; {failed} could not be read.\nThe slowest:\n"
    );
    for entry in slowest {
        let millis = entry.micros / 1_000;
        let (sha, path) = (&entry.sha256[..12], entry.path.to_path());
        let path = path.display();
        text += &format!(
            "  {millis:6} ms  {:10} bytes  {sha}…  {path}\n",
            entry.bytes
        );
    }
    // A reader that closes the pipe early is not an error.
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(failed == 0)
}
