//! Reads single keys without echo while a run is watched, and restores the terminal afterwards.
//!
//! Ctrl-C and Ctrl-Z stay signals. In the background, nothing is read or changed.

use std::io::{IsTerminal as _, PipeReader, PipeWriter};
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, read, tcgetpgrp};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::mpsc;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPress {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Backspace.
    Backspace,
    /// Escape on its own.
    Escape,
    /// Ctrl with a letter.
    Ctrl(char),
}

/// An event from the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyboardEvent {
    /// A key.
    Key(KeyPress),
    /// Ctrl-Z.
    Suspend,
}

/// Parses the bytes that a terminal sends into keys. Incomplete characters stay in `bytes`.
fn parse_keys(bytes: &mut Vec<u8>) -> Vec<KeyPress> {
    let mut keys = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            // Ignore escape sequences, such as arrow keys. A lone escape is the Escape key.
            0x1b => match bytes.get(at + 1) {
                None => {
                    keys.push(KeyPress::Escape);
                    at += 1;
                }
                Some(b'[' | b'O') => {
                    let end = bytes[at + 2..].iter().position(|b| (0x40..=0x7e).contains(b));
                    at = end.map_or(bytes.len(), |end| at + 3 + end);
                }
                Some(_) => at += 2,
            },
            b'\r' | b'\n' => {
                keys.push(KeyPress::Enter);
                at += 1;
            }
            0x7f | 0x08 => {
                keys.push(KeyPress::Backspace);
                at += 1;
            }
            1..=26 => {
                keys.push(KeyPress::Ctrl(char::from(b'a' + byte - 1)));
                at += 1;
            }
            _ => {
                let rest = &bytes[at..];
                let text = match std::str::from_utf8(rest) {
                    Ok(text) => text,
                    Err(error) if error.valid_up_to() > 0 => {
                        std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default()
                    }
                    // The rest of the character comes with the next read.
                    Err(error) if error.error_len().is_none() => break,
                    Err(error) => {
                        at += error.error_len().unwrap_or(1);
                        continue;
                    }
                };
                let Some(c) = text.chars().next() else { break };
                if !c.is_control() {
                    keys.push(KeyPress::Char(c));
                }
                at += c.len_utf8();
            }
        }
    }
    bytes.drain(..at);
    keys
}

/// How often a process in the background checks whether it is in the foreground again.
const FOREGROUND_POLL: std::time::Duration = std::time::Duration::from_millis(300);

/// The keyboard. Restores the terminal when dropped.
pub(crate) struct Keyboard {
    typed: mpsc::Receiver<KeyPress>,
    suspend: SignalStream,
    mode: TerminalMode,
    wake: Option<PipeWriter>,
    reader: Option<JoinHandle<()>>,
}

impl Keyboard {
    /// Starts to listen. Returns `None` if stdin is not a terminal or this process is in the background.
    pub(crate) fn listen() -> Option<Keyboard> {
        if !std::io::stdin().is_terminal() || !in_foreground() {
            return None;
        }
        let suspend = signal(SignalKind::from_raw(Signal::SIGTSTP as i32)).ok()?;
        let mode = TerminalMode::enter()?;
        mode.restore_on_panic();
        let (sender, typed) = mpsc::channel(64);
        let (asleep, wake) = std::io::pipe().ok()?;
        let reader =
            std::thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&sender, &asleep));
        Some(Keyboard { typed, suspend, mode, wake: Some(wake), reader: reader.ok() })
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> KeyboardEvent {
        tokio::select! {
            Some(key) = self.typed.recv() => KeyboardEvent::Key(key),
            Some(()) = self.suspend.recv() => KeyboardEvent::Suspend,
            else => std::future::pending().await,
        }
    }

    /// Restores the terminal and suspends this process; returns when it is continued.
    pub(crate) fn suspend(&self) {
        self.mode.restore();
        let _ = raise(Signal::SIGSTOP);
        if in_foreground() {
            self.mode.apply();
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.mode.restore();
        drop(self.wake.take());
        self.typed.close();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Returns whether this process is in the foreground. A background process is stopped when it reads the
/// terminal.
fn in_foreground() -> bool {
    tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == getpgrp())
}

fn read_keys(keys_to: &mpsc::Sender<KeyPress>, asleep: &PipeReader) {
    let input = std::io::stdin();
    let mut bytes = Vec::new();
    loop {
        let mut wait =
            [PollFd::new(input.as_fd(), PollFlags::POLLIN), PollFd::new(asleep.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wait, PollTimeout::NONE) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return,
        }
        if wait[1].any() == Some(true) {
            return;
        }
        if !in_foreground() {
            std::thread::sleep(FOREGROUND_POLL);
            continue;
        }
        let mut piece = [0; 256];
        match read(&input, &mut piece) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
        for key in parse_keys(&mut bytes) {
            if keys_to.blocking_send(key).is_err() {
                return;
            }
        }
    }
}

/// The original terminal mode, and the one for reading keys.
#[derive(Clone)]
struct TerminalMode {
    before: Termios,
    keys: Termios,
}

impl TerminalMode {
    fn enter() -> Option<TerminalMode> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut keys = before.clone();
        keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        let mode = TerminalMode { before, keys };
        mode.apply();
        Some(mode)
    }

    fn apply(&self) {
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.keys);
    }

    fn restore(&self) {
        // In the background this would change the terminal for another process, and stop ours.
        if in_foreground() {
            let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.before);
        }
    }

    fn restore_on_panic(&self) {
        // In a mutex, because `Termios` is not `Sync`.
        let mode = std::sync::Mutex::new(self.clone());
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Ok(mode) = mode.lock() {
                mode.restore();
            }
            next(info);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys() {
        let of = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let found = parse_keys(&mut bytes);
            (found, bytes.len())
        };
        assert_eq!(of(b"y\r"), (vec![KeyPress::Char('y'), KeyPress::Enter], 0));
        assert_eq!(
            of(b"\x02\x7f\x1b"),
            (vec![KeyPress::Ctrl('b'), KeyPress::Backspace, KeyPress::Escape], 0)
        );
        assert_eq!(of(b"\x1b[A\x1b[1;5Cx\x1bOP"), (vec![KeyPress::Char('x')], 0));
        assert_eq!(of("ü世".as_bytes()), (vec![KeyPress::Char('ü'), KeyPress::Char('世')], 0));
        assert_eq!(of(&"ü".as_bytes()[..1]), (vec![], 1));
        assert_eq!(of(b"\xffa\0"), (vec![KeyPress::Char('a')], 0));
    }
}
