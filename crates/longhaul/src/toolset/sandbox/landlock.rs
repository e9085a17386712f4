//! The Landlock helper: confines its own process and becomes the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// The newest Landlock ABI that is requested. Rights that an older kernel does not know are left out.
const NEWEST: ABI = ABI::V6;
/// Devices that every program may open for writing.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];

/// Why Landlock cannot confine a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct LandlockError(String);

/// Checks whether this kernel supports what is needed, without confining anything.
pub(super) fn is_available(network: bool) -> Result<(), LandlockError> {
    let asked = || -> Result<(), RulesetError> {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let ruleset = ruleset.handle_access(AccessFs::from_all(ABI::V1))?;
        let ruleset = if network { ruleset } else { ruleset.handle_access(AccessNet::from_all(ABI::V4))? };
        ruleset.create().map(drop)
    };
    asked().map_err(|error| match network {
        true => LandlockError(format!("this kernel has no Landlock: {error}")),
        false => LandlockError(format!("this kernel's Landlock cannot block the network: {error}")),
    })
}

/// The helper's arguments.
#[derive(Debug, PartialEq, Eq, Default)]
struct LandlockArgs {
    writable: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    network: bool,
    command: Vec<OsString>,
}

/// Confines this process permanently and becomes a command: `--rw DIR… [--hide DIR…] [--net] -- PROGRAM ARG…`. The
/// command can read everything that is not hidden, and write only below the given directories and to some devices. TCP is blocked unless
/// `--net` is given. Landlock does not cover UDP or sockets in the file system.
///
/// Call it from the `main` of the program that is a [`Sandbox`](super::Sandbox)'s helper, before any thread
/// is started. It returns only on failure, with the reason.
pub fn sandbox_exec(args: impl IntoIterator<Item = OsString>) -> String {
    match parse(args).and_then(|parsed| confine(&parsed).map(|()| parsed)) {
        Err(why) => why.to_string(),
        Ok(parsed) => match parsed.command.split_first() {
            None => "no command was named".to_owned(),
            Some((program, args)) => {
                let error = Command::new(program).args(args).exec();
                format!("'{}' cannot be started: {error}", program.display())
            }
        },
    }
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<LandlockArgs, LandlockError> {
    let mut parsed = LandlockArgs::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--rw") => {
                let dir = args.next().ok_or_else(|| LandlockError("--rw needs a directory".to_owned()))?;
                parsed.writable.push(dir.into());
            }
            Some("--hide") => {
                let dir = args.next().ok_or_else(|| LandlockError("--hide needs a directory".to_owned()))?;
                parsed.hidden.push(dir.into());
            }
            Some("--net") => parsed.network = true,
            Some("--") => {
                parsed.command = args.collect();
                return if parsed.command.is_empty() {
                    Err(LandlockError("no command was named".to_owned()))
                } else {
                    Ok(parsed)
                };
            }
            _ => return Err(LandlockError(format!("'{}' is not understood", arg.display()))),
        }
    }
    Err(LandlockError("there is no '--' with a command after it".to_owned()))
}

/// Every right except creating devices: root could write to a disk through one.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// Adds a directory, or else everything in it that neither is nor contains a hidden directory. Directories that
/// contain a hidden one cannot be listed then, because a right for a directory is one for everything below it.
fn add_readable(dir: &Path, hidden: &[PathBuf], readable: &mut Vec<PathBuf>) {
    let touches =
        |path: &Path| hidden.iter().any(|hidden| hidden.starts_with(path) || path.starts_with(hidden));
    if !touches(dir) {
        readable.push(dir.to_owned());
        return;
    }
    if hidden.iter().any(|hidden| dir.starts_with(hidden)) {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(real) = path.canonicalize() else { continue };
        match real == path {
            true => add_readable(&path, hidden, readable),
            // What a link leads to is added where it is, unless it is hidden.
            false if !touches(&real) => readable.push(path),
            false => {}
        }
    }
}

fn confine(parsed: &LandlockArgs) -> Result<(), LandlockError> {
    let not = |error: RulesetError| LandlockError(format!("the sandbox could not be entered: {error}"));
    for dir in &parsed.writable {
        if !dir.exists() {
            return Err(LandlockError(format!("{} is not there", AsRef::<OsStr>::as_ref(dir).display())));
        }
    }
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST)).map_err(not)?;
    let ruleset = match parsed.network {
        true => ruleset,
        false => {
            let strict = ruleset.set_compatibility(CompatLevel::HardRequirement);
            let ruleset = strict.handle_access(AccessNet::from_all(ABI::V4)).map_err(not)?;
            ruleset.set_compatibility(CompatLevel::BestEffort).scope(Scope::from_all(NEWEST)).map_err(not)?
        }
    };
    let mut readable = Vec::new();
    add_readable(Path::new("/"), &parsed.hidden, &mut readable);
    let confined = ruleset
        .create()
        .and_then(|rules| rules.add_rules(path_beneath_rules(&readable, AccessFs::from_read(NEWEST))))
        .and_then(|rules| rules.add_rules(path_beneath_rules(&parsed.writable, writing())))
        .and_then(|rules| rules.add_rules(path_beneath_rules(DEVICES, AccessFs::from_file(NEWEST))))
        .and_then(|rules| rules.restrict_self())
        .map_err(not)?;
    match confined.ruleset {
        RulesetStatus::NotEnforced => Err(LandlockError("this kernel has no Landlock".to_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<LandlockArgs, LandlockError> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn everything_but_what_is_hidden_is_readable() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["a/x", "b/data/access", "b/other"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("b/data"), root.join("b/link")).unwrap();
        std::os::unix::fs::symlink(root.join("b"), root.join("up")).unwrap();
        std::os::unix::fs::symlink(root.join("a"), root.join("b/fine")).unwrap();
        let mut readable = Vec::new();
        add_readable(&root, &[root.join("b/data")], &mut readable);
        readable.sort();
        assert_eq!(readable, [root.join("a"), root.join("b/fine"), root.join("b/other")]);
        let mut all = Vec::new();
        add_readable(Path::new("/"), &[], &mut all);
        assert_eq!(all, [PathBuf::from("/")]);
    }

    #[test]
    fn the_helper_is_told_in_few_words() {
        let full = parsed(&[
            "--rw", "/work", "--hide", "/data", "--rw", "/more", "--net", "--", "sh", "-c", "--net",
        ])
        .unwrap();
        assert_eq!(full.writable, [PathBuf::from("/work"), PathBuf::from("/more")]);
        assert_eq!(full.hidden, [PathBuf::from("/data")]);
        assert!(full.network);
        assert_eq!(full.command, ["sh", "-c", "--net"]);
        for wrong in [&["--rw"][..], &["--rw", "/work"], &["sh"], &["--write", "--", "sh"], &["--"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
