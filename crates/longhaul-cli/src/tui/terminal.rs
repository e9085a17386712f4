//! The terminal while the screen has it, and how it is given back however that ends.

use std::io::{Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// The terminal, taken. It is given back when this is dropped, or when anything panics.
pub(super) struct Taken {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    ours: Arc<AtomicBool>,
}

impl Taken {
    /// Takes the terminal.
    pub(super) fn take() -> std::io::Result<Taken> {
        let ours = Arc::new(AtomicBool::new(true));
        let seen = ours.clone();
        let before = std::panic::take_hook();
        // What a panic says is to be read.
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&seen);
            before(panic);
        }));
        // From here on it is given back if anything fails.
        let backend = CrosstermBackend::new(stdout());
        enable_raw_mode()?;
        let taken = Taken { terminal: Terminal::new(backend)?, ours };
        execute!(stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste)?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back(&self.ours);
    }
}

fn give_back(ours: &AtomicBool) {
    if ours.swap(false, Ordering::SeqCst) {
        // Whoever is gone does not need it back.
        let _ = execute!(
            stdout(),
            DisableBracketedPaste,
            DisableMouseCapture,
            LeaveAlternateScreen,
            cursor::Show
        );
        let _ = disable_raw_mode();
    }
}
