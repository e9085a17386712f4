//! The bell: somebody who has looked away is told that a run ended, or that it needs them.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::view::one_line;

/// How somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum How {
    /// The terminal's bell
    Bell,
    /// A notification of the desktop, where the terminal makes one (OSC 9 and OSC 777)
    Desktop,
    /// Both
    All,
}

/// The bell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bell {
    how: Option<How>,
    began: Instant,
    /// Who has waited for less than this is still there.
    after: Duration,
}

impl Bell {
    /// A bell that rings for whatever comes after this time from now.
    pub(crate) fn new(how: Option<How>, after: Duration) -> Bell {
        Bell { how, began: Instant::now(), after }
    }

    /// One that never rings.
    pub(crate) fn none() -> Bell {
        Bell::new(None, Duration::MAX)
    }

    /// Says this to whoever has looked away.
    pub(crate) fn ring(&self, text: &str) {
        let Some(how) = self.how.filter(|_| self.began.elapsed() >= self.after) else { return };
        let mut out = std::io::stderr();
        if out.is_terminal() {
            // Who cannot be told cannot be told that either.
            let _ = out.write_all(sequence(how, text).as_bytes()).and_then(|()| out.flush());
        }
    }
}

fn sequence(how: How, text: &str) -> String {
    let text = one_line(text).replace(';', ",");
    let desktop = format!("\x1b]9;longhaul: {text}\x1b\\\x1b]777;notify;longhaul;{text}\x1b\\");
    match how {
        How::Bell => "\x07".to_owned(),
        How::Desktop => desktop,
        How::All => format!("{desktop}\x07"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_ends_no_sequence_of_its_own() {
        assert_eq!(sequence(How::Bell, "x"), "\x07");
        let told = sequence(How::All, "done\x1b\\;\x07 \n\u{9c}now");
        let text = "done␛\\,␇ ⟨U+009C⟩now";
        assert_eq!(told, format!("\x1b]9;longhaul: {text}\x1b\\\x1b]777;notify;longhaul;{text}\x1b\\\x07"));
    }
}
