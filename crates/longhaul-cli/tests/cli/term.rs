//! A real terminal for tests: tmux, of a size that is known, with keys sent to it and its screen read.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::kit::TIMEOUT;

/// A terminal in which a command runs. It is gone when this is dropped, and the command with it.
pub(crate) struct Terminal {
    /// The name of a tmux server of its own.
    server: String,
}

/// What the terminal shows when its command has ended, with the exit code.
const ENDED: &str = "[ended with ";

impl Terminal {
    /// Runs a command (as [`Kit::command`](crate::kit::Kit::command) makes it) in a terminal of so many columns and rows.
    #[track_caller]
    pub(crate) fn run(command: &Command, columns: u16, rows: u16) -> Terminal {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = format!("longhaul-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let terminal = Terminal { server };
        let mut tmux = terminal.tmux();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => tmux.env(name, value),
                None => tmux.env_remove(name),
            };
        }
        if let Some(place) = command.get_current_dir() {
            tmux.current_dir(place);
        }
        // UTF-8 whatever the locale. The shell survives what ends the command, and keeps the screen as it was left.
        tmux.env("LC_ALL", "C.UTF-8").env_remove("TMUX");
        tmux.args(["-u", "-f", "/dev/null", "new-session", "-d"]);
        tmux.args(["-x", &columns.to_string(), "-y", &rows.to_string()]);
        let then = format!(r#"trap : INT TERM; "$@"; printf '\n{ENDED}%s]' "$?"; exec sleep 600"#);
        tmux.args(["sh", "-c", &then, "sh"]).arg(command.get_program()).args(command.get_args());
        let began = tmux.output().unwrap();
        assert!(began.status.success(), "{began:?}");
        terminal.told(&["set", "-g", "status", "off"]);
        // The line that tmux keeps for itself by default is the program's now.
        terminal.told(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
        terminal
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.server]);
        tmux
    }

    #[track_caller]
    fn told(&self, args: &[&str]) -> String {
        let done = self.tmux().args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Sends keys, by the names that tmux has for them: `Enter`, `C-c`, `Up`, `x`.
    #[track_caller]
    #[allow(dead_code, reason = "for whoever has keys")]
    pub(crate) fn keys(&self, keys: &[&str]) {
        self.told(&[&["send-keys"], keys].concat());
    }

    /// Types a text as it is.
    #[track_caller]
    #[allow(dead_code, reason = "for whoever has keys")]
    pub(crate) fn types(&self, text: &str) {
        self.told(&["send-keys", "-l", text]);
    }

    /// Makes the terminal larger or smaller.
    #[track_caller]
    #[allow(dead_code, reason = "for whoever draws again")]
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.told(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// What is on the screen, without colours and without what is empty at the ends of lines and at the bottom.
    #[track_caller]
    pub(crate) fn screen(&self) -> String {
        plain(&self.told(&["capture-pane", "-p"]))
    }

    /// The same, with the escape sequences that colour it.
    #[track_caller]
    pub(crate) fn colours(&self) -> String {
        plain(&self.told(&["capture-pane", "-p", "-e"]))
    }

    /// Waits for a screen that fits.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let screen = self.screen();
            if fits(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What tmux knows of the terminal, in its own words: `#{alternate_on}`.
    #[track_caller]
    pub(crate) fn state(&self, format: &str) -> String {
        self.told(&["display-message", "-p", format]).trim_end().to_owned()
    }

    /// Has all that the command writes from now on written there, too.
    #[track_caller]
    #[allow(dead_code, reason = "for whoever measures")]
    pub(crate) fn pipe(&self, to: &std::path::Path) {
        self.told(&["pipe-pane", "-O", &format!("exec cat > '{}'", to.display())]);
    }

    /// Waits until the command has ended: what it left on the screen, and its exit code.
    #[track_caller]
    pub(crate) fn end(&self) -> (String, i32) {
        let whole = |screen: &str| screen.rsplit_once(ENDED).is_some_and(|(_, code)| code.contains(']'));
        let screen = self.until("the end of the command", whole);
        let (left, code) = screen.rsplit_once(ENDED).unwrap();
        let code = code.split(']').next().and_then(|code| code.trim().parse().ok());
        (plain(left), code.unwrap_or_else(|| panic!("no exit code:\n{screen}")))
    }
}

fn plain(screen: &str) -> String {
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").output();
    }
}
