//! Ctrl-C and the other signals that ask a program to exit.

use std::time::{Duration, Instant};

use crate::exit::CliError;

/// A repeat of the same signal within this time is ignored: `timeout` sends two, one to the program and one
/// to its group. A repeated Ctrl-C always counts, because a person typed it.
const ECHO: Duration = Duration::from_millis(100);

/// The index of Ctrl-C among the signals.
const CTRL_C: usize = 0;

/// Listens for exit signals.
pub(crate) struct ExitSignals {
    all: Vec<tokio::signal::unix::Signal>,
    /// The last signal, and when it came.
    last: Option<(usize, Instant)>,
}

impl ExitSignals {
    pub(crate) fn listen() -> Result<ExitSignals, CliError> {
        use tokio::signal::unix::{SignalKind, signal};
        let deaf = |error| {
            CliError::new(crate::exit::CliExitCode::Failed, format!("signals cannot be received: {error}"))
        };
        // A closed terminal sends SIGHUP, Ctrl-\ sends SIGQUIT. Both leave the tasks as Ctrl-C does.
        let kinds =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let all = kinds.into_iter().map(|kind| signal(kind).map_err(deaf)).collect::<Result<_, _>>()?;
        Ok(ExitSignals { all, last: None })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        loop {
            let received = self.all.iter_mut().map(|signal| Box::pin(signal.recv()));
            let (received, which, _) = futures::future::select_all(received).await;
            if received.is_none() {
                std::future::pending::<()>().await;
            }
            let now = Instant::now();
            let last = self.last.replace((which, now));
            let is_echo = last.is_some_and(|(last, at)| last == which && now - at < ECHO);
            if which == CTRL_C || !is_echo {
                return;
            }
        }
    }
}
