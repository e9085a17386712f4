//! Files that only their owner can read, because conversations are private. They are so from the start, whatever
//! the umask is.

use std::io;
use std::path::Path;

/// Creates a directory that only its owner can enter, and missing parents.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Creates an empty file that only its owner can read, if there is none. SQLite gives the files beside it the
/// same permissions.
pub(crate) fn create_private_file(path: &Path) -> io::Result<()> {
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
