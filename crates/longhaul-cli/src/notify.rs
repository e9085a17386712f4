//! Notifies the user when a run has ended or needs input.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::view::one_line;

/// How to notify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NotifyMethod {
    /// The terminal's bell
    Bell,
    /// A desktop notification, if the terminal supports it (OSC 9 and OSC 777)
    Desktop,
    /// Both
    All,
}

/// Sends notifications.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notifier {
    method: Option<NotifyMethod>,
    began: Instant,
    /// Before this much time has passed, the user is assumed to be watching.
    after: Duration,
}

impl Notifier {
    /// Creates a notifier that stays silent until this much time has passed.
    pub(crate) fn new(method: Option<NotifyMethod>, after: Duration) -> Notifier {
        Notifier { method, began: Instant::now(), after }
    }

    /// Creates a notifier that never sends anything.
    pub(crate) fn disabled() -> Notifier {
        Notifier::new(None, Duration::MAX)
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, text: &str) {
        let Some(method) = self.method.filter(|_| self.began.elapsed() >= self.after) else { return };
        let mut out = std::io::stderr();
        if out.is_terminal() {
            // A failed notification cannot be reported anywhere.
            let _ = out.write_all(escape_sequence(method, text).as_bytes()).and_then(|()| out.flush());
        }
    }
}

fn escape_sequence(method: NotifyMethod, text: &str) -> String {
    let text = one_line(text).replace(';', ",");
    let desktop = format!("\x1b]9;longhaul: {text}\x1b\\\x1b]777;notify;longhaul;{text}\x1b\\");
    match method {
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
        let sequence = escape_sequence(NotifyMethod::All, "done\x1b\\;\x07 \n\u{9c}now");
        let text = "done␛\\,␇ ⟨U+009C⟩now";
        assert_eq!(
            sequence,
            format!("\x1b]9;longhaul: {text}\x1b\\\x1b]777;notify;longhaul;{text}\x1b\\\x07")
        );
    }
}
