//! Load on the machine: threads that only compute, and a file that is repeatedly flushed.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Result;

/// The number of computing threads per processor.
const BURNERS: usize = 3;
/// How many bytes are written between two flushes.
const FLUSHED: usize = 4 << 20;

/// A running load, which ends when it is dropped.
pub(crate) struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the load. Its file is in this directory.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism()?.get();
        let mut threads: Vec<JoinHandle<()>> = (0..processors * BURNERS)
            .map(|_| {
                let ends = Arc::clone(&ends);
                thread::spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        std::hint::black_box((0..10_000_u64).sum::<u64>());
                    }
                })
            })
            .collect();
        let mut file = tempfile(directory)?;
        let ended = Arc::clone(&ends);
        threads.push(thread::spawn(move || {
            let block = vec![7; FLUSHED];
            while !ended.load(Ordering::Relaxed) {
                let written = file.rewind().and_then(|()| file.write_all(&block));
                if written.and_then(|()| file.sync_all()).is_err() {
                    eprintln!("note: could not write the file that creates the load");
                    return;
                }
            }
        }));
        Ok(Self { ends, threads })
    }
}

fn tempfile(directory: &Path) -> Result<File> {
    std::fs::create_dir_all(directory)?;
    let path = directory.join("load");
    let file = File::create(&path)?;
    // The file disappears when its last handle is closed.
    std::fs::remove_file(path)?;
    Ok(file)
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
