//! Where the servers are: installed on first use, below the target directory, by the versions in `package-lock.json`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory whose `node_modules` has them. The tests of the command use the same.
pub(crate) fn installed() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-servers");
        std::fs::create_dir_all(&dir).unwrap();
        // Two test processes may be at it at once.
        let lock = File::create(dir.join("lock")).unwrap();
        lock.lock().unwrap();
        let pinned = include_str!("package-lock.json");
        let done = dir.join("installed");
        if std::fs::read_to_string(&done).is_ok_and(|had| had == pinned) {
            return dir;
        }
        std::fs::write(dir.join("package.json"), include_str!("package.json")).unwrap();
        std::fs::write(dir.join("package-lock.json"), pinned).unwrap();
        let npm = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&dir)
            .output()
            .unwrap_or_else(|error| {
                panic!("npm: {error}. The tests of MCP run real servers and need Node.js and npm: `./test` installs them")
            });
        let said = String::from_utf8_lossy(&npm.stderr);
        assert!(
            npm.status.success(),
            "`npm ci` in {} could not install the MCP servers that these tests run: {said}",
            dir.display()
        );
        std::fs::write(done, pinned).unwrap();
        dir
    })
}
