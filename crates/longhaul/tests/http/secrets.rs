use std::io::Write;
use std::sync::{Arc, Mutex};

use longhaul::model::http::{Cassette, Http};
use longhaul::store::Sqlite;
use longhaul::{Longhaul, Team};
use tracing_subscriber::fmt::MakeWriter;

use crate::server::{Act, Server, says};
use crate::stage::{MARK, assert_said, end, model, options, solo, submit};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;
    fn make_writer(&self) -> Log {
        self.clone()
    }
}

/// A session with a marked key, which the provider throws back in every way it can: the mark is nowhere to be found.
#[test]
fn a_key_is_in_no_journal_error_log_or_recording() {
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let place = tempfile::tempdir().unwrap();
    let tape = place.path().join("tape.jsonl");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let errors = runtime.block_on(async {
        let server = Server::start(|asked| match (asked.order().contains("fail"), asked.number) {
            (true, _) => {
                let said =
                    format!(r#"{{"error":{{"message":"Incorrect API key provided: {MARK}. Get another"}}}}"#);
                Act::Refuse(401, vec![("x-ratelimit-note", MARK.to_owned())], said)
            }
            (_, 0) => Act::Refuse(500, Vec::new(), format!("no backend for Bearer {MARK}")),
            (_, 1) => Act::Hangup,
            (_, 2) => {
                let (one, two) = MARK.split_at(9);
                Act::Cut(vec![
                    format!("data: {{\"error\":{{\"message\":\"key {one}"),
                    format!("{two}\"}}}}\n\n"),
                ])
            }
            _ => Act::Stream(says("Safe.")),
        })
        .await;
        let http = Http::recording(options(), Cassette::create(&tape).unwrap()).unwrap();
        let model = model(&http, &format!("{}?token={MARK}", server.url()));
        let team = Team::new(solo(&model).build().unwrap()).unwrap();
        let store = Sqlite::open(place.path().join("longhaul.db")).unwrap();
        let longhaul = Longhaul::builder(team).store(store).start().await.unwrap();
        let good = submit(&longhaul, "go").await;
        assert_said(&end(&longhaul, good).await, "Safe.");
        let bad = submit(&longhaul, &format!("fail, and mind the key {}", "x")).await;
        let failed = end(&longhaul, bad).await;
        let nowhere = crate::stage::model(&http, "http://127.0.0.1:9/v1?token=abcdefghijkl");
        let shown = format!("{model:?} {http:?} {}", model.name(), model = nowhere.name());
        assert!(server.asked().len() >= 5);
        longhaul.shutdown().await;
        format!("{:?} {shown}", failed.head)
    });
    drop(runtime);
    assert!(errors.contains("Incorrect API key provided: [key]"), "{errors}");
    let mut places =
        vec![("errors".to_owned(), errors.into_bytes()), ("log".to_owned(), log.0.lock().unwrap().clone())];
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap() {
            match file.unwrap().path() {
                path if path.is_dir() => folders.push(path),
                path => places.push((path.display().to_string(), std::fs::read(&path).unwrap())),
            }
        }
    }
    assert!(places.len() >= 4 && places.iter().all(|(_, bytes)| !bytes.is_empty()), "{:?}", places.len());
    for (name, bytes) in &places {
        for mark in [MARK.as_bytes(), &MARK.as_bytes()[..16]] {
            let found = bytes.windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found {
                let around = &bytes[at.saturating_sub(300)..(at + 60).min(bytes.len())];
                panic!("{name} has the key: {}", String::from_utf8_lossy(around));
            }
        }
        println!("{name}: {} bytes without it", bytes.len());
    }
}
