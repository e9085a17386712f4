use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::toolset::tool_fixture::{call_context_in, call_tool};

struct WriteFixture {
    dir: TempDir,
    context: CallContext,
    toolset: Filesystem,
}

impl WriteFixture {
    fn new(files: &[(&str, &str)]) -> Self {
        WriteFixture::with(Filesystem::new(), files)
    }

    fn with(toolset: Filesystem, files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (context, _) = call_context_in(dir.path());
        WriteFixture { dir, context, toolset }
    }

    async fn tools(&self) -> Vec<Arc<dyn DynTool>> {
        self.toolset.open(&ToolsetContext::new("tester")).await.unwrap()
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<String, ToolError> {
        call_tool(&self.toolset, tool, arguments, &self.context).await.map(|output| output.text)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.dir.path().join(path)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn the_model_is_told_what_docker_agents_files_expect() {
    let tools = WriteFixture::new(&[]).tools().await;
    let output: Vec<_> = tools
        .iter()
        .map(|tool| {
            let spec = tool.spec();
            let mut names: Vec<_> =
                spec.parameters["properties"].as_object().unwrap().keys().cloned().collect();
            names.sort();
            let effects = tool.effects();
            let mark = match (effects.read_only, effects.repeatable) {
                (true, _) => "reads",
                (false, true) => "repeatable",
                (false, false) => "changes",
            };
            format!("{} {{{}}} {mark}", spec.name, names.join(", "))
        })
        .collect();
    assert_eq!(
        output,
        [
            "read_file {limit, line, path} reads",
            "read_multiple_files {json, paths} reads",
            "list_directory {path} reads",
            "directory_tree {max_depth, path} reads",
            "search_files_content {excludePatterns, is_regex, path, query} reads",
            "write_file {content, path} repeatable",
            "edit_file {edits, path} changes",
            "create_directory {paths} repeatable",
            "remove_directory {paths} changes",
        ]
    );
    let edit = tools.iter().find(|tool| tool.spec().name == "edit_file").unwrap().spec();
    let edit = &edit.parameters["properties"]["edits"]["items"];
    assert_eq!(edit["required"], json!(["oldText", "newText"]), "{edit}");
}

#[tokio::test]
async fn a_file_is_written_whole_and_leaves_nothing_beside_it() {
    let fixture = WriteFixture::new(&[("old.txt", "old")]);
    let output =
        fixture.call("write_file", json!({ "path": "a/b/new.txt", "content": "hello" })).await.unwrap();
    assert_eq!(output, "a/b/new.txt written (5 bytes)");
    assert_eq!(fixture.text("a/b/new.txt"), "hello");
    let output = fixture.call("write_file", json!({ "path": "old.txt", "content": "no end" })).await.unwrap();
    assert_eq!(output, "old.txt replaced (6 bytes)");
    assert_eq!(fixture.text("old.txt"), "no end");
    let output = fixture.call("write_file", json!({ "path": "old.txt", "content": "no end" })).await.unwrap();
    assert_eq!(output, "old.txt is unchanged: it had this content already (6 bytes)");
    let output = fixture.call("write_file", json!({ "path": "old.txt", "content": "no one" })).await.unwrap();
    assert_eq!(output, "old.txt replaced (6 bytes)");
    assert!(fixture.call("write_file", json!({ "path": "a", "content": "x" })).await.is_err());
    assert!(fixture.call("write_file", json!({ "path": "old.txt/x", "content": "x" })).await.is_err());
    assert_eq!(fixture.names(), ["a", "old.txt"]);
}

#[tokio::test]
async fn rights_are_kept_links_followed_and_pipes_left_alone() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    let fixture = WriteFixture::new(&[("run.sh", "echo one\n"), ("locked.txt", "x"), ("real.txt", "one\n")]);
    let at = |name: &str| fixture.dir.path().join(name);
    fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(at("locked.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    symlink("real.txt", at("alias.txt")).unwrap();
    let inode = fs::metadata(at("run.sh")).unwrap().ino();

    let edit = json!({ "path": "run.sh", "edits": [{ "oldText": "one", "newText": "two" }] });
    assert_eq!(fixture.call("edit_file", edit).await.unwrap(), "run.sh changed (1 edit)");
    let meta = fs::metadata(at("run.sh")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o751);
    assert_ne!(meta.ino(), inode, "it was replaced, not overwritten");
    if nix::unistd::geteuid().is_root() {
        // Only root can change the owner of a file.
        std::os::unix::fs::chown(at("real.txt"), Some(1234), Some(1235)).unwrap();
    }

    let why = fixture.call("write_file", json!({ "path": "locked.txt", "content": "y" })).await.unwrap_err();
    assert!(why.to_string().contains("write-protected"), "{why}");
    fixture.call("write_file", json!({ "path": "alias.txt", "content": "two\n" })).await.unwrap();
    assert_eq!(fixture.text("real.txt"), "two\n");
    let meta = fs::metadata(at("real.txt")).unwrap();
    let expected = if nix::unistd::geteuid().is_root() { (1234, 1235) } else { (meta.uid(), meta.gid()) };
    assert_eq!((meta.uid(), meta.gid()), expected, "its owner stays");
    assert!(fs::symlink_metadata(at("alias.txt")).unwrap().is_symlink());

    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let why = fixture.call("write_file", json!({ "path": "pipe", "content": "y" })).await.unwrap_err();
    assert!(why.to_string().contains("not a plain file"), "{why}");
}

#[tokio::test]
async fn edits_are_all_or_nothing_and_wrong_ones_are_explained() {
    let fixture = WriteFixture::new(&[("a.txt", "one\r\ntwo\r\nthree"), ("bin", "a\0b")]);
    let edit = |edits: Value| json!({ "path": "a.txt", "edits": edits });
    let two = json!([{ "oldText": "one\ntwo", "newText": "1\n2" }, { "oldText": "four", "newText": "4" }]);
    let why = fixture.call("edit_file", edit(two)).await.unwrap_err().to_string();
    assert!(why.starts_with("'a.txt' was not changed: edit 2 of 2: `oldText` is not in the file"), "{why}");
    assert_eq!(fixture.text("a.txt"), "one\r\ntwo\r\nthree");

    let as_text = r#"[{"oldText": "one\ntwo", "newText": "1\n2"}]"#;
    fixture.call("edit_file", edit(json!(as_text))).await.unwrap();
    assert_eq!(fixture.text("a.txt"), "1\r\n2\r\nthree");
    fixture.call("edit_file", edit(json!({ "old_text": "three", "new_text": "3" }))).await.unwrap();
    assert_eq!(fixture.text("a.txt"), "1\r\n2\r\n3");

    for (arguments, why) in [
        (edit(json!([])), "`edits` is empty"),
        (edit(json!([{ "oldText": "1", "newText": "1" }])), "change nothing"),
        (edit(json!([{ "old": "1" }])), "not a list of {oldText, newText}"),
        (json!({ "path": "bin", "edits": [{ "oldText": "a", "newText": "b" }] }), "binary file"),
        (
            json!({ "path": "none.txt", "edits": [{ "oldText": "a", "newText": "b" }] }),
            "there is no 'none.txt'",
        ),
    ] {
        let error = fixture.call("edit_file", arguments).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn edits_at_the_same_time_do_not_undo_each_other() {
    let lines: String = (0..20).map(|i| format!("line {i};\n")).collect();
    let fixture = WriteFixture::new(&[("a.txt", &lines)]);
    let edits = (0..20).map(|i| {
        let edit = json!({ "oldText": format!("line {i};"), "newText": format!("done {i};") });
        fixture.call("edit_file", json!({ "path": "a.txt", "edits": [edit] }))
    });
    for output in futures::future::join_all(edits).await {
        output.unwrap();
    }
    assert_eq!(fixture.text("a.txt"), lines.replace("line", "done"));
}

#[tokio::test]
async fn directories_are_made_and_removed_when_empty() {
    let fixture = WriteFixture::new(&[("full/x.txt", "x")]);
    let output = fixture.call("create_directory", json!({ "paths": ["a/b", "c", "full"] })).await.unwrap();
    assert_eq!(output, "a/b made\nc made\nfull is there already");
    let output = fixture.call("create_directory", json!({ "path": "with space" })).await.unwrap();
    assert_eq!(output, "with space made");
    let why =
        fixture.call("remove_directory", json!({ "paths": ["c", "full"] })).await.unwrap_err().to_string();
    assert_eq!(why, "c removed\n'full' is not empty, and only empty directories are removed");
    let why =
        fixture.call("remove_directory", json!({ "paths": ["full/x.txt"] })).await.unwrap_err().to_string();
    assert!(why.contains("is not a directory"), "{why}");
    assert_eq!(fixture.names(), ["a", "full", "with space"]);
}

#[tokio::test]
async fn several_files_are_read_at_once() {
    let fixture = WriteFixture::new(&[("a.txt", "one"), ("b.txt", &"y\n".repeat(60_000))]);
    let text =
        fixture.call("read_multiple_files", json!({ "paths": ["a.txt", "no.txt", "b.txt"] })).await.unwrap();
    assert!(text.starts_with("=== a.txt ===\none\n\n=== no.txt ===\n[there is no 'no.txt'"), "{text}");
    assert!(text.len() < 70_000 && text.ends_with("…]"), "{}", &text[text.len() - 60..]);
    let text = fixture.call("read_multiple_files", json!({ "paths": "a.txt", "json": true })).await.unwrap();
    assert_eq!(text, r#"[{"content":"one\n","path":"a.txt"}]"#);
}

#[tokio::test]
async fn what_version_control_ignores_is_left_out_unless_it_is_wanted() {
    let files = [
        (".gitignore", "*.log\n/dist/\n!keep.log\n"),
        ("a.log", "hit"),
        ("keep.log", "hit"),
        ("dist/out.js", "hit"),
        ("sub/dist/in.js", "hit"),
        ("sub/.gitignore", "secret.txt\n"),
        ("sub/secret.txt", "hit"),
        ("sub/deep/secret.txt", "hit"),
        (".git/x", "hit"),
    ];
    let fixture = WriteFixture::new(&files);
    let text = fixture.call("search_files_content", json!({ "query": "hit" })).await.unwrap();
    assert_eq!(text, "keep.log:1: hit\nsub/dist/in.js:1: hit");
    let text =
        fixture.call("search_files_content", json!({ "query": "hit", "path": "sub/deep" })).await.unwrap();
    assert!(text.starts_with("no match"), "patterns from above count: {text}");
    let tree = fixture.call("directory_tree", json!({})).await.unwrap();
    assert_eq!(
        tree,
        "./\n  .gitignore\n  keep.log\n  sub/\n    .gitignore\n    deep/\n    dist/\n      in.js"
    );
    let list = fixture.call("list_directory", json!({})).await.unwrap();
    assert!(list.ends_with("sub/\n[2 more, which version control ignores]"), "{list}");
    let tree = fixture.call("directory_tree", json!({ "max_depth": "1" })).await.unwrap();
    assert_eq!(tree, "./\n  .gitignore\n  keep.log\n  sub/");

    let all = WriteFixture::with(Filesystem::builder().ignore_vcs(false).build(), &files);
    let text = all.call("search_files_content", json!({ "query": "hit" })).await.unwrap();
    assert_eq!(text.lines().count(), 7, "{text}");
    let exclude =
        json!({ "query": "^h.t$", "is_regex": true, "excludePatterns": ["*.log", "sub/", ".git/"] });
    let text = all.call("search_files_content", exclude).await.unwrap();
    assert_eq!(text, "dist/out.js:1: hit");
}

#[tokio::test]
async fn commands_run_after_edits() {
    let post = |path: &str, cmd: &str| PostEdit { path: path.to_owned(), cmd: cmd.to_owned() };
    let outside = tempfile::tempdir().unwrap();
    let toolset = Filesystem::builder()
        .post_edit(post("*.up", "tr a-z A-Z < \"$path\" > t && cat t > \"$path\" && rm t"))
        .post_edit(post("*.bad", "echo broken; exit 3"))
        .post_edit(post("*.out", &format!("echo out > {}", outside.path().join("x").display())))
        .build();
    let fixture = WriteFixture::with(toolset, &[]);
    let output =
        fixture.call("write_file", json!({ "path": "my file.up", "content": "hello" })).await.unwrap();
    assert!(output.starts_with("my file.up written (5 bytes)\n[ran: tr "), "{output}");
    assert_eq!(fixture.text("my file.up"), "HELLO");
    let why =
        fixture.call("write_file", json!({ "path": "x.bad", "content": "x" })).await.unwrap_err().to_string();
    assert!(why.contains("x.bad written") && why.contains("broken\n[exit code 3]"), "{why}");
    assert_eq!(
        fixture.call("write_file", json!({ "path": "x", "content": "x" })).await.unwrap(),
        "x written (1 byte)"
    );
    fixture.call("write_file", json!({ "path": "x.out", "content": "x" })).await.unwrap();
    assert!(outside.path().join("x").exists(), "they are the team's author's, and unconfined");
    let tools = fixture.tools().await;
    let write = tools.iter().find(|tool| tool.spec().name == "write_file").unwrap();
    assert!(!write.effects().repeatable, "who knows what the command does");
}

/// What a person is shown of a call is what the call would do, and looking changes nothing.
#[tokio::test]
async fn a_call_can_be_looked_at_before_it_is_made() {
    let fixture = WriteFixture::new(&[("a.txt", "one\ntwo\n"), ("b.bin", "a\0b")]);
    fs::write(fixture.dir.path().join("b.bin"), b"\xff\xfe").unwrap();
    let preview = async |tool: &str, arguments: Value| {
        let tools = fixture.tools().await;
        let tool = tools.iter().find(|t| t.spec().name == tool).unwrap().clone();
        tool.preview(&arguments.to_string(), &fixture.context).await
    };
    let change = preview("write_file", json!({"path": "./a.txt", "content": "one\n2\n"})).await.unwrap();
    assert_eq!((change.exists, change.diff.as_str(), change.problem), (true, " one\n-two\n+2", None));
    let edit = json!([{"old_text": "two", "newText": "2"}]);
    let change = preview("edit_file", json!({"path": "a.txt", "edits": edit})).await.unwrap();
    assert_eq!((change.path.as_str(), change.diff.as_str()), ("a.txt", " one\n-two\n+2"));
    let change = preview("write_file", json!({"path": "new.txt", "content": "x"})).await.unwrap();
    assert!(!change.exists && change.problem.is_none(), "{change:?}");
    for (tool, arguments, why) in [
        ("edit_file", json!({"path": "a.txt", "edits": [{"oldText": "no", "newText": ""}]}), "would fail"),
        ("write_file", json!({"path": "../out.txt", "content": ""}), "would fail"),
        (
            "write_file",
            json!({"path": "b.bin", "content": ""}),
            "it exists, and would be changed; it is not text",
        ),
    ] {
        let change = preview(tool, arguments).await.unwrap();
        assert!(change.problem.as_ref().is_some_and(|problem| problem.contains(why)), "{change:?}");
    }
    assert!(preview("read_file", json!({"path": "a.txt"})).await.is_none());
    assert_eq!((fixture.text("a.txt").as_str(), fixture.names().len()), ("one\ntwo\n", 2));
}
