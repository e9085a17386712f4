//! The terminal while the screen has it, and how it is given back however that ends.

use std::io::{Stdout, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::Notify;

use super::draw::draw;
use super::model::Model;

/// What pictures are shown on.
pub(super) trait Stage {
    /// How many columns and rows there are.
    fn size(&self) -> std::io::Result<(u16, u16)>;
    /// Shows a picture: what has changed since the last, or all of it.
    fn show(&mut self, model: &Model, anew: bool) -> std::io::Result<()>;
    /// Leaves it to others for a while.
    fn leave(&mut self);
    /// Takes it again.
    fn come_back(&mut self) -> std::io::Result<()>;
    /// Rings when something has panicked, and the terminal was given back for that.
    fn fault(&self) -> Arc<Notify>;
}

/// The terminal, taken. It is given back when this is dropped, or when anything panics.
pub(super) struct Taken {
    terminal: Terminal<CrosstermBackend<Pen>>,
    pen: Pen,
    hold: Arc<Hold>,
}

/// Whether it is ours.
#[derive(Default)]
struct Hold {
    ours: AtomicBool,
    fault: Arc<Notify>,
}

impl Taken {
    /// Takes the terminal.
    pub(super) fn take() -> std::io::Result<Taken> {
        let hold = Arc::<Hold>::default();
        let seen = hold.clone();
        let before = std::panic::take_hook();
        // What a panic says is to be read.
        std::panic::set_hook(Box::new(move |panic| {
            if seen.give_back() {
                seen.fault.notify_one();
            }
            before(panic);
        }));
        let pen = Pen::default();
        let terminal = Terminal::new(CrosstermBackend::new(pen.clone()))?;
        let mut taken = Taken { terminal, pen, hold };
        taken.come_back()?;
        Ok(taken)
    }
}

impl Stage for Taken {
    fn size(&self) -> std::io::Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height))
    }

    fn show(&mut self, model: &Model, anew: bool) -> std::io::Result<()> {
        if anew {
            // (`Terminal::clear` would ask the terminal where its cursor is, and wait for the answer.)
            queue!(self.pen, Clear(ClearType::All))?;
            self.terminal = Terminal::new(CrosstermBackend::new(self.pen.clone()))?;
        }
        self.terminal.draw(|frame| draw(model, frame))?;
        let drawn = self.pen.take();
        if drawn.is_empty() || !self.hold.ours.load(Ordering::SeqCst) {
            return Ok(());
        }
        put(&mut stdout().lock(), &drawn)
    }

    fn leave(&mut self) {
        self.hold.give_back();
    }

    fn come_back(&mut self) -> std::io::Result<()> {
        self.hold.give_back();
        // From here on it is given back if anything fails.
        self.hold.ours.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste)
    }

    fn fault(&self) -> Arc<Notify> {
        self.hold.fault.clone()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.hold.give_back();
    }
}

impl Hold {
    /// Gives it back, once; whether it was ours.
    fn give_back(&self) -> bool {
        let ours = self.ours.swap(false, Ordering::SeqCst);
        if ours {
            // Whoever is gone does not need it back.
            let _ = given_back(&mut stdout());
            let _ = disable_raw_mode();
        }
        ours
    }
}

fn given_back(out: &mut Stdout) -> std::io::Result<()> {
    execute!(out, DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, cursor::Show)
}

/// A picture in one piece, so that nobody sees half of it; terminals that do not know this ignore it.
fn put(out: &mut impl Write, drawn: &[u8]) -> std::io::Result<()> {
    let mut whole = Vec::with_capacity(drawn.len() + 32);
    queue!(whole, BeginSynchronizedUpdate)?;
    whole.extend_from_slice(drawn);
    queue!(whole, EndSynchronizedUpdate)?;
    out.write_all(&whole)?;
    out.flush()
}

/// What a picture is written with: it is kept until it is whole, and never goes to a terminal that is not ours.
#[derive(Clone, Default)]
struct Pen(Arc<Mutex<Vec<u8>>>);

impl Pen {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Pen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
