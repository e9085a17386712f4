//! What the system calls out to the screen: to end, to step aside, to come back.

#[cfg(unix)]
use crate::exit::Code;
use crate::exit::Trouble;
use crate::signals::Signals;

/// What was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// The program is to end, or its terminal is gone.
    End,
    /// Somebody wants the terminal: Ctrl-Z.
    Aside,
    /// It is ours again: `fg`.
    Back,
}

/// Who listens.
pub(super) struct Calls {
    end: Option<Signals>,
    #[cfg(unix)]
    aside: Option<[tokio::signal::unix::Signal; 2]>,
}

impl Calls {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Calls, Trouble> {
        #[cfg(unix)]
        let aside = {
            use nix::sys::signal::Signal::{SIGCONT, SIGTSTP};
            use tokio::signal::unix::{SignalKind, signal};
            let deaf = |error| Trouble::new(Code::Failed, format!("signals cannot be received: {error}"));
            let listen = |kind: nix::sys::signal::Signal| signal(SignalKind::from_raw(kind as i32));
            Some([listen(SIGTSTP).map_err(deaf)?, listen(SIGCONT).map_err(deaf)?])
        };
        Ok(Calls {
            end: Some(Signals::listen()?),
            #[cfg(unix)]
            aside,
        })
    }

    /// Nobody listens.
    #[cfg(test)]
    pub(super) fn none() -> Calls {
        Calls {
            end: None,
            #[cfg(unix)]
            aside: None,
        }
    }

    /// The next call.
    pub(super) async fn next(&mut self) -> Call {
        let end = async {
            match &mut self.end {
                Some(signals) => signals.next().await,
                None => std::future::pending().await,
            }
            Call::End
        };
        #[cfg(unix)]
        let aside = async {
            let Some([stop, back]) = &mut self.aside else { return std::future::pending().await };
            tokio::select! {
                biased;
                Some(()) = back.recv() => Call::Back,
                Some(()) = stop.recv() => Call::Aside,
                else => std::future::pending().await,
            }
        };
        #[cfg(not(unix))]
        let aside = std::future::pending();
        tokio::select! {
            biased;
            call = end => call,
            call = aside => call,
        }
    }
}

/// Whether a shell has made a job of us: where none has, nobody could bring us back.
#[cfg(unix)]
pub(super) fn is_job() -> bool {
    use nix::unistd::{getpgrp, getsid};
    getsid(None).is_ok_and(|session| session != getpgrp())
}

#[cfg(not(unix))]
pub(super) fn is_job() -> bool {
    false
}

/// Asks all of this job to step aside, as a terminal does that is not raw: who started us (`make`, `time`) has to, too.
pub(super) fn call_aside() {
    #[cfg(unix)]
    {
        use nix::sys::signal::{Signal, kill};
        let _ = kill(nix::unistd::Pid::from_raw(0), Signal::SIGTSTP);
    }
}

/// Stops this process until somebody has it go on.
pub(super) fn stop() {
    #[cfg(unix)]
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
}
