//! Opens and configures connections, waits for locks, and reads the clock.

use std::cell::Cell;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ratchet_core::memory::ManualClock;
use ratchet_core::{StoreErrorKind, time};
use rusqlite::{Connection, OpenFlags};
use tokio::time::Instant;

use crate::config::{Config, Location, Synchronous};
use crate::error::{Failure, Result};
use crate::statements::{self, SQL};

/// The clock from which the store reads the time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The clock of SQLite.
    Database,
    /// A clock that a test controls.
    Manual(ManualClock),
}

impl Clock {
    /// Returns the current time in milliseconds since 1970.
    pub(crate) fn now(&self, conn: &Connection) -> Result<i64> {
        match self {
            Self::Database => Ok(statements::Connection::new(conn)
                .prepare_cached(&SQL.now)?
                .query_row([], |row| row.get(0))?),
            Self::Manual(clock) => Ok(clock.now_millis()),
        }
    }
}

/// Opens the connection for writes, and configures it.
pub(crate) fn open_writer(config: &Config) -> Result<Connection> {
    let conn = open(config)?;
    if conn.is_readonly("main")? {
        return Err(Failure::new(
            StoreErrorKind::ReadOnly,
            "the file or its directory is read-only",
        ));
    }
    use_wal(&conn)?;
    let synchronous = match config.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    // A checkpoint after every 16 MiB of WAL keeps each checkpoint short and bounds the size of the
    // WAL file. During a long backup, no checkpoint can finish and the file grows. The size limit
    // truncates the file afterwards. The page cache of 64 MiB holds the table `ratchet_jobs` and
    // its indexes at a million waiting jobs.
    conn.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous};
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA wal_autocheckpoint = 4000;
         PRAGMA journal_size_limit = 67108864;
         PRAGMA cache_size = -65536;
         PRAGMA temp_store = MEMORY;"
    ))?;
    if let Some(pages) = config.max_pages {
        conn.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(conn)
}

/// Opens a connection for reads. No statement on it can change the database. The connection may
/// write the files of the write-ahead log beside the database, as every reader of such a log must.
pub(crate) fn open_reader(config: &Config) -> Result<Connection> {
    let conn = open(config)?;
    conn.execute_batch(
        "PRAGMA query_only = ON;
         PRAGMA cache_size = -8192;
         PRAGMA temp_store = MEMORY;",
    )?;
    Ok(conn)
}

/// Opens a connection that cannot change the database. Returns `None` if the file does not exist.
pub(crate) fn open_existing(config: &Config) -> Result<Option<Connection>> {
    match &config.location {
        Location::File(path) if path.try_exists().unwrap_or(true) => {}
        _ => return Ok(None),
    }
    wait_until(time::monotonic() + config.busy_timeout);
    // The file is opened for writing, because a reader of a write-ahead log writes the log's files
    // beside the database.
    let conn = connect(config, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.execute_batch("PRAGMA query_only = ON")?;
    Ok(Some(conn))
}

fn open(config: &Config) -> Result<Connection> {
    let create = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    connect(config, create)
}

fn connect(config: &Config, access: OpenFlags) -> Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let path = match &config.location {
        Location::File(path) => path.as_path(),
        Location::Memory => Path::new(":memory:"),
    };
    let conn = Connection::open_with_flags(path, flags).map_err(|error| {
        let mut failure = Failure::from(error);
        if failure.kind == StoreErrorKind::Unavailable {
            // The file was not open before, so the cause is a wrong path, not a failing disk.
            failure.kind = StoreErrorKind::Misconfigured;
        }
        failure
    })?;
    conn.set_prepared_statement_cache_capacity(192);
    conn.busy_handler(Some(wait_for_lock))?;
    Ok(conn)
}

/// Turns on the write-ahead log, so that readers do not wait for a writer. SQLite stores this
/// setting in the file, so it persists.
fn use_wal(conn: &Connection) -> Result<()> {
    // SQLite does not call the busy handler for every lock that this change needs, so this loop
    // retries.
    let mut tries = 0;
    loop {
        let mode: rusqlite::Result<String> =
            conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        match mode.map_err(Failure::from) {
            Ok(mode) if mode == "wal" || mode == "memory" => return Ok(()),
            Ok(mode) => {
                return Err(Failure::new(
                    StoreErrorKind::Misconfigured,
                    format!(
                        "the journal mode of the file is `{mode}`, and SQLite could not change it \
                         to `wal`; put the file on a local disk"
                    ),
                ));
            }
            Err(failure) if failure.kind != StoreErrorKind::Contention => return Err(failure),
            Err(failure) => {
                if !wait_for_lock(tries) {
                    return Err(failure);
                }
                tries += 1;
            }
        }
    }
}

thread_local! {
    /// Time until which connections on this thread wait for a lock.
    static PATIENCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Makes connections on this thread wait for locks until the time `end`.
pub(crate) fn wait_until(end: Instant) {
    PATIENCE.set(Some(end));
}

/// SQLite's busy handler. Sleeps, and returns whether SQLite must try the lock again. The sleep
/// takes at most 50 µs at first and at most 5 ms later, with jitter. It is this short because
/// another process holds the write lock for about one commit.
fn wait_for_lock(tries: i32) -> bool {
    let now = time::monotonic();
    match PATIENCE.get() {
        Some(end) if now < end => {
            let step = 50_u64 << u32::try_from(tries).unwrap_or(0).min(7);
            let pause = Duration::from_micros(fastrand::u64(step / 2..=step.min(5_000)));
            thread::sleep(pause.min(end - now));
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_exact_to_the_millisecond() {
        let conn = Connection::open_in_memory().unwrap();
        let sql = statements::TEXTS
            .now
            .replace("unixepoch('subsec')", "unixepoch(?1, 'subsec')");
        let mut statement = conn.prepare(&sql).unwrap();
        for seconds in [1_763_716_000_i64, 4_102_444_799] {
            for millis in 0..1_000 {
                let at = time::from_millis(seconds * 1_000 + millis);
                let text = at.format("%Y-%m-%d %H:%M:%S%.3f").to_string();
                let read: i64 = statement.query_row([text], |row| row.get(0)).unwrap();
                assert_eq!(read, seconds * 1_000 + millis);
            }
        }
    }

    #[test]
    fn what_is_committed_is_on_disk_unless_chosen_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        for (synchronous, level) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
            let path = folder.path().join(format!("{level}.db"));
            let builder = crate::SqliteStore::builder(&path).synchronous(synchronous);
            let conn = open_writer(&builder.into_config().unwrap()).unwrap();
            let text = |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get(0));
            let number = |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get(0));
            assert_eq!(text("journal_mode"), Ok("wal".to_owned()));
            assert_eq!(number("synchronous"), Ok(level));
            assert_eq!(number("wal_autocheckpoint"), Ok(4_000));
        }
    }

    #[test]
    fn the_clock_is_the_hosts() {
        let conn = Connection::open_in_memory().unwrap();
        let before = time::to_millis(time::wall_clock());
        let now = Clock::Database.now(&conn).unwrap();
        let after = time::to_millis(time::wall_clock());
        assert!((before - 1..=after + 1).contains(&now));
    }
}
