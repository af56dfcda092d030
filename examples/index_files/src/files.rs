use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// An item that a walk through a folder finds.
pub(crate) enum Found {
    /// A regular file.
    File(PathBuf),
    /// A description of something that cannot be read.
    Problem(String),
}

/// Returns the regular files under a folder, except those of the database. Symbolic links are not
/// followed, so loops cannot occur.
pub(crate) fn under(dir: &Path, db: &Path) -> impl Iterator<Item = Found> {
    let own = own_files(db);
    WalkDir::new(dir)
        .into_iter()
        .filter_map(move |entry| match entry {
            Ok(entry) if !entry.file_type().is_file() => None,
            Ok(entry) if own.contains(&entry.path().to_path_buf()) => None,
            Ok(entry) => Some(Found::File(entry.into_path())),
            Err(error) => Some(Found::Problem(error.to_string())),
        })
}

/// Returns the files that belong to the database.
fn own_files(db: &Path) -> Vec<PathBuf> {
    let Ok(db) = db.canonicalize() else {
        return Vec::new();
    };
    ["", "-wal", "-shm"]
        .into_iter()
        .map(|suffix| {
            let mut path = db.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        })
        .collect()
}
