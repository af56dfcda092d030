//! Wakeups between the clients and nodes of one store, and for jobs that other processes enqueue
//! into the same file.
//!
//! SQLite does not announce commits. While there is a subscriber, a thread reads `data_version`,
//! which changes when another connection commits. The thread then checks whether another process
//! has inserted jobs. Other processes may also make stored jobs claimable by a requeue, a signal or
//! the end of a parent. Only polling finds such jobs.

use std::mem;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// Interval at which the thread checks for commits of other processes.
const INTERVAL: Duration = Duration::from_millis(5);
/// Pause of the thread after a failed check.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The coordinator of the store. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct SqliteCoordinator {
    in_process: InProcessCoordinator,
    watcher: Arc<Mutex<Watcher>>,
    config: Config,
    /// Number of jobs that this store has inserted since it was opened.
    own: Arc<AtomicI64>,
}

#[derive(Debug)]
enum Watcher {
    /// The thread does not run. The next subscriber starts it.
    Wanted,
    /// The thread runs. It ends once the sender is dropped. The receiver shows when it has ended.
    Running(Sender<()>, watch::Receiver<()>),
    /// The thread does not run and is not started again. The database has no file, the store is
    /// closed, or the thread could not be started.
    Off,
}

impl SqliteCoordinator {
    pub(crate) fn new(config: Config, own: Arc<AtomicI64>) -> Self {
        let watcher = match config.location {
            Location::File(_) => Watcher::Wanted,
            Location::Memory => Watcher::Off,
        };
        Self {
            in_process: InProcessCoordinator::new(),
            watcher: Arc::new(Mutex::new(watcher)),
            config,
            own,
        }
    }

    /// Tells the thread to end.
    pub(crate) fn stop(&self) {
        *lock(&self.watcher) = Watcher::Off;
    }

    /// Tells the thread to end, and waits until it has ended.
    pub(crate) async fn close(&self) {
        let watcher = mem::replace(&mut *lock(&self.watcher), Watcher::Off);
        if let Watcher::Running(running, ended) = watcher {
            drop(running);
            end_of(&ended).await;
        }
    }

    fn start(&self) {
        let mut watcher = lock(&self.watcher);
        if !matches!(*watcher, Watcher::Wanted) {
            return;
        }
        let (running, stopped) = mpsc::channel();
        let (alive, ended) = watch::channel(());
        let this = self.clone();
        let started = spawn("ratchet-sqlite-watcher", move || {
            this.watch(&stopped);
            drop(alive);
        });
        *watcher = match started {
            Ok(()) => Watcher::Running(running, ended),
            Err(failure) => {
                tracing::warn!(%failure, "cannot watch the database file, so nodes find the jobs \
                    of other processes only by polling");
                Watcher::Off
            }
        };
    }

    /// Checks for commits of other processes until the sender of `stopped` is dropped, or until no
    /// subscribers are left.
    fn watch(&self, stopped: &Receiver<()>) {
        let mut seen = None;
        let mut pause = INTERVAL;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = INTERVAL;
            if !self.in_process.has_subscribers() {
                let mut watcher = lock(&self.watcher);
                // A subscriber that was added after the first check has found the thread running,
                // so the thread must continue.
                if !self.in_process.has_subscribers() {
                    if matches!(*watcher, Watcher::Running(..)) {
                        *watcher = Watcher::Wanted;
                    }
                    return;
                }
            }
            let looked = match &mut seen {
                None => Seen::open(self).map(|opened| {
                    seen = Some(opened);
                    // Jobs that were stored before the file was opened may have been missed.
                    true
                }),
                Some(seen) => seen.look(&self.own),
            };
            match looked {
                Ok(true) => {
                    self.in_process.notify(Wakeup::any()).now_or_never();
                }
                Ok(false) => {}
                Err(failure) => {
                    tracing::debug!(%failure, "could not look for new jobs of other processes");
                    (seen, pause) = (None, AFTER_FAILURE);
                }
            }
        }
    }
}

fn lock(watcher: &Mutex<Watcher>) -> MutexGuard<'_, Watcher> {
    watcher.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl ClusterCoordinator for SqliteCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        self.in_process.notify(wakeup).await;
    }

    fn subscribe(&self) -> WakeupStream {
        let wakeups = self.in_process.subscribe();
        self.start();
        wakeups
    }

    fn reaches_all_nodes(&self) -> bool {
        matches!(self.config.location, Location::Memory)
    }
}

/// The state of the file at the last check.
struct Seen {
    conn: rusqlite::Connection,
    data_version: i64,
    /// Number of the newest job minus the number of jobs that this store has inserted. It grows if
    /// other processes insert jobs. It falls if the newest jobs are purged. It is also lower while
    /// jobs of this store are counted and not yet committed. So only its change since the last
    /// check has a meaning.
    of_others: i64,
}

impl Seen {
    fn open(coordinator: &SqliteCoordinator) -> Result<Self> {
        let mut seen = Self {
            conn: open_reader(&coordinator.config)?,
            data_version: 0,
            of_others: 0,
        };
        // The order matters: if a job is stored between the two reads, the next check sees another
        // version and reads again.
        seen.data_version = seen.number(&SQL.data_version)?;
        seen.of_others = seen.number(&SQL.last_data)? - coordinator.own.load(Ordering::SeqCst);
        Ok(seen)
    }

    fn number(&self, sql: &Statement) -> Result<i64> {
        let conn = Connection::new(&self.conn);
        Ok(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// Returns whether other processes have inserted jobs since the last check.
    fn look(&mut self, own: &AtomicI64) -> Result<bool> {
        let data_version = self.number(&SQL.data_version)?;
        if data_version == self.data_version {
            return Ok(false);
        }
        self.data_version = data_version;
        let of_others = self.number(&SQL.last_data)? - own.load(Ordering::SeqCst);
        let before = mem::replace(&mut self.of_others, of_others);
        Ok(of_others > before)
    }
}
