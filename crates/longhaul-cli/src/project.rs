//! The project that a run belongs to: the one of its working directory.

use std::path::{Path, PathBuf};

use longhaul::TaskId;
use longhaul::entry::Entry;
use longhaul::id::Seq;
use longhaul::store::Store;

/// Returns the project of a directory: the top of its git repository, or the directory itself if it is in
/// none.
pub(crate) fn project_of(directory: &Path) -> PathBuf {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let top = directory.ancestors().find(|above| above.join(".git").exists());
    top.unwrap_or(&directory).to_owned()
}

/// Returns the project of a run, or `None` if its order names no directory or cannot be read.
pub(crate) async fn project_of_run(store: &dyn Store, root: TaskId) -> Option<PathBuf> {
    let first = store.read(root, Seq(0), 1).await.ok()?;
    match &first.first()?.entry {
        Entry::Submitted(submitted) => submitted.order.working_dir.as_deref().map(project_of),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_a_repository_or_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (inner, plain) = (top.join("repository/src/deep"), top.join("plain/deep"));
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir_all(&plain).unwrap();
        std::fs::create_dir(top.join("repository/.git")).unwrap();
        assert_eq!(project_of(&inner), top.join("repository"));
        assert_eq!(project_of(&top.join("repository")), top.join("repository"));
        assert_eq!(project_of(&plain), plain);
        assert_eq!(project_of(&top.join("gone")), top.join("gone"), "one that is gone is itself");
    }
}
