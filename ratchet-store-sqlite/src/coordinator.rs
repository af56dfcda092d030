//! Wakeups: between the clients and nodes of one store, and from other processes that enqueue into the
//! same file.
//!
//! SQLite tells nobody of a commit. But a connection can ask whether another one has committed since it
//! last asked (`data_version`), which reads the header of the log in shared memory: a thread does that
//! while somebody listens, and looks for new jobs when the answer changes. What other processes do to
//! jobs that are stored already (a requeue, a signal, the end of a parent) is found by the next poll.

use std::mem;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator, Wakeup, WakeupStream};
use tokio::sync::watch;

use crate::config::{Config, Location};
use crate::connection::open_reader;
use crate::error::Result;
use crate::statements::{Connection, SQL, Statement};
use crate::writer::{end_of, spawn};

/// How often the thread asks for commits.
const INTERVAL: Duration = Duration::from_millis(5);
/// How long it waits after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct SqliteCoordinator {
    nearby: InProcessCoordinator,
    watch: Mutex<Watch>,
}

#[derive(Debug)]
enum Watch {
    /// For the first subscriber.
    Wanted(Box<Config>),
    /// Until the first is dropped; then the other end of the second is, too.
    Running(Sender<()>, watch::Receiver<()>),
    /// There is no file, the store is closed, or the thread could not start.
    Off,
}

impl SqliteCoordinator {
    pub(crate) fn new(config: Config) -> Self {
        let watch = match config.location {
            Location::File(_) => Watch::Wanted(Box::new(config)),
            Location::Memory => Watch::Off,
        };
        Self {
            nearby: InProcessCoordinator::new(),
            watch: Mutex::new(watch),
        }
    }

    /// Ends the thread, and waits for that.
    pub(crate) async fn close(&self) {
        let watch = mem::replace(&mut *self.watch(), Watch::Off);
        if let Watch::Running(running, ended) = watch {
            drop(running);
            end_of(&ended).await;
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) {
        let mut watch = self.watch();
        let Watch::Wanted(config) = &*watch else {
            return;
        };
        let (running, stopped) = mpsc::channel();
        let (alive, ended) = watch::channel(());
        let (config, nearby) = (config.clone(), self.nearby.clone());
        let started = spawn("ratchet-sqlite-watcher", move || {
            let mut seen = None;
            let mut pause = INTERVAL;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = INTERVAL;
                if !nearby.has_subscribers() {
                    continue;
                }
                let looked = match &mut seen {
                    Some(seen) => look(seen, &nearby),
                    None => Seen::open(&config).map(|opened| {
                        seen = Some(opened);
                        // What came before may have been missed.
                        nearby.notify(Wakeup::any()).now_or_never();
                    }),
                };
                if let Err(failure) = looked {
                    tracing::debug!(%failure, "cannot look for new jobs of other processes");
                    (seen, pause) = (None, AFTER_FAILURE);
                }
            }
            drop(seen);
            drop(alive);
        });
        *watch = match started {
            Ok(()) => Watch::Running(running, ended),
            Err(failure) => {
                tracing::warn!(%failure, "jobs of other processes are found by polls only");
                Watch::Off
            }
        };
    }
}

#[async_trait]
impl ClusterCoordinator for SqliteCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        self.nearby.notify(wakeup).await;
    }

    fn subscribe(&self) -> WakeupStream {
        let wakeups = self.nearby.subscribe();
        self.start();
        wakeups
    }
}

/// What the thread knows of the file.
struct Seen {
    conn: rusqlite::Connection,
    data_version: i64,
    newest_job: i64,
}

impl Seen {
    fn open(config: &Config) -> Result<Self> {
        let conn = open_reader(config)?;
        let mut seen = Self {
            conn,
            data_version: 0,
            newest_job: 0,
        };
        // In this order: a job that comes between the two is looked for again.
        seen.data_version = seen.number(&SQL.data_version)?;
        seen.newest_job = seen.number(&SQL.last_data)?;
        Ok(seen)
    }

    fn number(&self, sql: &Statement) -> Result<i64> {
        let conn = Connection::new(&self.conn);
        Ok(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }
}

/// Wakes everybody up if jobs have come since the last look.
fn look(seen: &mut Seen, nearby: &InProcessCoordinator) -> Result<()> {
    let data_version = seen.number(&SQL.data_version)?;
    if data_version == seen.data_version {
        return Ok(());
    }
    seen.data_version = data_version;
    let newest_job = seen.number(&SQL.last_data)?;
    // A number comes again once the job that had it is purged.
    if newest_job != seen.newest_job {
        seen.newest_job = newest_job;
        nearby.notify(Wakeup::any()).now_or_never();
    }
    Ok(())
}
