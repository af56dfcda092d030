//! A directory in memory for the files of tests. Tests create and drop hundreds of tables and
//! collections, which takes several times as long on a disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;

use super::keeper::Keeper;
use super::quoted;

/// Where Linux mounts a file system in memory.
const MEMORY: &str = "/dev/shm";
/// How many KiB must be free in this file system: 6 GiB. A complete run uses about a quarter of
/// that.
const NEEDED: u64 = 6 << 20;

static IN_USE: OnceLock<PathBuf> = OnceLock::new();

/// A directory in memory in which servers keep their data. It is removed when this is dropped.
pub(crate) struct InMemory {
    pub(crate) path: PathBuf,
    _keeper: Keeper,
}

/// Makes servers that are started from now on keep their data in memory. Returns `None` if `TMPDIR`
/// is set, if there is no such file system, or if it has too little room.
pub(crate) fn use_memory() -> Result<Option<InMemory>> {
    let elsewhere = std::env::var_os("TMPDIR").is_some_and(|path| !path.is_empty());
    if elsewhere || free().is_none_or(|free| free < NEEDED) {
        return Ok(None);
    }
    let path = Path::new(MEMORY).join(format!("ratchet-{}", std::process::id()));
    fs::create_dir_all(&path)?;
    let keeper = Keeper::new(&format!("rm -rf {}", quoted(&path)))?;
    // All users may write to the directory, since servers run as other users.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))?;
    let path = IN_USE.get_or_init(|| path).clone();
    Ok(Some(InMemory {
        path,
        _keeper: keeper,
    }))
}

/// Returns the directory in memory, if servers use one.
pub(super) fn in_use() -> Option<&'static Path> {
    IN_USE
        .get()
        .map(PathBuf::as_path)
        .filter(|path| path.is_dir())
}

/// Returns how many KiB are free in memory.
fn free() -> Option<u64> {
    let found = Command::new("df")
        .args(["--output=avail", "-k", MEMORY])
        .output()
        .ok()?;
    let text = String::from_utf8(found.stdout).ok()?;
    text.lines().nth(1)?.trim().parse().ok()
}
