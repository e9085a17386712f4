//! Agents of other programs that send out background agents of the team themselves.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use longhaul::agent::AcpAgent;
use longhaul::entry::{Entry, Record};
use longhaul::permission::Permissions;
use longhaul::{Agent, Longhaul, TaskId, Team};

use super::{fake, journal, kinds, nothing_is_left, order, outcome, within};
use crate::crash::process::lines;
use crate::crash::team::scripted;

const SCRIPT: &str = "
defaults: { delay: 0ms }
agents:
  helper:
    turns: [{ text: 'PART[{{ task }}]' }]
";

/// A fixer with a helper of its own.
fn team(program: AcpAgent) -> Team {
    let helper = Agent::builder("helper").description("Weighs.").model(scripted(SCRIPT)).build().unwrap();
    Team::new(Agent::builder("fixer").acp(program).sub_agent(helper).build().unwrap()).unwrap()
}

/// The directories of sockets.
fn sockets(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("home/.longhaul")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn children(longhaul: &Longhaul, of: TaskId) -> Vec<longhaul::task::TaskState> {
    longhaul.list(longhaul::store::TaskFilter::children(of)).await.unwrap()
}

fn calls<'a>(journal: &'a [Record], tool: &str) -> Vec<&'a Record> {
    let is_call = |record: &&Record| matches!(&record.entry, Entry::Called { tool: called, foreign: true, .. } if &**called == tool);
    journal.iter().filter(is_call).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_launches_a_task_of_the_team_and_waits_for_it_without_a_seat() {
    let dir = tempfile::tempdir().unwrap();
    // With one seat the helper runs only while its parent gives up its own.
    let team = team(fake::program(dir.path(), "delegates"));
    let limits = longhaul::dispatch::TaskLimits::default().running(1);
    let longhaul = Longhaul::builder(team).limits(limits).start().await.unwrap();
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let journal = journal(&longhaul, id).await;
    assert_eq!(&**outcome(&journal).output(), "FOUND[one weigh it]", "{:?}", kinds(&journal));
    let children = children(&longhaul, id).await;
    assert_eq!((children.len(), children[0].agent.as_str(), children[0].depth), (1, "helper", 1));
    assert_eq!(
        (calls(&journal, "run_background_agent").len(), calls(&journal, "wait_background_agents").len()),
        (1, 1)
    );
    let open = journal.iter().fold(0, |open, record| match &record.entry {
        Entry::Called { foreign: true, .. } => open + 1,
        Entry::Returned(returned) if returned.foreign.is_some() => open - 1,
        _ => open,
    });
    assert_eq!(open, 0, "{:?}", kinds(&journal));
    // What a wait has given it does not come again as a letter.
    assert_eq!(fake::received(dir.path()).len(), 1);
    longhaul.shutdown().await;
    nothing_is_left(dir.path());
    assert_eq!(sockets(dir.path()), [""; 0], "the socket is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_it_does_not_wait_for_is_its_next_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let longhaul =
        Longhaul::builder(team(fake::program(dir.path(), "delegates_letters"))).start().await.unwrap();
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let journal = journal(&longhaul, id).await;
    assert_eq!(&**outcome(&journal).output(), "FOUND[one weigh it]", "{:?}", kinds(&journal));
    let prompts = fake::received(dir.path());
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert!(prompts[1].1.contains("PART[weigh it]"), "{prompts:?}");
    assert!(prompts[0].1.contains("run_background_agent") && prompts[0].1.contains("MCP server 'longhaul'"));
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_decide_about_its_calls() {
    let dir = tempfile::tempdir().unwrap();
    let permissions = Permissions::parse([""; 0], [""; 0], ["run_background_agent"]).unwrap();
    let team = team(fake::program(dir.path(), "delegates_letters")).with_permissions(permissions);
    let longhaul = Longhaul::builder(team).start().await.unwrap();
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    assert!(children(&longhaul, id).await.is_empty());
    let journal = journal(&longhaul, id).await;
    assert!(calls(&journal, "run_background_agent").is_empty(), "{:?}", kinds(&journal));
    let refused = lines(&dir.path().join("refused")).join("\n");
    assert!(refused.contains("run_background_agent"), "it was not told why: {refused}");
    assert_eq!(&**outcome(&journal).output(), "FOUND[one]");
    longhaul.shutdown().await;
}

/// Says something to a task's socket, and returns the first line of the answer.
fn greet(socket: &Path, words: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_of_a_task_is_for_whoever_knows_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    let longhaul = Longhaul::builder(team(fake::program(dir.path(), "waits"))).start().await.unwrap();
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(async {
        while fake::received(dir.path()).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let of_task = sockets(dir.path()).pop().unwrap();
    assert!(of_task.starts_with(&id.to_string()), "{of_task}");
    let socket = dir.path().join("home/.longhaul").join(of_task).join("socket");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    let asked = tokio::task::spawn_blocking(move || {
        let call = "{\"id\":1,\"method\":\"tools/list\"}\n";
        ["", "\n", "secret\n", call].map(|words| greet(&socket, &format!("{words}{call}")))
    });
    assert_eq!(asked.await.unwrap(), ["", "", "", ""], "nothing is said to a stranger");
    longhaul.stop(id).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    longhaul.shutdown().await;
    nothing_is_left(dir.path());
}
