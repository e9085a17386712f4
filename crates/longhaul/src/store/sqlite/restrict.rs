//! Makes the files of earlier versions of Longhaul private when they are opened, if they belong to this user.
//!
//! A directory is only changed if it holds nothing but Longhaul's files. So `--data /tmp` or `--data ~` makes
//! the files there private, and leaves the directory as it is.

use std::io;
use std::path::Path;

use super::with_suffix;

/// What else Longhaul keeps in the directory of its database.
const OURS: [&str; 5] = ["carriers", "tokens", "memory", "trusted", "workers"];

/// Makes files of earlier versions private. Errors are ignored: they are no reason not to work.
pub(super) fn restrict_existing(database: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        restrict(&with_suffix(database, suffix), 0o600);
    }
    restrict(&with_suffix(database, "-workers"), 0o700);
    restrict(&with_suffix(database, "-readers"), 0o700);
    if let Some(directory) = database.parent()
        && holds_only_ours(directory, database)
    {
        restrict(directory, 0o700);
    }
}

/// Removes the permissions of others from a file of this user.
fn restrict(path: &Path, mode: u32) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let Ok(is) = path.symlink_metadata() else { return };
    let ours = is.uid() == nix::unistd::geteuid().as_raw();
    if ours && !is.is_symlink() && is.mode() & 0o077 != 0 {
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    }
}

/// Whether a directory holds nothing but Longhaul's files.
fn holds_only_ours(directory: &Path, database: &Path) -> bool {
    let Some(name) = database.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return false;
    };
    let is_ours = |entry: io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let found = entry.file_name();
            let found = found.to_string_lossy();
            found.starts_with(&name) || OURS.contains(&&*found)
        })
    };
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.all(is_ours))
}
