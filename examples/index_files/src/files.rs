use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// A file, or a problem, that a walk through a folder finds.
pub(crate) enum Found {
    /// The path of a regular file.
    File(PathBuf),
    /// A description of a file or folder that cannot be read.
    Problem(String),
}

/// Returns the regular files under a folder, except the files of the database. Also returns a
/// problem for each file or folder that cannot be read. Does not follow symbolic links, so loops
/// cannot occur.
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

/// Returns the paths of the database's files, or nothing if the database does not exist.
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
