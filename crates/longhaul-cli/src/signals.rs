//! Ctrl-C, and whatever else asks a program to end.

use crate::exit::Trouble;

/// The signals.
pub(crate) struct Signals {
    #[cfg(unix)]
    all: Vec<tokio::signal::unix::Signal>,
}

impl Signals {
    /// Listens from now on.
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Signals, Trouble> {
        use tokio::signal::unix::{SignalKind, signal};
        let deaf =
            |error| Trouble::new(crate::exit::Code::Failed, format!("signals cannot be received: {error}"));
        // A terminal that is closed hangs up; Ctrl-\ quits. Both leave the tasks as Ctrl-C does.
        let kinds =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let all = kinds.into_iter().map(|kind| signal(kind).map_err(deaf)).collect::<Result<_, _>>()?;
        Ok(Signals { all })
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Signals, Trouble> {
        Ok(Signals {})
    }

    /// Returns when one comes.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        let heard = self.all.iter_mut().map(|signal| Box::pin(signal.recv()));
        if futures::future::select_all(heard).await.0.is_none() {
            std::future::pending::<()>().await;
        }
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
