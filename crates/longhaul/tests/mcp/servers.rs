//! The servers: installed on first use, below the target directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use longhaul::toolset::McpServer;

/// Where the servers are.
fn installed() -> &'static Path {
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
            .expect("npm: these tests need Node.js and npm, which ./test installs");
        assert!(npm.status.success(), "npm ci: {}", String::from_utf8_lossy(&npm.stderr));
        std::fs::write(done, pinned).unwrap();
        dir
    })
}

/// The file that Node runs.
pub(crate) fn script(server: &str) -> String {
    let file = installed().join(format!("node_modules/@modelcontextprotocol/server-{server}/dist/index.js"));
    file.to_str().unwrap().to_owned()
}

pub(crate) fn server<'a>(name: &str, args: impl IntoIterator<Item = &'a str>) -> McpServer {
    let args = std::iter::once(script(name)).chain(args.into_iter().map(str::to_owned));
    McpServer::command("node", args).named(name)
}
