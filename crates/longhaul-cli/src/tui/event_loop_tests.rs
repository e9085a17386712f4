//! Tests of the event loop on a paused clock: how often it draws, and what it reads.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use futures::channel::mpsc;
use longhaul::entry::{Entry, LiveTextKind, Order, Record, Submission, TeamRef};
use longhaul::id::{Attempt, Digest, Seq, TaskKey, WorkerId};
use longhaul::store::{
    Batch, ClaimRequest, ClaimedTask, Fence, HintStream, MemoryStore, Store, StoreFuture, StoredValue,
    TaskFilter,
};
use longhaul::task::TaskState;
use tokio::sync::{Notify, watch};

use super::*;
use crate::args::ProviderArgs;
use crate::data_dir::DataDir;

/// A store that counts reads.
struct CountingStore {
    store: MemoryStore,
    read: Mutex<ReadCounts>,
}

/// The number of reads.
#[derive(Debug, Default, Clone, PartialEq)]
struct ReadCounts {
    states: BTreeMap<TaskId, usize>,
    /// Entries read, by task.
    entries: BTreeMap<TaskId, usize>,
    lists: usize,
}

impl CountingStore {
    fn reads(&self) -> ReadCounts {
        std::mem::take(&mut self.read.lock().unwrap())
    }
}

impl Store for CountingStore {
    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        Box::pin(async move {
            let records = self.store.read(task, after, limit).await?;
            *self.read.lock().unwrap().entries.entry(task).or_default() += records.len();
            Ok(records)
        })
    }

    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        *self.read.lock().unwrap().states.entry(task).or_default() += 1;
        self.store.task_state(task)
    }

    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        self.read.lock().unwrap().lists += 1;
        self.store.list(filter)
    }

    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        self.store.append(batch)
    }
    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        self.store.find(typed)
    }
    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>> {
        self.store.claim(claim)
    }
    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        self.store.renew_lease(worker, lease)
    }
    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.store.retire_worker(worker)
    }
    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        self.store.abandoned_tasks()
    }
    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<longhaul::store::Lease>> {
        self.store.lease(worker)
    }

    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        self.store.put_blob(bytes)
    }
    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.store.blob(digest)
    }
    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        self.store.stored_value(name)
    }
    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        self.store.put_stored_value(name, after, bytes)
    }
    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        self.store.delete(tasks)
    }
    fn hints(&self) -> HintStream {
        self.store.hints()
    }
    fn now(&self) -> jiff::Timestamp {
        self.store.now()
    }
}

/// A frame that was drawn.
#[derive(Clone)]
struct FrameRecord {
    at: Instant,
    selected: Option<TaskId>,
    /// How many entries of all tasks it shows.
    entries: u64,
    /// The last entry of the open task that it shows.
    open: Seq,
}

/// A screen that records its frames.
#[derive(Clone, Default)]
struct RecordingScreen(watch::Sender<Vec<FrameRecord>>);

impl RecordingScreen {
    fn frames(&self) -> Vec<FrameRecord> {
        self.0.borrow().clone()
    }

    fn last(&self) -> FrameRecord {
        self.0.borrow().last().unwrap().clone()
    }

    /// Waits until the frames are like this.
    async fn until(&self, what: &str, is_so: impl Fn(&[FrameRecord]) -> bool) {
        let mut frames = self.0.subscribe();
        let so = frames.wait_for(|frames| is_so(frames));
        // The clock is paused: this takes no time.
        tokio::time::timeout(Duration::from_secs(600), so).await.expect(what).unwrap();
    }

    /// Waits for a frame like this.
    async fn until_last(&self, what: &str, is_so: impl Fn(&FrameRecord) -> bool) {
        self.until(what, |frames| frames.last().is_some_and(&is_so)).await;
    }
}

impl TuiScreen for RecordingScreen {
    fn size(&self) -> std::io::Result<(u16, u16)> {
        Ok((120, 40))
    }
    fn draw(&mut self, model: &TuiModel, _: bool) -> std::io::Result<()> {
        let frame = FrameRecord {
            at: Instant::now(),
            selected: model.selected,
            entries: model.tasks.values().map(|state| state.seq.0).sum(),
            open: model.detail.as_ref().map_or(Seq(0), |detail| detail.transcript.last),
        };
        self.0.send_modify(|frames| frames.push(frame));
        Ok(())
    }
    fn suspend(&mut self) {}
    fn resume(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    fn panic_notify(&self) -> Arc<Notify> {
        Arc::default()
    }
}

/// A thousand running tasks, and a TUI that shows them.
struct EventLoopFixture {
    store: Arc<CountingStore>,
    tasks: Vec<TaskId>,
    drawn: RecordingScreen,
    keys: mpsc::UnboundedSender<std::io::Result<Event>>,
    shown: tokio::task::JoinHandle<Result<(usize, Option<usize>), CliError>>,
}

impl EventLoopFixture {
    async fn of(many: usize) -> EventLoopFixture {
        let store = Arc::new(CountingStore { store: MemoryStore::new(), read: Mutex::default() });
        let team = TeamRef::Named("test".into());
        let mut tasks = Vec::new();
        for number in 0..many {
            let key = TaskKey::named(&number.to_string());
            let id = key.candidate_ids().next().unwrap();
            let submitted = Submission::root(id, key, Order::new("scout", "Look"), team.clone());
            let batch = Batch::one(id, Fence::New, vec![Entry::Submitted(Box::new(submitted))]);
            store.append(batch).await.unwrap();
            tasks.push(id);
        }
        let worker = WorkerId::random();
        store.renew_lease(worker.clone(), Duration::from_secs(6_000)).await.unwrap();
        let claim = ClaimRequest {
            worker,
            teams: vec![team],
            roots: None,
            fresh_only: false,
            except: vec![],
            max: many,
        };
        assert_eq!(store.claim(claim).await.unwrap().len(), many);

        let longhaul = Longhaul::client(store.clone() as Arc<dyn Store>).await.unwrap();
        let args = Arc::new(TuiArgs { team: None, trust: false, providers: ProviderArgs::default() });
        let effects =
            EffectRunner { longhaul, data_dir: DataDir::resolve(Some("unused".as_ref())).unwrap(), args };
        let model = TuiModel::new(Theme { color: true }, None, store.now());
        let drawn = RecordingScreen::default();
        let (keys, events) = mpsc::unbounded();
        let event_loop = TuiEventLoop::new(model, effects, drawn.clone());
        let shown = tokio::spawn(event_loop.run(events, TuiSignals::none()));
        let scene = EventLoopFixture { store, tasks, drawn, keys, shown };
        scene.drawn.until_last("the tasks, and the journal of one", |frame| frame.open == Seq(2)).await;
        scene
    }

    async fn says(&self, task: TaskId) {
        let said = Entry::Said { voice: LiveTextKind::Text, text: "word ".to_owned() };
        self.store.append(Batch::one(task, Fence::Attempt(Attempt(1)), vec![said])).await.unwrap();
    }

    fn press(&self, code: KeyCode) {
        self.keys.unbounded_send(Ok(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))).unwrap();
    }

    async fn leave(self) {
        self.press(KeyCode::Char('q'));
        self.press(KeyCode::Char('q'));
        let (open, drained) = self.shown.await.unwrap().unwrap();
        assert_eq!((open, drained), (self.tasks.len(), None));
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_events_a_second_are_thirty_pictures_a_second_at_most() {
    let scene = EventLoopFixture::of(1_000).await;
    let (begin, before) = (Instant::now(), scene.drawn.frames().len());
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    for number in 0..4_000 {
        pace.tick().await;
        scene.says(scene.tasks[number % 300]).await;
    }
    let frames = scene.drawn.frames();
    let (during, took) = (frames.len() - before, begin.elapsed().as_secs_f64());
    assert!(during > 200 && during as f64 <= took * 30.0 + 1.0, "{during} frames in {took} s");
    for pair in frames.windows(2) {
        assert!(pair[1].at - pair[0].at >= FRAME, "two frames within {:?}", pair[1].at - pair[0].at);
    }
    scene.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_picture_and_silence_is_a_second_each() {
    let scene = EventLoopFixture::of(50).await;
    let (before, had) = (scene.drawn.frames().len(), scene.drawn.last().entries);
    for number in 0..2_000 {
        scene.says(scene.tasks[1 + number % 49]).await;
    }
    scene.drawn.until_last("the burst", |frame| frame.entries == had + 2_000).await;
    let burst = scene.drawn.frames().len() - before;
    assert!((1..=4).contains(&burst), "{burst} frames for a burst");
    // Only times change: the clock ticks, and a poll finds nothing.
    let (before, begin) = (scene.drawn.frames().len(), Instant::now());
    scene.drawn.until("70 frames", |frames| frames.len() == before + 70).await;
    let silent = begin.elapsed().as_secs();
    assert!((45..=75).contains(&silent), "70 frames in {silent} silent seconds");
    scene.leave().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_has_one_task_looked_at_and_no_other() {
    let scene = EventLoopFixture::of(1_000).await;
    let FrameRecord { selected, entries, .. } = scene.drawn.last();
    let chosen = selected.unwrap();
    let other = *scene.tasks.iter().find(|task| **task != chosen).unwrap();
    scene.store.reads();
    scene.says(other).await;
    scene.drawn.until_last("the other task", |frame| frame.entries == entries + 1).await;
    let reads = scene.store.reads();
    let once = |task| BTreeMap::from([(task, 1)]);
    assert_eq!(reads, ReadCounts { states: once(other), ..ReadCounts::default() });
    // Of the open task, only new entries are read.
    scene.says(chosen).await;
    scene.drawn.until_last("the open task", |frame| frame.open == Seq(3)).await;
    let reads = scene.store.reads();
    assert_eq!(reads, ReadCounts { states: once(chosen), entries: once(chosen), lists: 0 });
    scene.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_answered_by_the_next_picture_whatever_else_happens() {
    let scene = EventLoopFixture::of(1_000).await;
    for round in 0..50 {
        for number in 0..20 {
            scene.says(scene.tasks[(round * 20 + number) % 1_000]).await;
        }
        let had = scene.drawn.last().selected;
        let pressed = Instant::now();
        scene.press(KeyCode::Down);
        scene.drawn.until_last("the next task", |frame| frame.selected != had).await;
        let moved = scene.drawn.last().at - pressed;
        // After an idle frame, a change is drawn at once.
        assert!(moved <= FRAME + Duration::from_millis(1), "{moved:?}");
    }
    scene.leave().await;
}
