//! The bell: somebody who has looked away is told that a run ended, or that it needs them.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::view::one_line;

/// How somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NotifyMethod {
    /// The terminal's bell
    Bell,
    /// A notification of the desktop, where the terminal makes one (OSC 9 and OSC 777)
    Desktop,
    /// Both
    All,
}

/// The bell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notifier {
    method: Option<NotifyMethod>,
    began: Instant,
    /// Who has waited for less than this is still there.
    after: Duration,
}

impl Notifier {
    /// A bell that rings for whatever comes after this time from now.
    pub(crate) fn new(how: Option<NotifyMethod>, after: Duration) -> Notifier {
        Notifier { method: how, began: Instant::now(), after }
    }

    /// One that never rings.
    pub(crate) fn disabled() -> Notifier {
        Notifier::new(None, Duration::MAX)
    }

    /// Says this to whoever has looked away.
    pub(crate) fn notify(&self, text: &str) {
        let Some(how) = self.method.filter(|_| self.began.elapsed() >= self.after) else { return };
        let mut out = std::io::stderr();
        if out.is_terminal() {
            // Who cannot be told cannot be told that either.
            let _ = out.write_all(escape_sequence(how, text).as_bytes()).and_then(|()| out.flush());
        }
    }
}

fn escape_sequence(how: NotifyMethod, text: &str) -> String {
    let text = one_line(text).replace(';', ",");
    let desktop = format!("\x1b]9;longhaul: {text}\x1b\\\x1b]777;notify;longhaul;{text}\x1b\\");
    match how {
        NotifyMethod::Bell => "\x07".to_owned(),
        NotifyMethod::Desktop => desktop,
        NotifyMethod::All => format!("{desktop}\x07"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_ends_no_sequence_of_its_own() {
        assert_eq!(escape_sequence(NotifyMethod::Bell, "x"), "\x07");
        let told = escape_sequence(NotifyMethod::All, "done\x1b\\;\x07 \n\u{9c}now");
        let text = "done␛\\,␇ ⟨U+009C⟩now";
        assert_eq!(told, format!("\x1b]9;longhaul: {text}\x1b\\\x1b]777;notify;longhaul;{text}\x1b\\\x07"));
    }
}
