use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::tool::CallSignal;
use crate::toolset::tool_fixture::{call_context_in, call_tool};

/// A task with its own working directory, `work`, inside a directory that it cannot reach.
struct FilesFixture {
    outer: TempDir,
    context: CallContext,
    signals: UnboundedReceiver<CallSignal>,
}

type FileCallResult = Result<ToolOutput, ToolError>;

impl FilesFixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let outer = TempDir::new().unwrap();
        let root = outer.path().join("work");
        fs::create_dir(&root).unwrap();
        fs::write(outer.path().join("secret.txt"), "secret").unwrap();
        for (path, text) in files {
            write(&root.join(path), text);
        }
        let (context, signals) = call_context_in(&root);
        FilesFixture { outer, context, signals }
    }

    fn root(&self) -> std::path::PathBuf {
        self.outer.path().join("work")
    }

    async fn call(&self, tool: &str, arguments: Value) -> FileCallResult {
        let tools = ReadOnlyFiles::new().open(&ToolsetContext::new("tester")).await.unwrap();
        assert!(tools.iter().all(|tool| tool.effects() == ToolEffects::READ_ONLY));
        call_tool(&ReadOnlyFiles::new(), tool, arguments, &self.context).await
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).await.unwrap().text
    }
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn sent_back(called: FileCallResult) -> String {
    match called {
        Err(ToolError::Retry(text)) => text,
        other => panic!("not sent back: {other:?}"),
    }
}

fn failed(called: FileCallResult) -> String {
    match called {
        Err(ToolError::Failed(text)) => text,
        other => panic!("not a failure: {other:?}"),
    }
}

#[tokio::test]
async fn nothing_outside_the_working_directory_is_read() {
    let fixture = FilesFixture::new(&[("a.txt", "inside")]);
    let outside = fixture.outer.path().join("secret.txt");
    {
        std::os::unix::fs::symlink(&outside, fixture.root().join("link.txt")).unwrap();
        std::os::unix::fs::symlink(fixture.outer.path(), fixture.root().join("up")).unwrap();
    }
    let outside = outside.to_str().unwrap();
    let sibling = format!("{}-other/x", fixture.root().display());
    for path in
        ["..", "../secret.txt", "../nothing.txt", "x/../../secret.txt", outside, "/etc/passwd", &sibling]
    {
        let why = sent_back(fixture.call("read_file", json!({ "path": path })).await);
        assert!(why.contains(path) && why.contains("not below the working directory:"), "{why}");
    }
    for path in ["link.txt", "up/secret.txt", "up"] {
        for (tool, arguments) in [
            ("read_file", json!({ "path": path })),
            ("list_directory", json!({ "path": path })),
            ("search_files_content", json!({ "path": path, "query": "secret" })),
            ("count_lines", json!({ "path": path })),
        ] {
            let why = sent_back(fixture.call(tool, arguments).await);
            assert!(why.contains(path) && why.contains("symbolic link"), "{tool}: {why}");
        }
    }
    let found = fixture.text("search_files_content", json!({ "query": "secret" })).await;
    assert_eq!(found, "no match in 1 file", "a walk follows no link");
}

#[tokio::test]
async fn what_is_inside_may_be_named_in_any_way() {
    let fixture = FilesFixture::new(&[("sub/a.txt", "inside")]);
    std::os::unix::fs::symlink("sub", fixture.root().join("alias")).unwrap();
    let absolute = fixture.root().join("sub/a.txt");
    let absolute = absolute.to_str().unwrap();
    for path in ["sub/a.txt", "./sub/../sub/a.txt", "../work/sub/a.txt", absolute, "alias/a.txt"] {
        assert_eq!(fixture.text("read_file", json!({ "path": path })).await, "inside\n", "{path}");
    }
    let why = sent_back(fixture.call("read_file", json!({ "path": "sub/b.txt" })).await);
    assert_eq!(why, "there is no 'sub/b.txt' in the working directory. There is 'sub/a.txt'");
}

#[tokio::test]
async fn a_path_that_is_nearly_right_is_answered_with_the_right_one() {
    let fixture = FilesFixture::new(&[("fruits.txt", "plum"), ("notes/day.txt", "rain")]);
    let table = [
        ("fruits", "there is no 'fruits' in the working directory. There is 'fruits.txt'"),
        ("notes/days.txt", "there is no 'notes/days.txt' in the working directory. There is 'notes/day.txt'"),
        (
            "fruits.txt, notes/day.txt",
            "there is no 'fruits.txt, notes/day.txt' in the working directory: these are 2 paths. Make one call for each: \
             'fruits.txt', 'notes/day.txt'",
        ),
        (
            "fruits.txt other.txt",
            "there is no 'fruits.txt other.txt' in the working directory. There is 'fruits.txt'",
        ),
        ("src", "there is no 'src' in the working directory: list_directory shows what is there"),
        (
            "none/at/all",
            "there is no 'none/at/all' in the working directory: list_directory shows what is there",
        ),
    ];
    for (path, expected) in table {
        assert_eq!(sent_back(fixture.call("read_file", json!({ "path": path })).await), expected);
    }
    let search = json!({ "path": "fruits.txt", "query": "plums" });
    let found = fixture.text("search_files_content", search).await;
    assert_eq!(found, "no match in this file. To see what is in it, use read_file.");
    let why = sent_back(fixture.call("read_file", json!({ "path": "/etc/fruits.txt" })).await);
    assert!(why.ends_with("by its path from there. There is a 'fruits.txt' there"), "{why}");
}

#[tokio::test]
async fn a_directory_is_listed_in_order() {
    let fixture = FilesFixture::new(&[("b.txt", "four"), ("a/c.txt", ""), (".hidden", "1")]);
    assert_eq!(fixture.text("list_directory", json!({})).await, ".hidden  1 byte\na/\nb.txt  4 bytes");
    fs::create_dir(fixture.root().join("void")).unwrap();
    assert_eq!(fixture.text("list_directory", json!({ "path": "void" })).await, "void is empty");
    sent_back(fixture.call("list_directory", json!({ "path": "b.txt" })).await);

    for i in 0..1_003 {
        write(&fixture.root().join(format!("many/{i}")), "");
    }
    let many = fixture.text("list_directory", json!({ "path": "many" })).await;
    assert!(many.ends_with("\n[… 3 more entries …]"), "{many}");
}

#[tokio::test]
async fn a_file_is_read_in_parts() {
    let lines: String = (1..=2_500).map(|i| format!("line {i}\n")).collect();
    let fixture = FilesFixture::new(&[("long.txt", &lines), ("empty.txt", ""), ("crlf.txt", "a\r\nb")]);
    let part = fixture.text("read_file", json!({ "path": "long.txt" })).await;
    assert!(part.starts_with("line 1\n"));
    assert!(part.ends_with("line 1000\n[… more lines: go on with line 1001 …]"), "{part}");
    let part = fixture.text("read_file", json!({ "path": "long.txt", "offset": 2_499, "limit": 2 })).await;
    assert_eq!(part, "line 2499\nline 2500\n");
    let why = sent_back(fixture.call("read_file", json!({ "path": "long.txt", "offset": 2_501 })).await);
    assert!(why.contains("only 2,500 lines"), "{why}");
    assert_eq!(fixture.text("read_file", json!({ "path": "empty.txt" })).await, "'empty.txt' is empty");
    assert_eq!(fixture.text("read_file", json!({ "path": "crlf.txt" })).await, "a\nb\n");
    assert!(sent_back(fixture.call("read_file", json!({ "path": "." })).await).contains("list_directory"));
}

#[tokio::test]
async fn a_part_is_bounded_in_bytes_too() {
    let line = "x".repeat(40_000);
    let huge = "y".repeat(100_000);
    let fixture = FilesFixture::new(&[("wide.txt", &format!("{line}\n{line}\n{huge}\n"))]);
    let part = fixture.text("read_file", json!({ "path": "wide.txt" })).await;
    assert!(part.len() < 41_000 && part.ends_with("x\n[… more lines: go on with line 2 …]"));
    let part = fixture.text("read_file", json!({ "path": "wide.txt", "offset": 3 })).await;
    assert!(part.len() < 66_000 && part.ends_with("y[… 34,464 bytes of this line left out …]\n"));
}

#[tokio::test]
async fn what_is_no_text_is_not_read_and_a_pipe_is_not_waited_for() {
    let fixture = FilesFixture::new(&[("image.bin", "PNG\0\0secret")]);
    let why = failed(fixture.call("read_file", json!({ "path": "image.bin" })).await);
    assert!(why.contains("binary file (11 bytes)"), "{why}");
    let made = std::process::Command::new("mkfifo").arg(fixture.root().join("pipe")).status().unwrap();
    assert!(made.success());
    assert!(failed(fixture.call("read_file", json!({ "path": "pipe" })).await).contains("plain file"));
    assert_eq!(
        fixture.text("search_files_content", json!({ "query": "secret" })).await,
        "no match in 0 files"
    );
    assert!(fixture.text("count_lines", json!({})).await.ends_with("[1 binary file not counted]"));
}

#[tokio::test]
async fn a_search_shows_where() {
    let far = format!("{}needle{}", "é".repeat(1_000), "z".repeat(1_000));
    let fixture = FilesFixture::new(&[
        ("src/b.rs", "none\n  a needle here\n"),
        ("a.txt", "needle\nNeedle\n"),
        (".github/ci.yml", "needle"),
        (".git/config", "needle"),
        ("target/out", "needle"),
        ("web/node_modules/x.js", "needle"),
        ("bin", "\0needle"),
        ("z/far.txt", &far),
    ]);
    let text = fixture.text("search_files_content", json!({ "query": "needle" })).await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..3], [".github/ci.yml:1: needle", "a.txt:1: needle", "src/b.rs:2:   a needle here"]);
    assert!(lines.len() == 4 && lines[3].starts_with("z/far.txt:1: …é") && lines[3].contains("needle"));
    assert!(lines[3].chars().count() < 220);
    let text = fixture.text("search_files_content", json!({ "query": "needle", "path": "src" })).await;
    assert_eq!(text, "src/b.rs:2:   a needle here");
    sent_back(fixture.call("search_files_content", json!({ "query": "" })).await);
}

#[tokio::test]
async fn a_search_that_finds_too_much_says_so() {
    let fixture = FilesFixture::new(&[("just.txt", &"hit\n".repeat(200)), ("long.txt", &"-".repeat(70_000))]);
    let text = fixture.text("search_files_content", json!({ "query": "hit" })).await;
    assert!(
        text.ends_with("just.txt:200: hit\n[1 very long line searched only up to 65,536 bytes]"),
        "{text}"
    );
    write(&fixture.root().join("more.txt"), "hit");
    let text = fixture.text("search_files_content", json!({ "query": "hit" })).await;
    assert!(text.contains("\n[… stopped after 200 matches: narrow `query` or `path` …]"), "{text}");
    assert_eq!(text.matches(": hit").count(), 200);
}

#[tokio::test]
async fn lines_are_counted_by_extension() {
    let fixture = FilesFixture::new(&[
        ("src/a.rs", "1\n2\n3"),
        ("src/b.RS", "1\n"),
        ("README", "1\n2\n"),
        ("empty.md", ""),
        (".hidden/c.rs", "1\n"),
        ("target/d.rs", "1\n"),
    ]);
    let expected = "\
extension    files        lines
rs               2            4
(none)           1            2
md               1            0
total            4            6";
    assert_eq!(fixture.text("count_lines", json!({})).await, expected);
    assert!(fixture.text("count_lines", json!({ "path": "src/a.rs" })).await.ends_with("1            3"));
}

#[tokio::test]
async fn a_long_walk_tells_how_far_it_is_has_a_bound_and_can_be_stopped() {
    let mut fixture = FilesFixture::new(&[]);
    let first = fixture.outer.path().join("first.txt");
    fs::write(&first, "x\n").unwrap();
    for dir in 0..201 {
        let dir = fixture.root().join(format!("{dir:03}"));
        fs::create_dir(&dir).unwrap();
        // Use links, which are created much faster than files.
        (0..100).for_each(|file| fs::hard_link(&first, dir.join(format!("{file}.txt"))).unwrap());
    }
    let text = fixture.text("count_lines", json!({})).await;
    assert!(text.ends_with("\n[… more than 20,000 files: the rest was not looked at …]"), "{text}");
    assert!(text.contains("total       20,000       20,000"), "{text}");
    let mut signals = Vec::new();
    while let Ok(signal) = fixture.signals.try_recv() {
        signals.push(signal);
    }
    assert_eq!(signals.len(), 50);
    assert!(matches!(&signals[2], CallSignal::Progress(text) if text == "… 1,200 files"));

    fixture.context.cancel.cancel();
    assert!(failed(fixture.call("count_lines", json!({})).await).contains("being stopped"));
}

#[tokio::test]
async fn a_task_without_a_working_directory_has_no_files() {
    let mut fixture = FilesFixture::new(&[]);
    fixture.context.working_dir = None;
    assert!(failed(fixture.call("count_lines", json!({})).await).contains("no working directory"));
}
