//! A directory in memory for the files of tests. They create and drop hundreds of tables and
//! collections, which takes several times as long on a disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;

use super::keeper::Keeper;
use super::quoted;

/// Where Linux has a file system in memory.
const MEMORY: &str = "/dev/shm";
/// What must be free there, in KiB: 6 GiB. A complete run uses about a quarter of that.
const NEEDED: u64 = 6 << 20;

static IN_USE: OnceLock<PathBuf> = OnceLock::new();

/// A directory in memory in which servers keep their data. It is removed when this is dropped.
pub(crate) struct InMemory {
    pub(crate) path: PathBuf,
    _keeper: Keeper,
}

/// Has servers that are started from now on keep their data in memory. `None` if `TMPDIR` says
/// where files belong, or if there is no such file system or too little room.
pub(crate) fn use_memory() -> Result<Option<InMemory>> {
    let elsewhere = std::env::var_os("TMPDIR").is_some_and(|path| !path.is_empty());
    if elsewhere || free().is_none_or(|free| free < NEEDED) {
        return Ok(None);
    }
    let path = Path::new(MEMORY).join(format!("ratchet-{}", std::process::id()));
    fs::create_dir_all(&path)?;
    let keeper = Keeper::new(&format!("rm -rf {}", quoted(&path)))?;
    // Servers run as other users.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))?;
    let path = IN_USE.get_or_init(|| path).clone();
    Ok(Some(InMemory {
        path,
        _keeper: keeper,
    }))
}

/// The directory in memory, while servers are to use it.
pub(super) fn in_use() -> Option<&'static Path> {
    IN_USE
        .get()
        .map(PathBuf::as_path)
        .filter(|path| path.is_dir())
}

/// How many KiB are free in memory.
fn free() -> Option<u64> {
    let found = Command::new("df")
        .args(["--output=avail", "-k", MEMORY])
        .output()
        .ok()?;
    let text = String::from_utf8(found.stdout).ok()?;
    text.lines().nth(1)?.trim().parse().ok()
}
