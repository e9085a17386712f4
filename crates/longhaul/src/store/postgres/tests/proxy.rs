//! A wire that misbehaves: passes bytes between a store and the server, and can stall, cut and heal; and can cut exactly
//! after a commit was passed on and before its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// A commit on the wire: a simple query.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Passes,
    /// Nothing gets through, and nobody is told.
    Stalls,
    /// Every connection is closed, and new ones are refused.
    Cut,
}

/// How the answer to a commit is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The server has done it.
    AfterItWasDone,
    /// The server has it, and may be doing it.
    WhileItIsDone,
    /// The server never gets it.
    BeforeItArrived,
}

pub(super) struct Proxy {
    pub(super) port: u16,
    state: Arc<State>,
    _accepts: AbortOnDropHandle<()>,
}

struct State {
    wire: watch::Sender<Wire>,
    /// How many commits are still to lose their answer, and how.
    losses: AtomicUsize,
    how: std::sync::Mutex<Loss>,
    lost: AtomicUsize,
}

impl Proxy {
    pub(super) async fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            wire: watch::Sender::new(Wire::Passes),
            losses: AtomicUsize::new(0),
            how: std::sync::Mutex::new(Loss::AfterItWasDone),
            lost: AtomicUsize::new(0),
        });
        let shared = state.clone();
        let accepts = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if *shared.wire.borrow() != Wire::Cut
                    && let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await
                {
                    connections.spawn(pass(client, server, shared.clone()));
                }
            }
        });
        Proxy { port, state, _accepts: AbortOnDropHandle::new(accepts) }
    }

    pub(super) fn set(&self, wire: Wire) {
        self.state.wire.send_replace(wire);
    }

    /// The next commit loses its answer.
    pub(super) fn lose_next(&self, how: Loss) {
        *self.state.how.lock().unwrap() = how;
        self.state.losses.store(1, Ordering::SeqCst);
    }

    /// How many commits have lost their answer.
    pub(super) fn lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (end, answered) = (CancellationToken::new(), CancellationToken::new());
    let swallow = CancellationToken::new();
    let mut wire = state.wire.subscribe();
    tokio::select! {
        () = upstream(from_client, to_server, &state, &swallow, &answered) => {}
        () = downstream(from_server, to_client, &state, &swallow, &answered) => {}
        _ = wire.wait_for(|wire| *wire == Wire::Cut) => {}
        () = end.cancelled() => {}
    }
}

async fn is_passing(state: &State) {
    let _ = state.wire.subscribe().wait_for(|wire| *wire == Wire::Passes).await;
}

async fn upstream(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    swallow: &CancellationToken,
    answered: &CancellationToken,
) {
    let mut buffer = vec![0; 1 << 16];
    let mut tail: Vec<u8> = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        is_passing(state).await;
        tail.extend_from_slice(&buffer[..read]);
        let commits = tail.windows(COMMIT.len()).any(|part| part == COMMIT);
        let loses = commits && state.losses.swap(0, Ordering::SeqCst) > 0;
        let how = *state.how.lock().unwrap();
        if loses && how == Loss::BeforeItArrived {
            state.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if loses {
            swallow.cancel();
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        if loses {
            if how == Loss::AfterItWasDone {
                answered.cancelled().await;
            }
            state.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        tail.drain(..tail.len().saturating_sub(COMMIT.len() - 1));
    }
}

async fn downstream(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    swallow: &CancellationToken,
    answered: &CancellationToken,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        is_passing(state).await;
        if swallow.is_cancelled() {
            // The answer to the commit is the last of all: `CommandComplete`, `ReadyForQuery`.
            if buffer[..read].windows(7).any(|part| part == b"COMMIT\0") {
                answered.cancel();
            }
            continue;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
