//! Resolves a path link by link, and never looks at anything outside the roots.
//!
//! A resolved path contains no link and no `..`, so it can be opened without following links: a link that is
//! put in the way afterwards causes an error, not an escape.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The kernel's limit of links in one path.
const MAX_LINKS: usize = 40;
/// The longest name and the longest path that common file systems accept, in bytes.
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4096;

/// A path below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootedPath {
    /// The index of the root.
    pub(super) root: usize,
    /// The path relative to the root: plain names only. Empty for the root itself.
    pub(super) rel: PathBuf,
}

/// Why a path cannot be resolved.
#[derive(Debug)]
pub(super) enum PathResolveError {
    /// It leaves the roots, directly or through a link.
    OutsideRoots { by_link: bool },
    /// It is not a usable path.
    Invalid(String),
    /// A part of the path cannot be read.
    Io(io::Error),
}

/// One root: its real path, and the path as it was given.
pub(super) struct RootNames {
    pub(super) real: PathBuf,
    pub(super) given: PathBuf,
}

/// Resolves `typed`. `link` returns the target of a path that is a link; it is called only for paths below a
/// root.
pub(super) fn resolve_path(
    typed: &str,
    roots: &[RootNames],
    link: impl Fn(&RootedPath) -> io::Result<Option<PathBuf>>,
) -> Result<RootedPath, PathResolveError> {
    check_words(typed)?;
    let typed = Path::new(typed);
    let base = roots.first().map(|root| root.real.as_path()).unwrap_or(Path::new("/"));
    let whole = match roots.iter().find_map(|root| Some((root, typed.strip_prefix(&root.given).ok()?))) {
        Some((root, rest)) if typed.is_absolute() => root.real.join(rest),
        _ => base.join(typed),
    };

    let mut at = PathBuf::new();
    let mut ahead: VecDeque<PathStep> = steps(&whole);
    let (mut links, mut by_link) = (0, false);
    while let Some(step) = ahead.pop_front() {
        let name = match step {
            PathStep::Root(root) => {
                at = root;
                continue;
            }
            PathStep::Up => {
                at.pop();
                continue;
            }
            PathStep::Down(name) => name,
        };
        at.push(&name);
        let Some(place) = inside(&at, roots).filter(|place| !place.rel.as_os_str().is_empty()) else {
            continue;
        };
        let target = match link(&place) {
            Ok(target) => target,
            // It does not exist, so nothing below it does.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(PathResolveError::Io(error)),
        };
        if let Some(target) = target {
            links += 1;
            if links > MAX_LINKS {
                return Err(PathResolveError::Invalid(
                    "it has too many symbolic links on its way".to_owned(),
                ));
            }
            by_link = true;
            at.pop();
            for step in steps(&target).into_iter().rev() {
                ahead.push_front(step);
            }
        }
    }
    inside(&at, roots).ok_or(PathResolveError::OutsideRoots { by_link })
}

enum PathStep {
    Root(PathBuf),
    Up,
    Down(OsString),
}

fn steps(path: &Path) -> VecDeque<PathStep> {
    let mut steps = VecDeque::new();
    let mut root = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Prefix(_) | Component::RootDir => root.push(part),
            Component::CurDir => {}
            Component::ParentDir => steps.push_back(PathStep::Up),
            Component::Normal(name) => steps.push_back(PathStep::Down(name.to_owned())),
        }
    }
    if !root.as_os_str().is_empty() {
        steps.push_front(PathStep::Root(root));
    }
    steps
}

/// Returns the innermost root: a root may be below another.
fn inside(path: &Path, roots: &[RootNames]) -> Option<RootedPath> {
    let rel = |(index, root): (usize, &RootNames)| {
        path.strip_prefix(&root.real).ok().map(|rel| RootedPath { root: index, rel: rel.to_owned() })
    };
    roots.iter().enumerate().filter_map(rel).min_by_key(|place| place.rel.as_os_str().len())
}

/// Returns why a path is unusable: a shell would expand it, or no file system accepts it.
fn check_words(typed: &str) -> Result<(), PathResolveError> {
    if typed.contains('\0') {
        return Err(PathResolveError::Invalid(
            "it has a zero byte in it, which no file name can have".to_owned(),
        ));
    }
    if typed.len() > MAX_PATH {
        return Err(PathResolveError::Invalid(format!(
            "it is {} bytes long, and no path can be longer than {MAX_PATH}",
            typed.len()
        )));
    }
    if let Some(long) = typed.split('/').find(|name| name.len() > MAX_NAME) {
        return Err(PathResolveError::Invalid(format!(
            "one name in it is {} bytes long, and {MAX_NAME} is the most",
            long.len()
        )));
    }
    let first = typed.split('/').next().unwrap_or_default();
    if first == "~" {
        return Err(PathResolveError::Invalid(
            "'~' stands for nothing here: write a path relative to the working directory \
                    ('./~' for a file of that name)"
                .to_owned(),
        ));
    }
    if is_variable(first) {
        return Err(PathResolveError::Invalid(format!(
            "'{first}' is not replaced by anything here: write a path relative to the working directory \
             ('./{first}' for a file of that name)"
        )));
    }
    Ok(())
}

/// `$HOME`, `${HOME}`, `%USERPROFILE%`; not `$id.tsx`.
fn is_variable(word: &str) -> bool {
    let name = match word.strip_prefix('$') {
        Some(name) => name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name),
        None => word.strip_prefix('%').and_then(|name| name.strip_suffix('%')).unwrap_or_default(),
    };
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> Vec<RootNames> {
        let names =
            |real: &str, given: &str| RootNames { real: PathBuf::from(real), given: PathBuf::from(given) };
        vec![names("/home/me/work", "/links/work"), names("/data", "/data"), names("/home/me/work/sub", "/x")]
    }

    /// A fake file system in which only these links exist, and everything else is a plain file or directory.
    fn leads(typed: &str, links: &[(&str, &str)]) -> Result<(usize, String), String> {
        let roots = roots();
        let link = |place: &RootedPath| {
            let whole = roots[place.root].real.join(&place.rel);
            let found = links.iter().find(|(at, _)| Path::new(at) == whole);
            Ok(found.map(|(_, to)| PathBuf::from(to)))
        };
        match resolve_path(typed, &roots, link) {
            Ok(place) => Ok((place.root, place.rel.display().to_string())),
            Err(PathResolveError::OutsideRoots { by_link: true }) => Err("by link".to_owned()),
            Err(PathResolveError::OutsideRoots { by_link: false }) => Err("by words".to_owned()),
            Err(PathResolveError::Invalid(why)) => Err(why),
            Err(PathResolveError::Io(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_path_inside_may_be_written_in_any_way() {
        for (typed, root, rel) in [
            ("a/b", 0, "a/b"),
            ("./a/./b/../c", 0, "a/c"),
            (".", 0, ""),
            ("", 0, ""),
            ("../work/a", 0, "a"),
            ("/home/me/work/a", 0, "a"),
            ("/links/work/a", 0, "a"),
            ("/data/x", 1, "x"),
            ("../../../data/x", 1, "x"),
            ("sub/x", 2, "x"),
            ("$id.tsx", 0, "$id.tsx"),
            ("./~", 0, "~"),
            ("~tilde", 0, "~tilde"),
        ] {
            assert_eq!(leads(typed, &[]), Ok((root, rel.to_owned())), "{typed}");
        }
    }

    #[test]
    fn links_are_followed_as_far_as_they_stay_inside() {
        let links = [
            ("/home/me/work/alias", "a"),
            ("/home/me/work/whole", "/home/me/work/a/b"),
            ("/home/me/work/over", "/data/there"),
            ("/home/me/work/back", "../work/a"),
            ("/data/there/again", "../../home/me/work/alias/x"),
        ];
        for (typed, root, rel) in [
            ("alias/f", 0, "a/f"),
            ("whole/../f", 0, "a/f"),
            ("over/f", 1, "there/f"),
            ("back/f", 0, "a/f"),
            ("over/again/f", 0, "a/x/f"),
        ] {
            assert_eq!(leads(typed, &links), Ok((root, rel.to_owned())), "{typed}");
        }
    }

    #[test]
    fn who_leaves_is_told_how() {
        let links =
            [("/home/me/work/up", ".."), ("/home/me/work/etc", "/etc"), ("/home/me/work/loop", "loop")];
        for (typed, why) in [
            ("..", "by words"),
            ("../other", "by words"),
            ("a/../../other", "by words"),
            ("/etc/passwd", "by words"),
            ("/home/me/work-other/x", "by words"),
            ("up", "by link"),
            ("up/other", "by link"),
            ("etc/passwd", "by link"),
            ("loop", "it has too many symbolic links on its way"),
        ] {
            assert_eq!(leads(typed, &links), Err(why.to_owned()), "{typed}");
        }
        // The path leaves the root and comes back in.
        assert_eq!(leads("up/work/a", &links), Ok((0, "a".to_owned())));
    }

    #[test]
    fn what_only_a_shell_understands_is_sent_back() {
        let long = "n".repeat(256);
        let deep = "d/".repeat(3000);
        for typed in ["~", "~/x", "$HOME/x", "${HOME}", "%USERPROFILE%/x", "a\0b", &long, &deep] {
            assert!(
                matches!(resolve_path(typed, &roots(), |_| Ok(None)), Err(PathResolveError::Invalid(_))),
                "{typed}"
            );
        }
    }
}
