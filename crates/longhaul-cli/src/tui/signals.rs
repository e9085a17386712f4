//! The signals that the TUI handles: exit, suspend and resume.

use crate::exit::CliError;
use crate::exit::CliExitCode;
use crate::signals::ExitSignals;

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TuiSignal {
    /// The program should exit, or its terminal is gone.
    Exit,
    /// Ctrl-Z.
    Suspend,
    /// Continued by `fg`.
    Resume,
}

/// Listens for signals.
pub(super) struct TuiSignals {
    exit: Option<ExitSignals>,
    job_control: Option<[tokio::signal::unix::Signal; 2]>,
}

impl TuiSignals {
    pub(super) fn listen() -> Result<TuiSignals, CliError> {
        let job_control = {
            use nix::sys::signal::Signal::{SIGCONT, SIGTSTP};
            use tokio::signal::unix::{SignalKind, signal};
            let deaf =
                |error| CliError::new(CliExitCode::Failed, format!("signals cannot be received: {error}"));
            let listen = |kind: nix::sys::signal::Signal| signal(SignalKind::from_raw(kind as i32));
            Some([listen(SIGTSTP).map_err(deaf)?, listen(SIGCONT).map_err(deaf)?])
        };
        Ok(TuiSignals { exit: Some(ExitSignals::listen()?), job_control })
    }

    /// Listens to nothing.
    #[cfg(test)]
    pub(super) fn none() -> TuiSignals {
        TuiSignals { exit: None, job_control: None }
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> TuiSignal {
        let end = async {
            match &mut self.exit {
                Some(signals) => signals.next().await,
                None => std::future::pending().await,
            }
            TuiSignal::Exit
        };
        let job_control = async {
            let Some([stop, back]) = &mut self.job_control else { return std::future::pending().await };
            tokio::select! {
                biased;
                Some(()) = back.recv() => TuiSignal::Resume,
                Some(()) = stop.recv() => TuiSignal::Suspend,
                else => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            call = end => call,
            call = job_control => call,
        }
    }
}

/// Returns whether a shell controls us as a job. Without one, no one could resume us.
pub(super) fn is_job() -> bool {
    use nix::unistd::{getpgrp, getsid};
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// Suspends the whole job, as Ctrl-Z does in a terminal that is not raw: the programs that started us
/// (`make`, `time`) have to stop, too.
pub(super) fn suspend_job() {
    use nix::sys::signal::{Signal, kill};
    let _ = kill(nix::unistd::Pid::from_raw(0), Signal::SIGTSTP);
}

/// Stops this process until it is continued.
pub(super) fn stop_process() {
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
}
