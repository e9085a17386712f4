//! Sets up the terminal for the TUI, and restores it however the TUI ends.

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
use super::model::TuiModel;

/// Where frames are drawn.
pub(super) trait TuiScreen {
    /// Returns columns and rows.
    fn size(&self) -> std::io::Result<(u16, u16)>;
    /// Draws a frame: what has changed, or all of it if `anew`.
    fn draw(&mut self, model: &TuiModel, anew: bool) -> std::io::Result<()>;
    /// Restores the terminal for a while.
    fn suspend(&mut self);
    /// Sets the terminal up again.
    fn resume(&mut self) -> std::io::Result<()>;
    /// Notifies when something has panicked and the terminal was restored.
    fn panic_notify(&self) -> Arc<Notify>;
}

/// The terminal in TUI mode. Restored on drop and on panic.
pub(super) struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<FrameBuffer>>,
    buffer: FrameBuffer,
    guard: Arc<TerminalGuard>,
}

/// Whether the terminal is in TUI mode.
#[derive(Default)]
struct TerminalGuard {
    active: AtomicBool,
    panicked: Arc<Notify>,
}

impl TerminalScreen {
    /// Puts the terminal into TUI mode.
    pub(super) fn enter() -> std::io::Result<TerminalScreen> {
        let guard = Arc::<TerminalGuard>::default();
        let seen = guard.clone();
        let before = std::panic::take_hook();
        // Restore the terminal first, so that the panic message is readable.
        std::panic::set_hook(Box::new(move |panic| {
            if seen.restore() {
                seen.panicked.notify_one();
            }
            before(panic);
        }));
        let buffer = FrameBuffer::default();
        let terminal = Terminal::new(CrosstermBackend::new(buffer.clone()))?;
        let mut taken = TerminalScreen { terminal, buffer, guard };
        taken.resume()?;
        Ok(taken)
    }
}

impl TuiScreen for TerminalScreen {
    fn size(&self) -> std::io::Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height))
    }

    fn draw(&mut self, model: &TuiModel, anew: bool) -> std::io::Result<()> {
        if anew {
            // `Terminal::clear` would query the cursor position, and wait for the answer.
            queue!(self.buffer, Clear(ClearType::All))?;
            self.terminal = Terminal::new(CrosstermBackend::new(self.buffer.clone()))?;
        }
        self.terminal.draw(|frame| draw(model, frame))?;
        let drawn = self.buffer.take();
        if drawn.is_empty() || !self.guard.active.load(Ordering::SeqCst) {
            return Ok(());
        }
        write_frame(&mut stdout().lock(), &drawn)
    }

    fn suspend(&mut self) {
        self.guard.restore();
    }

    fn resume(&mut self) -> std::io::Result<()> {
        self.guard.restore();
        // From here on, restore it if anything fails.
        self.guard.active.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste)
    }

    fn panic_notify(&self) -> Arc<Notify> {
        self.guard.panicked.clone()
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        self.guard.restore();
    }
}

impl TerminalGuard {
    /// Restores the terminal once, and returns whether it was in TUI mode.
    fn restore(&self) -> bool {
        let ours = self.active.swap(false, Ordering::SeqCst);
        if ours {
            // If the terminal is gone, there is nothing to restore.
            let _ = write_restore_sequence(&mut stdout());
            let _ = disable_raw_mode();
        }
        ours
    }
}

fn write_restore_sequence(out: &mut Stdout) -> std::io::Result<()> {
    execute!(out, DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, cursor::Show)
}

/// Writes a frame in one piece with synchronized output, so that no partial frame is visible. Terminals that
/// do not support it ignore it.
fn write_frame(out: &mut impl Write, drawn: &[u8]) -> std::io::Result<()> {
    let mut whole = Vec::with_capacity(drawn.len() + 32);
    queue!(whole, BeginSynchronizedUpdate)?;
    whole.extend_from_slice(drawn);
    queue!(whole, EndSynchronizedUpdate)?;
    out.write_all(&whole)?;
    out.flush()
}

/// Buffers a frame until it is complete, so that nothing is written to a terminal that was restored.
#[derive(Clone, Default)]
struct FrameBuffer(Arc<Mutex<Vec<u8>>>);

impl FrameBuffer {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for FrameBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
