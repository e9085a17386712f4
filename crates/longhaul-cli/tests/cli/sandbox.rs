//! The command as the helper of a sandbox: Landlock, applied to a process of its own.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory that can be written to, in one that cannot.
struct Yard(TempDir);

impl Yard {
    fn new() -> Yard {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("work")).unwrap();
        fs::write(outer.path().join("secret.txt"), "secret").unwrap();
        Yard(outer)
    }

    fn run(&self, flags: &[&str], cmd: &str) -> Output {
        let work = self.0.path().join("work");
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.arg("sandbox-exec").arg("--rw").arg(&work).args(flags).args(["--", "/bin/sh", "-c", cmd]);
        command.current_dir(work).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command.output().unwrap()
    }
}

/// `None` where the kernel has no Landlock (that can turn the network off).
fn yard() -> Option<Yard> {
    let yard = Yard::new();
    let tried = yard.run(&[], "exit 7");
    let why = String::from_utf8_lossy(&tried.stderr).into_owned();
    match tried.status.code() {
        Some(7) => Some(yard),
        code => {
            assert_eq!(code, Some(126), "{why}");
            assert!(why.contains("Landlock") || why.contains("the sandbox could not be entered"), "{why}");
            None
        }
    }
}

#[test]
fn under_landlock_commands_write_only_below_the_working_directory() {
    let Some(yard) = yard() else { return };
    let outer = yard.0.path().display().to_string();
    let fine = yard.run(&[], "echo hi > a && mkdir d && mv a d/b && cat d/b ../secret.txt && echo x > /dev/null && ls / > /dev/null");
    assert_eq!(String::from_utf8_lossy(&fine.stdout), "hi\nsecret", "{fine:?}");
    assert!(fine.status.success(), "{fine:?}");
    for (way, cmd) in [
        ("redirection", "echo pwned > ../secret.txt".to_owned()),
        ("appending", "echo pwned >> ../secret.txt".to_owned()),
        ("an absolute path", format!("echo pwned > {outer}/new.txt")),
        ("a link", format!("ln -s {outer}/secret.txt s; echo pwned > s")),
        ("a hard link", format!("ln {outer}/secret.txt h && echo pwned > h")),
        ("a move", format!("echo pwned > p && mv p {outer}/p")),
        ("removal", "rm -f ../secret.txt && test ! -e ../secret.txt".to_owned()),
        ("a directory", "mkdir ../dir".to_owned()),
        ("the process's root", format!("echo pwned > /proc/self/root{outer}/new.txt")),
        ("cutting", "truncate -s 0 ../secret.txt".to_owned()),
        ("/tmp", format!("echo pwned > /tmp/longhaul-pwned-{}", std::process::id())),
        ("/etc", "echo pwned > /etc/longhaul-pwned".to_owned()),
        ("a mount", "mount -t tmpfs none /mnt".to_owned()),
        ("a device", "mknod disk b 7 0".to_owned()),
        ("a child's child", "sh -c 'sh -c \"echo pwned > ../secret.txt\"'".to_owned()),
    ] {
        let tried = yard.run(&[], &cmd);
        assert!(!tried.status.success(), "{way}: {tried:?}");
        assert_eq!(fs::read_to_string(yard.0.path().join("secret.txt")).unwrap(), "secret", "{way}");
    }
    assert_eq!(fs::read_dir(yard.0.path()).unwrap().count(), 2, "nothing came beside them");
}

#[test]
fn under_landlock_there_is_no_tcp_unless_it_is_allowed() {
    let Some(yard) = yard() else { return };
    if !Path::new("/bin/bash").exists() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("/bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'");
    assert!(!yard.run(&[], &connect).status.success());
    assert!(yard.run(&["--net"], &connect).status.success());
}

#[test]
fn a_shell_takes_the_command_as_its_helper() {
    use longhaul::toolset::{Sandbox, Shell};
    use longhaul::{Agent, Longhaul, Order, Status, Team};
    if yard().is_none() {
        return;
    }
    let yard = Yard::new();
    let sandbox = Sandbox::new().without_bubblewrap().helper(env!("CARGO_BIN_EXE_longhaul"));
    let script = r#"
agents:
  lead:
    turns:
      - calls: [{ tool: shell, arguments: { cmd: "echo in > in.txt; echo out > ../out.txt" } }]
      - text: done
"#;
    let script = longhaul::model::scripted::Script::parse("sandbox.yaml", script).unwrap();
    let model = std::sync::Arc::new(longhaul::model::scripted::Scripted::new(script.into()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let agent = Agent::builder("lead").model(model).toolset(Shell::builder().sandbox(sandbox).build());
        let team = Team::new(agent.build().unwrap()).unwrap();
        let longhaul = Longhaul::builder(team).store(longhaul::store::Memory::new()).start().await.unwrap();
        let order = Order::new("lead", "go").working_dir(yard.0.path().join("work"));
        let id = longhaul.submit(order).await.unwrap();
        let done = longhaul.wait([id]).await.unwrap();
        assert_eq!(done.tasks[0].head.status, Status::Completed);
        longhaul.shutdown().await;
    });
    assert_eq!(fs::read_to_string(yard.0.path().join("work/in.txt")).unwrap(), "in\n");
    assert!(!yard.0.path().join("out.txt").exists());
}
