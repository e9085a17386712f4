//! The directory with the tokens: only its owner can read it.
//!
//! | file | contains |
//! |---|---|
//! | `tokens.json` | name, scope and SHA-256 digest of each token |
//! | `token` | the first token itself, for tools on this machine |
//! | `codes/` | one-time codes for browsers, one file each, named by the digest of the code |
//! | `sessions.json` | SHA-256 digest, token and end of each browser session |

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Scope;
use super::secret::{self, Digest};

/// The name of the token that the first `longhaul serve` creates.
pub const DEFAULT_TOKEN: &str = "default";

/// How long a one-time code is valid.
pub const CODE_LIFETIME: Duration = Duration::from_secs(60);

/// The file with the tokens.
pub(super) const TOKENS: &str = "tokens.json";

/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Why tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// A file or directory cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Others could read or change it.
    #[error("{} can be used by other users (mode {mode:o}); only its owner may", path.display())]
    NotPrivate {
        /// The file or directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file with the tokens is damaged.
    #[error("{} cannot be read: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A name that a token cannot have.
    #[error("'{0}' cannot be the name of a token: use up to 64 letters, digits, '-', '_' and '.'")]
    BadName(String),
    /// There is a token with this name.
    #[error("there is already a token named '{0}'")]
    NameTaken(String),
    /// There is no token with this name.
    #[error("there is no token named '{asked}'; there are: {}", .have.join(", "))]
    Unknown {
        /// The requested name.
        asked: String,
        /// The names of all tokens.
        have: Vec<String>,
    },
    /// The system gives no random numbers.
    #[error("the system provides no random numbers")]
    NoRandom,
}

/// What is known about a token. The token itself is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// When it was created.
    pub created: Timestamp,
}

/// A token as it is kept.
#[derive(Clone)]
pub(super) struct StoredToken {
    pub(super) record: TokenRecord,
    pub(super) digest: Digest,
}

#[derive(Serialize, Deserialize)]
struct TokenLine {
    #[serde(flatten)]
    record: TokenRecord,
    sha256: String,
}

#[derive(Default, Serialize, Deserialize)]
struct TokenFile {
    tokens: Vec<TokenLine>,
}

#[derive(Serialize, Deserialize)]
struct CodeFile {
    token: String,
    expires: Timestamp,
}

/// A token that was just created. This is the only time that it is known.
pub struct NewToken {
    /// The token.
    pub secret: String,
    /// Its record.
    pub record: TokenRecord,
}

/// Tells whether a file is still the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
    modified: (i64, i64),
    mode: u32,
    length: u64,
}

/// The directory with the tokens of a data directory.
#[derive(Debug, Clone)]
pub struct AccessDir(PathBuf);

impl AccessDir {
    /// The directory `access` below a data directory. It is created when something is first written.
    pub fn in_data_dir(data_dir: &Path) -> AccessDir {
        AccessDir(data_dir.join("access"))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file with the first token, for `Authorization: Bearer $(cat FILE)`.
    pub fn client_token_file(&self) -> PathBuf {
        self.0.join("token")
    }

    /// Lists the tokens.
    pub fn list(&self) -> Result<Vec<TokenRecord>, AccessError> {
        Ok(self.read_tokens()?.into_iter().map(|token| token.record).collect())
    }

    /// Creates a token. It is valid at once, also for a server that already runs.
    pub fn create(&self, name: &str, scope: Scope) -> Result<NewToken, AccessError> {
        check_name(name)?;
        let _lock = self.lock()?;
        self.add(name, scope)
    }

    /// Revokes a token. A server that runs refuses it at once, and ends its streams within a second.
    pub fn revoke(&self, name: &str) -> Result<(), AccessError> {
        let _lock = self.lock()?;
        let mut tokens = self.read_tokens()?;
        let Some(at) = tokens.iter().position(|token| token.record.name == name) else {
            let have = tokens.into_iter().map(|token| token.record.name).collect();
            return Err(AccessError::Unknown { asked: name.to_owned(), have });
        };
        let revoked = tokens.remove(at);
        self.write_tokens(&tokens)?;
        self.forget_sessions_of(&revoked.digest);
        let file = self.client_token_file();
        if read_text(&file).is_ok_and(|text| Digest::of(text.trim()) == revoked.digest) {
            std::fs::remove_file(&file).map_err(at_path(&file))?;
        }
        Ok(())
    }

    /// Makes sure that there is a token, and returns the file with the first one. Returns `None` if there are
    /// tokens and that file was removed.
    pub fn ensure_first_token(&self) -> Result<Option<PathBuf>, AccessError> {
        let _lock = self.lock()?;
        let file = self.client_token_file();
        if !self.read_tokens()?.is_empty() {
            return Ok(file.exists().then_some(file));
        }
        // Left behind by a start that was interrupted: no token has its digest.
        let _ = std::fs::remove_file(&file);
        let new = self.add(DEFAULT_TOKEN, Scope::Admin)?;
        create_private(&file, format!("{}\n", new.secret).as_bytes()).map_err(at_path(&file))?;
        Ok(Some(file))
    }

    /// Creates a one-time code with which a browser gets a session with the scope of a token.
    pub fn create_code(&self, token: &str) -> Result<String, AccessError> {
        let _lock = self.lock()?;
        let tokens = self.read_tokens()?;
        if tokens.iter().all(|known| known.record.name != token) {
            let have = tokens.into_iter().map(|token| token.record.name).collect();
            return Err(AccessError::Unknown { asked: token.to_owned(), have });
        }
        let codes = self.0.join("codes");
        private_dir(&codes)?;
        self.remove_expired_codes(&codes);
        let code = secret::random("")?;
        let expires = Timestamp::now() + CODE_LIFETIME;
        let file = codes.join(Digest::of(&code).to_hex());
        let text = serde_json::to_vec(&CodeFile { token: token.to_owned(), expires }).unwrap_or_default();
        create_private(&file, &text).map_err(at_path(&file))?;
        Ok(code)
    }

    /// Uses a one-time code up. Returns the name of its token; `None` if it is not valid.
    pub(super) fn redeem_code(&self, code: &str) -> Option<String> {
        let file = self.0.join("codes").join(Digest::of(code).to_hex());
        let text = read_text(&file).ok()?;
        // Of two requests with the same code, only one can remove the file.
        std::fs::remove_file(&file).ok()?;
        let code: CodeFile = serde_json::from_str(&text).ok()?;
        (code.expires > Timestamp::now()).then_some(code.token)
    }

    fn remove_expired_codes(&self, codes: &Path) {
        for file in std::fs::read_dir(codes).into_iter().flatten().flatten() {
            let code = read_text(&file.path()).ok().and_then(|text| serde_json::from_str(&text).ok());
            if code.is_none_or(|code: CodeFile| code.expires <= Timestamp::now()) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    pub(super) fn stamp_of(&self, file: &str) -> Option<FileStamp> {
        let meta = std::fs::metadata(self.0.join(file)).ok()?;
        Some(FileStamp {
            device: meta.dev(),
            inode: meta.ino(),
            changed: (meta.ctime(), meta.ctime_nsec()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            mode: meta.mode(),
            length: meta.len(),
        })
    }

    pub(super) fn read_tokens(&self) -> Result<Vec<StoredToken>, AccessError> {
        let path = self.tokens_file();
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(AccessError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let damaged = |why: String| AccessError::Damaged { path: path.clone(), why };
        let file: TokenFile = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        file.tokens
            .into_iter()
            .map(|line| {
                let digest = Digest::from_hex(&line.sha256)
                    .ok_or_else(|| damaged(format!("'{}' has no digest", line.record.name)))?;
                Ok(StoredToken { record: line.record, digest })
            })
            .collect()
    }

    fn add(&self, name: &str, scope: Scope) -> Result<NewToken, AccessError> {
        let mut tokens = self.read_tokens()?;
        if tokens.iter().any(|token| token.record.name == name) {
            return Err(AccessError::NameTaken(name.to_owned()));
        }
        let secret = secret::random("lh_")?;
        let record = TokenRecord { name: name.to_owned(), scope, created: now() };
        tokens.push(StoredToken { record: record.clone(), digest: Digest::of(&secret) });
        self.write_tokens(&tokens)?;
        Ok(NewToken { secret, record })
    }

    fn write_tokens(&self, tokens: &[StoredToken]) -> Result<(), AccessError> {
        let line =
            |token: &StoredToken| TokenLine { record: token.record.clone(), sha256: token.digest.to_hex() };
        let file = TokenFile { tokens: tokens.iter().map(line).collect() };
        self.replace_file(TOKENS, &file)
    }

    /// Writes a file atomically. Only its owner can read it. The caller holds the lock.
    pub(super) fn replace_file(&self, name: &str, content: &impl Serialize) -> Result<(), AccessError> {
        let path = self.0.join(name);
        let text = serde_json::to_vec_pretty(content)
            .map_err(|error| AccessError::Damaged { path: path.clone(), why: error.to_string() })?;
        let draft = self.0.join(format!("{name}.new"));
        let _ = std::fs::remove_file(&draft);
        create_private(&draft, &text).map_err(at_path(&draft))?;
        std::fs::rename(&draft, &path).map_err(at_path(&path))?;
        File::open(&self.0).and_then(|dir| dir.sync_all()).map_err(at_path(&self.0))
    }

    fn tokens_file(&self) -> PathBuf {
        self.0.join(TOKENS)
    }

    /// Holds off other processes that change tokens, until the returned file is dropped.
    pub(super) fn lock(&self) -> Result<File, AccessError> {
        private_dir(&self.0)?;
        let path = self.0.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(at_path(&path))?;
        file.lock().map_err(at_path(&path))?;
        Ok(file)
    }
}

fn check_name(name: &str) -> Result<(), AccessError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        true => Ok(()),
        false => Err(AccessError::BadName(name.chars().take(80).collect())),
    }
}

/// The time, in whole seconds.
fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn at_path(path: &Path) -> impl FnOnce(io::Error) -> AccessError {
    let path = path.to_owned();
    move |source| AccessError::Io { path, source }
}

/// Writes a new file that only its owner can read. Fails if there is one.
fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Reads a file. Fails if others could have read or written it.
pub(super) fn read_text(path: &Path) -> Result<String, AccessError> {
    let file = File::open(path).map_err(at_path(path))?;
    let mode = file.metadata().map_err(at_path(path))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(AccessError::NotPrivate { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(at_path(path))?;
    Ok(text)
}

/// Creates a directory that only its owner can enter, or checks that it is one.
fn private_dir(path: &Path) -> Result<(), AccessError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at_path(path))?;
    let mode = path.metadata().map_err(at_path(path))?.mode() & 0o777;
    if mode & 0o077 != 0 && std::fs::set_permissions(path, Permissions::from_mode(0o700)).is_err() {
        return Err(AccessError::NotPrivate { path: path.to_owned(), mode });
    }
    Ok(())
}
