//! The directories of version control systems, in which tools must not write.

use std::ffi::OsStr;
use std::path::Path;

/// Returns the part of a path, if any, that names a directory in which version control keeps files that it
/// executes. Recognizes other spellings that some file systems accept: other case, invisible characters,
/// short DOS names.
pub(super) fn find_vcs_dir(rel: &Path) -> Option<&OsStr> {
    rel.iter().find(|name| {
        let plain: String = name.to_string_lossy().chars().filter(|c| !is_ignored(*c)).collect();
        let plain = plain.trim_end_matches(['.', ' ']).to_lowercase();
        [".git", ".hg", "git~1", "hg~1"].contains(&plain.as_str())
    })
}

/// Characters that HFS+ ignores when it compares names.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_names_are_found_in_any_case() {
        assert!(find_vcs_dir(Path::new("a/.git/hooks/x")).is_some());
        for name in [".GIT", ".git", "a/.git", ".g\u{200c}it", ".git.", "GIT~1", ".hg/hgrc"] {
            assert!(find_vcs_dir(Path::new(name)).is_some(), "{name}");
        }
        assert!(find_vcs_dir(Path::new(".github/x.git")).is_none());
    }
}
