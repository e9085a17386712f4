//! `longhaul mcp --task`: what Longhaul gives the programs that run agents. It knows a socket and a secret, and nothing else.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// The command, in a home of its own, with these variables and no others.
fn command(home: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .args(["mcp", "--task"])
        .env_clear()
        .env("HOME", home)
        .envs(variables.iter().copied())
        .current_dir(home);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn it_passes_lines_on_in_both_directions_and_opens_nothing() {
    let (home, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Longer than the system allows for the path of a socket.
    let deep = place.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let socket = deep.join("socket");
    let open = std::fs::File::open(&deep).unwrap();
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/socket", open.as_raw_fd())).unwrap();
    let variables =
        [("LONGHAUL_TASK_SOCKET", socket.to_str().unwrap()), ("LONGHAUL_TASK_SECRET", "open sesame")];
    let mut child = command(home.path(), &variables).spawn().unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "open sesame\n");
    (&stream).write_all(b"welcome\n").unwrap();
    child.stdin.as_mut().unwrap().write_all(b"{\"id\":1}\n").unwrap();
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"id\":1}\n");
    (&stream).write_all(b"{\"id\":1,\"result\":{}}\n").unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    line.clear();
    answers.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"id\":1,\"result\":{}}\n", "nothing but the protocol");
    // The client closes its end: the owner notices, and ends the connection.
    drop(child.stdin.take());
    line.clear();
    assert_eq!(reader.read_line(&mut line).unwrap(), 0);
    drop((stream, reader));
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    assert!(is_empty(home.path()), "it made files");
}

#[test]
fn it_says_why_it_cannot_reach_its_task() {
    let home = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let variables = [("LONGHAUL_TASK_SOCKET", socket.to_str().unwrap()), ("LONGHAUL_TASK_SECRET", "x")];
    let cases = [(&[][..], "LONGHAUL_TASK_SOCKET"), (&variables[..], "the task cannot be reached")];
    for (variables, words) in cases {
        let ended = command(home.path(), variables).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            ended.status.code() == Some(1) && said.contains(words) && ended.stdout.is_empty(),
            "{ended:?}"
        );
    }
    // A task whose process does not know the secret.
    let listener = UnixListener::bind(&socket).unwrap();
    let child = command(home.path(), &variables).spawn().unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut byte = [0];
    (&stream).read_exact(&mut byte).unwrap();
    drop(stream);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(1) && said.contains("cannot be reached"), "{said}");
    assert!(is_empty(home.path()), "it made files");
}
