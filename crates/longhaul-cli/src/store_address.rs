//! Which store a command uses: a database file of this machine, or a PostgreSQL database that several machines
//! share.

use std::path::{Path, PathBuf};

use crate::exit::{CliError, CliExitCode};

/// The variable that names the store.
pub(crate) const STORE_VARIABLE: &str = "LONGHAUL_STORE";

/// A store, as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreAddress {
    /// A database file, or its directory.
    File(PathBuf),
    /// A PostgreSQL database.
    Postgres(PostgresUrl),
}

/// The URL of a PostgreSQL database. It may contain a password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PostgresUrl(String);

impl std::fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PostgresUrl").field(&self.shown()).finish()
    }
}

impl StoreAddress {
    /// Reads the address of `--store`. Fails if it has a password: everyone on this machine can see the
    /// arguments of a process.
    pub(crate) fn from_flag(typed: &str) -> Result<StoreAddress, CliError> {
        let address = StoreAddress::from_trusted(typed)?;
        match &address {
            StoreAddress::Postgres(url) if !typed.starts_with('@') && url.has_password() => {
                Err(CliError::new(CliExitCode::Usage, "--store: the URL has a password, and arguments are visible to others")
                    .with_hint(format!(
                        "put the URL into {STORE_VARIABLE}, or into a file that only you can read: `--store @FILE`"
                    )))
            }
            _ => Ok(address),
        }
    }

    /// Returns the value for `--store` with which a process in another directory finds the same store. Fails if it has a
    /// password.
    pub(crate) fn as_argument(typed: &str) -> Result<String, CliError> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match (StoreAddress::from_flag(typed)?, typed.strip_prefix('@')) {
            (_, Some(file)) => Ok(format!("@{}", absolute(Path::new(file)).display())),
            (StoreAddress::File(path), None) => Ok(absolute(&path).display().to_string()),
            (StoreAddress::Postgres(url), None) => Ok(url.0),
        }
    }

    /// Reads an address from a place that others cannot see: the environment, or a file.
    pub(crate) fn from_trusted(text: &str) -> Result<StoreAddress, CliError> {
        let text = text.trim();
        if let Some(file) = text.strip_prefix('@') {
            return StoreAddress::from_trusted(&read_private(Path::new(file))?);
        }
        if text.is_empty() {
            return Err(CliError::new(CliExitCode::Usage, "the store is named by an empty text")
                .with_hint("name a PostgreSQL URL, or the path of a database file"));
        }
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Ok(StoreAddress::Postgres(PostgresUrl(text.to_owned()))),
            Some((scheme, _)) => {
                let what = format!("there is no store for URLs that begin with '{scheme}://'");
                Err(CliError::new(CliExitCode::Usage, what).with_hint(
                    "name a PostgreSQL URL (postgres://USER@HOST/DATABASE), or the path of a file",
                ))
            }
            None => Ok(StoreAddress::File(PathBuf::from(text))),
        }
    }
}

/// Reads the address in a file that no one else can read.
fn read_private(path: &Path) -> Result<String, CliError> {
    use std::os::unix::fs::PermissionsExt as _;
    let cannot = |why: String| {
        CliError::new(CliExitCode::Usage, format!("the file {} with the store's URL {why}", path.display()))
    };
    let meta = path.metadata().map_err(|error| cannot(format!("cannot be read: {error}")))?;
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(
            cannot("can be read by others".to_owned()).with_hint(format!("chmod 600 {}", path.display()))
        );
    }
    let text = std::fs::read_to_string(path).map_err(|error| cannot(format!("cannot be read: {error}")))?;
    let text = text.trim().to_owned();
    if text.starts_with('@') { Err(cannot("names another file".to_owned())) } else { Ok(text) }
}

impl PostgresUrl {
    /// The whole URL. It may contain a password.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The URL without the password, and without parameters but the schema.
    pub(crate) fn shown(&self) -> String {
        let (scheme, _, user, place) = self.parts();
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        let schema = self.parameters().find(|pair| pair.starts_with("schema="));
        let schema = schema.map(|schema| format!("?{schema}")).unwrap_or_default();
        format!("{scheme}://{user}{place}{schema}")
    }

    fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.split_once('?').map_or("", |(_, parameters)| parameters).split('&')
    }

    /// Whether it has a password.
    fn has_password(&self) -> bool {
        let (_, password, _, _) = self.parts();
        let secret = |pair: &str| {
            let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
            name.contains("password") || name.contains('%')
        };
        password || self.parameters().any(secret)
    }

    /// The scheme, whether there is a password, the user, and host, port and database.
    fn parts(&self) -> (&str, bool, Option<&str>, &str) {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", &self.0));
        let rest = rest.split(['?', '#']).next().unwrap_or(rest);
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        match login
            .map(|login| login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word))))
        {
            Some((user, word)) => (scheme, word.is_some_and(|word| !word.is_empty()), Some(user), place),
            None => (scheme, false, None, place),
        }
    }
}

/// The name of this machine, by which a task that works in one of its directories is bound to it: from
/// `LONGHAUL_HOST`, or its host name and the beginning of a digest of its machine id.
pub(crate) fn host_id() -> String {
    if let Some(named) = std::env::var("LONGHAUL_HOST").ok().filter(|named| !named.trim().is_empty()) {
        return named.trim().to_owned();
    }
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let digest = longhaul::id::Digest::of_bytes(machine.trim().as_bytes());
    let digest: String = digest.as_str().chars().filter(char::is_ascii_hexdigit).take(8).collect();
    format!("{name}-{digest}")
}

/// The name of this machine as the name of a directory: machines that share a home directory keep their lock files
/// apart.
#[cfg(feature = "postgres")]
pub(crate) fn host_dir() -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = host_id().chars().take(100).map(plain).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_a_password_is_refused_as_an_argument_and_never_shown() {
        for url in [
            "postgres://me:hush@db.example/tasks",
            "postgresql://me:hush@db.example:5433/tasks?sslmode=require",
            "postgres://db.example/tasks?user=me&password=hush",
            "postgres://db.example/tasks?p%61ssword=hush",
            "postgres://me:hu@sh@db.example/tasks",
        ] {
            let error = StoreAddress::from_flag(url).unwrap_err();
            assert!(!error.to_string().contains("hu"), "{error}");
            let address = StoreAddress::from_trusted(url).unwrap();
            let StoreAddress::Postgres(known) = &address else { panic!("{address:?}") };
            assert_eq!(known.expose(), url);
            assert!(!format!("{address:?} {}", known.shown()).contains("hu"), "{}", known.shown());
            assert!(known.shown().contains("db.example"), "{}", known.shown());
        }
        let url = PostgresUrl("postgres://me:x@h/d?sslmode=require&schema=two".to_owned());
        assert_eq!(url.shown(), "postgres://me@h/d?schema=two", "another schema is another store");
        for url in
            ["postgres://me@db.example/tasks", "postgres:///tasks?host=/run/postgresql", "postgres://me:@h/x"]
        {
            assert!(StoreAddress::from_flag(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn an_address_is_a_url_or_a_path_or_in_a_private_file() {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(StoreAddress::from_flag("some/dir").unwrap(), StoreAddress::File("some/dir".into()));
        for wrong in ["mysql://h/x", "", "@/no/such/file"] {
            assert!(StoreAddress::from_flag(wrong).is_err(), "{wrong}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("store");
        std::fs::write(&file, "postgres://me:hush@db.example/tasks\n").unwrap();
        let named = format!("@{}", file.display());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(StoreAddress::from_flag(&named).unwrap_err().to_string().contains("by others"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let StoreAddress::Postgres(url) = StoreAddress::from_flag(&named).unwrap() else { panic!() };
        assert_eq!(url.expose(), "postgres://me:hush@db.example/tasks");
    }
}
