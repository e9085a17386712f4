//! Exchanges hints with other processes, on a connection of its own: see `listen.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use tokio::sync::{broadcast, mpsc};
use tokio_postgres::{Error, Notification};

use super::connect::{Server, ServerConnection};
use super::feed::Horizon;
use super::lane::random_token;
use super::listen::{ExchangeState, Signal};
use super::reader::ReadConnections;
use crate::id::TaskId;
use crate::store::{EntryKinds, Hint, LiveReaders};

/// The least time between two notifications.
const PACE: Duration = Duration::from_millis(20);
/// How often the feed is read where nobody can listen.
const LOOK: Duration = Duration::from_secs(1);
/// How long the first notification, to oneself, is waited for.
const TRIAL: Duration = Duration::from_secs(2);
/// How often it is said again that a tree is shown, and how long that holds.
const WATCHED_AGAIN: Duration = Duration::from_secs(5);
const WATCHED: Duration = Duration::from_secs(12);
/// The longest text that is sent at once; the server allows 8000 bytes.
const LONGEST: usize = 7800;
/// How many hints are sent at once; beyond that, everybody has to look.
const MANY: usize = 1000;

/// The channel of a store: a name that is short enough, whatever the schema is called.
fn channel(server: &Server) -> String {
    format!("longhaul_{}", &crate::id::Digest::of_bytes(server.options().schema.as_bytes()).as_str()[..16])
}

/// The background task.
pub(super) struct Exchange {
    /// Tells processes apart.
    sender: String,
    channel: String,
    server: Arc<Server>,
    readers: Arc<ReadConnections>,
    local: broadcast::Sender<Hint>,
    received: mpsc::UnboundedReceiver<Signal>,
    live: LiveReaders,
    state: Arc<ExchangeState>,
    /// Whether anyone wants to hear of others.
    wanted: bool,
    /// Whether the feed is read, because nobody can listen.
    looks: bool,
    pending: IndexMap<TaskId, (TaskId, EntryKinds)>,
    lagged: bool,
    watched_here: HashMap<TaskId, usize>,
    /// By sender and tree, with when it was last said.
    watched_elsewhere: HashMap<(String, TaskId), Instant>,
    /// Up to where changes were looked for; nothing if they have to be looked for everywhere.
    seen: Option<Horizon>,
}

/// A connection that sends, and listens if `heard` is used.
struct Line {
    connection: ServerConnection,
    heard: mpsc::UnboundedReceiver<Notification>,
    listens: bool,
    /// When it has to have heard itself.
    trial: Option<Instant>,
}

enum ExchangeEvent {
    Signal(Option<Signal>),
    Heard(Option<Notification>),
    Tick,
}

impl Exchange {
    pub(super) fn new(
        server: Arc<Server>,
        readers: Arc<ReadConnections>,
        seen: Horizon,
        local: broadcast::Sender<Hint>,
        received: mpsc::UnboundedReceiver<Signal>,
        live: LiveReaders,
        state: Arc<ExchangeState>,
    ) -> Exchange {
        Exchange {
            sender: format!("{:016x}", random_token()),
            channel: channel(&server),
            server,
            readers,
            local,
            received,
            live,
            state,
            wanted: false,
            looks: false,
            pending: IndexMap::new(),
            lagged: false,
            watched_here: HashMap::new(),
            watched_elsewhere: HashMap::new(),
            seen: Some(seen),
        }
    }

    pub(super) async fn run(mut self) {
        let mut line: Option<Line> = None;
        let mut next_try = Instant::now();
        let mut pause = Duration::from_millis(100);
        let (mut last_sent, mut last_look, mut last_watch) =
            (None::<Instant>, Instant::now(), Instant::now());
        loop {
            let event = self.next(line.as_mut()).await;
            match event {
                ExchangeEvent::Signal(None | Some(Signal::Close)) => {
                    if let Some(line) = &line {
                        let _ = tokio::time::timeout(TRIAL, self.send(line)).await;
                    }
                    return;
                }
                ExchangeEvent::Signal(Some(signal)) => self.take(signal),
                ExchangeEvent::Heard(Some(note)) => self.hear(note.payload(), line.as_mut()),
                ExchangeEvent::Heard(None) => {
                    line = None;
                    self.state.hears.store(false, Ordering::Relaxed);
                }
                ExchangeEvent::Tick => {}
            }
            while let Ok(signal) = self.received.try_recv() {
                if matches!(signal, Signal::Close) {
                    if let Some(line) = &line {
                        let _ = tokio::time::timeout(TRIAL, self.send(line)).await;
                    }
                    return;
                }
                self.take(signal);
            }
            if line.as_ref().is_some_and(|line| line.connection.is_closed()) {
                line = None;
                self.state.hears.store(false, Ordering::Relaxed);
            }
            let listens = self.wanted && !self.looks && !self.server.options().pooled;
            let has_news = self.lagged || !self.pending.is_empty() || !self.watched_here.is_empty();
            let needs_line = has_news || listens;
            if (line.is_none() || listens && line.as_ref().is_some_and(|line| !line.listens))
                && needs_line
                && Instant::now() >= next_try
            {
                match self.connect(listens).await {
                    Ok(new) => {
                        if listens {
                            // Whatever fell between: precisely for the first time, and by everybody after a loss.
                            self.look().await;
                            self.seen = None;
                        }
                        line = Some(new);
                        pause = Duration::from_millis(100);
                    }
                    Err(error) => {
                        tracing::debug!(error = %self.server.name.server_error(&error), "hints cannot be sent");
                        next_try = Instant::now() + pause;
                        pause = (pause * 2).min(Duration::from_secs(2));
                        // What could not be told has to be looked for.
                        self.lagged |= !self.pending.is_empty();
                        self.pending.clear();
                    }
                }
            }
            if let Some(current) = &mut line
                && current.trial.is_some_and(|until| Instant::now() > until)
            {
                tracing::warn!(
                    "the server's notifications do not arrive (a pooler?): changes are looked for once a second"
                );
                current.trial = None;
                self.looks = true;
                self.state.hears.store(false, Ordering::Relaxed);
            }
            if let Some(current) = &line
                && (self.lagged || !self.pending.is_empty())
                && last_sent.is_none_or(|at| at.elapsed() >= PACE)
            {
                last_sent = Some(Instant::now());
                if self.send(current).await.is_err() {
                    line = None;
                }
            }
            if let Some(current) = &line
                && !self.watched_here.is_empty()
                && last_watch.elapsed() >= WATCHED_AGAIN
            {
                last_watch = Instant::now();
                self.say_watched(current).await;
            }
            self.forget_watchers();
            let polls = self.wanted && (self.looks || self.server.options().pooled);
            if polls && last_look.elapsed() >= LOOK {
                last_look = Instant::now();
                self.look().await;
            }
        }
    }

    /// Waits for something to do.
    async fn next(&mut self, line: Option<&mut Line>) -> ExchangeEvent {
        let busy = self.lagged || !self.pending.is_empty();
        let waits = line.as_ref().is_some_and(|line| line.trial.is_some());
        let tick = match (busy, waits) {
            (true, _) => PACE,
            (false, true) => Duration::from_millis(100),
            _ => LOOK,
        };
        let idle = !self.wanted && self.watched_here.is_empty() && !busy;
        let heard = async {
            match line {
                Some(line) => line.heard.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            signal = self.received.recv() => ExchangeEvent::Signal(signal),
            note = heard => ExchangeEvent::Heard(note),
            () = tokio::time::sleep(tick), if !idle => ExchangeEvent::Tick,
        }
    }

    fn take(&mut self, signal: Signal) {
        match signal {
            Signal::Written(hints) => {
                for hint in hints {
                    match hint {
                        Hint::Lagged => self.lagged = true,
                        Hint::Task { task, root, kinds } => {
                            let known = self.pending.entry(task).or_insert((root, EntryKinds::default()));
                            known.1 = known.1.union(kinds);
                        }
                    }
                }
                if self.pending.len() > MANY {
                    self.pending.clear();
                    self.lagged = true;
                }
            }
            Signal::Listen => self.wanted = true,
            Signal::Watch(root) => {
                let count = self.watched_here.entry(root).or_default();
                *count += 1;
                if *count == 1 {
                    self.pending.entry(root).or_insert((root, EntryKinds::default()));
                }
            }
            Signal::Unwatch(root) => {
                if let Some(count) = self.watched_here.get_mut(&root) {
                    *count -= 1;
                    if *count == 0 {
                        self.watched_here.remove(&root);
                    }
                }
            }
            Signal::Close => {}
        }
    }

    async fn connect(&self, listens: bool) -> Result<Line, Error> {
        let (sender, heard) = mpsc::unbounded_channel();
        let connection = self.server.connect_listening(Some(sender)).await?;
        if !self.server.options().pooled {
            connection.batch("SET synchronous_commit = off").await?;
        }
        let mut trial = None;
        if listens {
            connection.batch(&format!("LISTEN \"{}\"", self.channel)).await?;
            connection.notify(&self.channel, &format!("{} ping", self.sender)).await?;
            trial = Some(Instant::now() + TRIAL);
        }
        Ok(Line { connection, heard, listens, trial })
    }

    /// Sends what is collected.
    async fn send(&mut self, line: &Line) -> Result<(), Error> {
        let mut texts = Vec::new();
        if std::mem::take(&mut self.lagged) {
            self.pending.clear();
            texts.push(format!("{} lagged", self.sender));
        }
        let mut text = String::new();
        for (task, (root, kinds)) in self.pending.drain(..) {
            // Nothing was written: it is shown here from now on.
            let word = match kinds == EntryKinds::default() {
                true => format!(" watch:{root}"),
                false => format!(" {task}:{root}:{:x}", kinds.0),
            };
            if self.sender.len() + text.len() + word.len() > LONGEST {
                texts.push(format!("{}{text}", self.sender));
                text.clear();
            }
            text.push_str(&word);
        }
        if !text.is_empty() {
            texts.push(format!("{}{text}", self.sender));
        }
        for text in texts {
            line.connection.notify(&self.channel, &text).await?;
        }
        Ok(())
    }

    async fn say_watched(&self, line: &Line) {
        for roots in self.watched_here.keys().collect::<Vec<_>>().chunks(200) {
            let words: String = roots.iter().map(|root| format!(" watch:{root}")).collect();
            let text = format!("{}{words}", self.sender);
            if line.connection.notify(&self.channel, &text).await.is_err() {
                return;
            }
        }
    }

    /// Takes what another process has sent.
    fn hear(&mut self, text: &str, line: Option<&mut Line>) {
        let mut words = text.split(' ');
        let Some(sender) = words.next() else { return };
        if sender == self.sender {
            if let Some(line) = line {
                line.trial = None;
                self.state.hears.store(true, Ordering::Relaxed);
            }
            return;
        }
        for word in words {
            let parts: Vec<&str> = word.split(':').collect();
            match parts[..] {
                ["lagged"] => drop(self.local.send(Hint::Lagged)),
                ["watch", root] => {
                    if let Ok(root) = root.parse() {
                        self.watched_elsewhere.insert((sender.to_owned(), root), Instant::now());
                        self.tell_watched();
                    }
                }
                [task, root, kinds] => {
                    let kinds = u32::from_str_radix(kinds, 16).map(EntryKinds);
                    if let (Ok(task), Ok(root), Ok(kinds)) = (task.parse(), root.parse(), kinds) {
                        let _ = self.local.send(Hint::Task { task, root, kinds });
                    }
                }
                _ => {}
            }
        }
    }

    fn forget_watchers(&mut self) {
        let before = self.watched_elsewhere.len();
        self.watched_elsewhere.retain(|_, said| said.elapsed() < WATCHED);
        if self.watched_elsewhere.len() != before {
            self.tell_watched();
        }
    }

    fn tell_watched(&self) {
        let roots: HashSet<TaskId> = self.watched_elsewhere.keys().map(|(_, root)| *root).collect();
        self.live.set_elsewhere(roots);
    }

    /// Reads what was written since the last look. Own writes are among it; a hint more does no harm.
    async fn look(&mut self) {
        let Ok(now) = self.readers.horizon_now().await else { return };
        let Some(before) = self.seen.replace(now) else {
            // Nobody knows what was before.
            let _ = self.local.send(Hint::Lagged);
            return;
        };
        if now.deletion_since(before).is_some_and(|place| !self.state.is_own_deletion(place)) {
            let _ = self.local.send(Hint::Lagged);
        }
        match self.readers.changed(before, now).await {
            Ok(Some(changes)) if changes.len() <= MANY => {
                for (task, root, kinds) in changes {
                    let kinds = EntryKinds(u32::try_from(kinds).unwrap_or(u32::MAX));
                    if let (Ok(task), Ok(root)) = (task.parse(), root.parse()) {
                        let _ = self.local.send(Hint::Task { task, root, kinds });
                    }
                }
            }
            _ => drop(self.local.send(Hint::Lagged)),
        }
    }
}
