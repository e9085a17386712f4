//! Stores the tokens of logins.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::id::Digest;

/// Stores tokens by the URL of the server. Its methods may block; they are called on blocking threads.
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the tokens of a server, if there are any.
    ///
    /// # Errors
    /// If they cannot be read.
    fn load(&self, server: &str) -> io::Result<Option<SecretString>>;

    /// Stores the tokens of a server, and replaces earlier ones.
    ///
    /// # Errors
    /// If they cannot be written.
    fn save(&self, server: &str, tokens: &SecretString) -> io::Result<()>;

    /// Removes the tokens of a server.
    ///
    /// # Errors
    /// If they cannot be removed.
    fn clear(&self, server: &str) -> io::Result<()>;
}

/// Keeps tokens in memory, until the process ends.
#[derive(Default)]
pub struct MemoryTokenStore(Mutex<HashMap<String, SecretString>>);

impl MemoryTokenStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        MemoryTokenStore::default()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<String, SecretString>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryTokenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().keys()).finish()
    }
}

impl TokenStore for MemoryTokenStore {
    fn load(&self, server: &str) -> io::Result<Option<SecretString>> {
        Ok(self.all().get(server).cloned())
    }

    fn save(&self, server: &str, tokens: &SecretString) -> io::Result<()> {
        self.all().insert(server.to_owned(), tokens.clone());
        Ok(())
    }

    fn clear(&self, server: &str) -> io::Result<()> {
        self.all().remove(server);
        Ok(())
    }
}

/// Keeps tokens in files, one per server, in a directory. Only the owner can read the files and enter the
/// directory.
#[derive(Debug, Clone)]
pub struct FileTokenStore(PathBuf);

impl FileTokenStore {
    /// Uses this directory, which is created when the first token is stored.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        FileTokenStore(dir.into())
    }

    fn file(&self, server: &str) -> PathBuf {
        self.0.join(format!("{}.json", &Digest::of_bytes(server.as_bytes()).as_str()[..32]))
    }
}

fn about(path: &Path) -> impl FnOnce(io::Error) -> io::Error + use<> {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}

impl TokenStore for FileTokenStore {
    fn load(&self, server: &str) -> io::Result<Option<SecretString>> {
        let path = self.file(server);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(about(&path)(error)),
        }
    }

    fn save(&self, server: &str, tokens: &SecretString) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(about(&self.0))?;
        let path = self.file(server);
        // Write a temporary file with the final permissions and rename it: readers see the old or the new
        // file.
        let draft = path.with_extension(Uuid::now_v7().simple().to_string());
        let write = || {
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(tokens.expose_secret().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&draft, &path)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&draft);
            about(&path)(error)
        })
    }

    fn clear(&self, server: &str) -> io::Result<()> {
        let path = self.file(server);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(&path)(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn exam(store: &dyn TokenStore) {
        assert!(store.load("https://a/mcp").unwrap().is_none());
        store.save("https://a/mcp", &"one".into()).unwrap();
        store.save("https://b/mcp", &"two".into()).unwrap();
        store.save("https://a/mcp", &"three".into()).unwrap();
        let kept = |server| store.load(server).unwrap().map(|tokens| tokens.expose_secret().to_owned());
        assert_eq!(kept("https://a/mcp").as_deref(), Some("three"));
        assert_eq!(kept("https://b/mcp").as_deref(), Some("two"));
        store.clear("https://a/mcp").unwrap();
        store.clear("https://a/mcp").unwrap();
        assert_eq!(kept("https://a/mcp"), None);
    }

    #[test]
    fn what_is_kept_is_found_again_by_its_server() {
        exam(&MemoryTokenStore::new());
        let dir = tempfile::tempdir().unwrap();
        exam(&FileTokenStore::new(dir.path().join("deep/tokens")));
    }

    #[test]
    fn only_the_owner_can_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("tokens");
        FileTokenStore::new(&dir).save("https://a/mcp", &"secret".into()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "no draft is left: {files:?}");
        assert_eq!(mode(&files[0]), 0o600);
    }
}
