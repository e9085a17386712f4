//! Descendants of a process, and processes that carry a number, as Linux reports them.

use std::collections::HashMap;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    id: i32,
    parent: i32,
    /// Whether it is a zombie: it has ended, and its parent has not reaped it yet.
    pub(super) dead: bool,
}

impl ProcessInfo {
    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.id)
    }
}

/// All current processes.
fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|id| *id > 1)
}

/// The children of a process, their children, and so on.
pub(super) fn descendants(of: u32) -> Vec<ProcessInfo> {
    let stat = |id: i32| parsed(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?);
    let mut children: HashMap<i32, Vec<ProcessInfo>> = HashMap::new();
    for process in all().filter_map(stat) {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut ahead = vec![i32::try_from(of).unwrap_or(0)];
    while let Some(parent) = ahead.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            ahead.push(process.id);
            found.push(process);
        }
    }
    found
}

/// Parses a line of `/proc/N/stat`. The name in it may contain anything, and ends with the last parenthesis.
fn parsed(id: i32, stat: &str) -> Option<ProcessInfo> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    Some(ProcessInfo { id, parent: words.next()?.parse().ok()?, dead: matches!(state, "Z" | "X") })
}

/// Sends SIGKILL to all processes that have this number as their limit of file locks. Returns how many there
/// were.
pub(super) fn kill_marked(limit: u64) -> usize {
    let number = limit.to_string();
    let marked = all().filter(|id| {
        let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks")).unwrap_or_default();
        line.split_whitespace().any(|word| word == number)
    });
    marked.filter(|id| kill(Pid::from_raw(*id), Signal::SIGKILL).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_anything() {
        let process = parsed(7, "7 (a) S 1 (b)) Z 42 7 7 0").unwrap();
        assert_eq!(process, ProcessInfo { id: 7, parent: 42, dead: true });
        assert_eq!(parsed(7, "7 (x"), None);
    }

    #[test]
    fn children_of_children_are_found() {
        let mut sh = std::process::Command::new("sh");
        sh.args(["-c", "sleep 1000 & echo; wait"]);
        let mut child = sh.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
            .unwrap();
        let found = descendants(std::process::id());
        let sh = i32::try_from(child.id()).unwrap();
        let sleep = found.iter().find(|process| process.parent == sh).unwrap();
        kill(sleep.pid(), Signal::SIGKILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
