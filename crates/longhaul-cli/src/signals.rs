//! Ctrl-C, and whatever else asks a program to end.

#[cfg(unix)]
use std::time::{Duration, Instant};

use crate::exit::CliError;

/// How long after a signal the same one again is the same wish: `timeout` sends two, one to the program and one to its
/// group. Ctrl-C is typed, and always meant.
#[cfg(unix)]
const ECHO: Duration = Duration::from_millis(100);

/// Where Ctrl-C is among the signals.
#[cfg(unix)]
const CTRL_C: usize = 0;

/// The signals.
pub(crate) struct ExitSignals {
    #[cfg(unix)]
    all: Vec<tokio::signal::unix::Signal>,
    /// Which was the last, and when it came.
    #[cfg(unix)]
    last: Option<(usize, Instant)>,
}

impl ExitSignals {
    /// Listens from now on.
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<ExitSignals, CliError> {
        use tokio::signal::unix::{SignalKind, signal};
        let deaf = |error| {
            CliError::new(crate::exit::CliExitCode::Failed, format!("signals cannot be received: {error}"))
        };
        // A terminal that is closed hangs up; Ctrl-\ quits. Both leave the tasks as Ctrl-C does.
        let kinds =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let all = kinds.into_iter().map(|kind| signal(kind).map_err(deaf)).collect::<Result<_, _>>()?;
        Ok(ExitSignals { all, last: None })
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<ExitSignals, CliError> {
        Ok(ExitSignals {})
    }

    /// Returns when one comes.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        loop {
            let heard = self.all.iter_mut().map(|signal| Box::pin(signal.recv()));
            let (heard, which, _) = futures::future::select_all(heard).await;
            if heard.is_none() {
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

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
