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

/// `None` where the kernel has no Landlock (that can turn the network off): the test is skipped then, and counted.
fn yard() -> Option<Yard> {
    let yard = Yard::new();
    let tried = yard.run(&[], "exit 7");
    let why = String::from_utf8_lossy(&tried.stderr).into_owned();
    match tried.status.code() {
        Some(7) => Some(yard),
        code => {
            assert_eq!(code, Some(126), "{why}");
            assert!(why.contains("Landlock") || why.contains("the sandbox could not be entered"), "{why}");
            crate::kit::skipped(&why);
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
        return crate::kit::skipped("there is no /bin/bash");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("/bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'");
    assert!(!yard.run(&[], &connect).status.success());
    assert!(yard.run(&["--net"], &connect).status.success());
}

/// A script in Perl, which is part of what git needs.
fn perl(script: &str) -> String {
    format!("/usr/bin/perl -MSocket -e '{script}'")
}

/// What the page says that Landlock does not cover.
#[test]
fn under_landlock_udp_sockets_and_git_are_not_covered() {
    use std::os::unix::net::UnixListener;
    let Some(yard) = yard() else { return };
    if !Path::new("/usr/bin/perl").exists() {
        return crate::kit::skipped("there is no /usr/bin/perl");
    }
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let port = udp.local_addr().unwrap().port();
    let send = perl(&format!(
        "socket(S, AF_INET, SOCK_DGRAM, 0) or die; send(S, qq(hi), 0, pack_sockaddr_in({port}, inet_aton(q(127.0.0.1)))) or die $!"
    ));
    assert!(yard.run(&[], &send).status.success());
    let mut bytes = [0; 8];
    assert_eq!(udp.recv(&mut bytes).unwrap(), 2, "it came");

    let socket = yard.0.path().join("s");
    let _listener = UnixListener::bind(&socket).unwrap();
    let connect = |path: &str| {
        perl(&format!(
            "socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, pack_sockaddr_un({path})) or die $!"
        ))
    };
    assert!(yard.run(&[], &connect(&format!("q({})", socket.display()))).status.success());

    git(&yard.0.path().join("work"), &["init", "-q"]);
    let written = yard
        .run(&[], "echo '[alias]' >> .git/config && mkdir -p .git/hooks && echo x > .git/hooks/post-merge");
    assert!(written.status.success(), "{written:?}");
}

#[test]
fn under_landlock_abstract_sockets_and_signals_to_others_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let Some(yard) = yard() else { return };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = kernel.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    if (parts.next(), parts.next()) < (Some(6), Some(12)) {
        return crate::kit::skipped("this kernel's Landlock has no ABI 6");
    }
    let mut other = Command::new("sleep").arg("100").spawn().unwrap();
    let signal = format!("kill -0 {}", other.id());
    assert!(!yard.run(&[], &signal).status.success());
    assert!(yard.run(&["--net"], &signal).status.success(), "with the network they are not");
    other.kill().unwrap();
    other.wait().unwrap();
    if !Path::new("/usr/bin/perl").exists() {
        return crate::kit::skipped("there is no /usr/bin/perl");
    }
    let name = format!("longhaul-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let connect = perl(&format!(
        "socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, pack_sockaddr_un(qq(\\0{name}))) or die $!"
    ));
    assert!(!yard.run(&[], &connect).status.success());
    assert!(yard.run(&["--net"], &connect).status.success());
}

#[test]
fn under_landlock_sigterm_is_passed_on_and_longhaul_itself_is_not_confined() {
    use longhaul::toolset::{Sandbox, Shell};
    use longhaul::{Agent, Longhaul, Order, Team};
    if yard().is_none() {
        return;
    }
    let yard = Yard::new();
    let work = yard.0.path().join("work");
    let sandbox = Sandbox::new().without_bubblewrap().helper(env!("CARGO_BIN_EXE_longhaul"));
    let script = r#"
agents:
  lead:
    turns:
      - calls: [{ tool: shell, arguments: { cmd: "trap 'echo cleaned > cleaned; exit 0' TERM; touch up; while :; do sleep 0.02; done" } }]
      - text: done
"#;
    let script = longhaul::model::scripted::ModelScript::parse("sandbox.yaml", script).unwrap();
    let model = std::sync::Arc::new(longhaul::model::scripted::ScriptedModel::new(script.into()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let agent = Agent::builder("lead").model(model).toolset(Shell::builder().sandbox(sandbox).build());
        let team = Team::new(agent.build().unwrap()).unwrap();
        let longhaul =
            Longhaul::builder(team).store(longhaul::store::MemoryStore::new()).start().await.unwrap();
        let id = longhaul.submit(Order::new("lead", "go").working_dir(&work)).await.unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !work.join("up").exists() {
            assert!(std::time::Instant::now() < deadline, "the command did not begin");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        longhaul.stop(id).await.unwrap();
        longhaul.wait([id]).await.unwrap();
        longhaul.shutdown().await;
    });
    assert_eq!(fs::read_to_string(work.join("cleaned")).unwrap(), "cleaned\n");
    fs::write(yard.0.path().join("beside"), "x").unwrap();
    std::net::TcpListener::bind("127.0.0.1:0").unwrap();
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
    let script = longhaul::model::scripted::ModelScript::parse("sandbox.yaml", script).unwrap();
    let model = std::sync::Arc::new(longhaul::model::scripted::ScriptedModel::new(script.into()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let agent = Agent::builder("lead").model(model).toolset(Shell::builder().sandbox(sandbox).build());
        let team = Team::new(agent.build().unwrap()).unwrap();
        let longhaul =
            Longhaul::builder(team).store(longhaul::store::MemoryStore::new()).start().await.unwrap();
        let order = Order::new("lead", "go").working_dir(yard.0.path().join("work"));
        let id = longhaul.submit(order).await.unwrap();
        let done = longhaul.wait([id]).await.unwrap();
        assert_eq!(done.tasks[0].state.status, Status::Completed);
        longhaul.shutdown().await;
    });
    assert_eq!(fs::read_to_string(yard.0.path().join("work/in.txt")).unwrap(), "in\n");
    assert!(!yard.0.path().join("out.txt").exists());
}

/// Git, as a person uses it.
fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(args)
        .current_dir(dir)
        .env_remove("GIT_DIR");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// What a command does to have Longhaul's own git run something on the host.
const NESTED: &str = r#"
id='-c user.name=a -c user.email=a@b'
evil() { printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = touch %s/%s-monitor\n[filter "evil"]\n\tclean = touch %s/%s-clean; cat\n\tsmudge = touch %s/%s-smudge; cat\n' $MARKS $1 $MARKS $1 $MARKS $1; }
git init -q nested && cd nested && echo a > a.txt && git add a.txt && git $id commit -qm nested
evil nested > .git/config; echo '* filter=evil' > .gitattributes; echo b > a.txt; head=$(cat .git/refs/heads/*); cd ..
echo '* filter=evil' > .gitattributes
git update-index --add --cacheinfo 160000,$head,nested
touch attacked
"#;
const COMMONDIR: &str = r#"
evil() { printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = touch %s/%s-monitor\n[filter "evil"]\n\tclean = touch %s/%s-clean; cat\n\tsmudge = touch %s/%s-smudge; cat\n' $MARKS $1 $MARKS $1 $MARKS $1; }
cp -r .git evil; evil common > evil/config; mkdir -p evil/info .git/info
echo '* filter=evil' > evil/info/attributes; echo '* filter=evil' > .git/info/attributes
evil own >> .git/config; echo ../evil > .git/commondir
touch attacked
"#;

/// Runs an attack in a shell, then what Longhaul does with git for `isolation: worktree`. Answers with what ran on the host.
fn attacked(sandbox: Option<longhaul::toolset::Sandbox>, nested: bool) -> Vec<String> {
    use longhaul::toolset::Shell;
    use longhaul::{Agent, Isolation, Longhaul, Order, Policy, SubAgentDialect, Team};
    let here = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
    let outer = TempDir::new_in(here).unwrap();
    let (repo, marks) = (outer.path().join("repo"), outer.path().join("marks"));
    fs::create_dir_all(&repo).unwrap();
    fs::create_dir(&marks).unwrap();
    fs::write(repo.join("a.txt"), "a").unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-q", "-m", "first"]);
    let attack = if nested { NESTED } else { COMMONDIR };
    let script = serde_json::json!({ "agents": {
        "lead": { "turns": [
            { "calls": [{ "tool": "shell", "arguments": { "cmd": attack } }] },
            { "calls": [{ "tool": "transfer_task", "arguments": { "agent": "worker", "task": "go" } }] },
            { "text": "done" },
        ] },
        "worker": { "turns": [{ "text": "fine" }] },
    } });
    let script = longhaul::model::scripted::ModelScript::parse("attack.yaml", &script.to_string()).unwrap();
    let model = std::sync::Arc::new(longhaul::model::scripted::ScriptedModel::new(script.into()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let attacked = runtime.block_on(async {
        let isolated = Policy::default().isolation(Isolation::Worktree);
        let shell = Shell::builder().env("MARKS", &marks);
        let shell = match sandbox {
            Some(sandbox) => shell.sandbox(sandbox),
            None => shell,
        };
        let worker = Agent::builder("worker").model(model.clone()).policy(isolated.clone()).build().unwrap();
        let mut lead = Agent::builder("lead").model(model).toolset(shell.build()).sub_agent(worker);
        lead = lead.dialect(SubAgentDialect::Background);
        if nested {
            lead = lead.policy(isolated);
        }
        let team = Team::new(lead.build().unwrap()).unwrap();
        let longhaul =
            Longhaul::builder(team).store(longhaul::store::MemoryStore::new()).start().await.unwrap();
        let id = longhaul.submit(Order::new("lead", "go").working_dir(&repo)).await.unwrap();
        let done = longhaul.wait([id]).await.unwrap();
        longhaul.shutdown().await;
        let output = done.tasks[0].output.clone();
        assert!(output.starts_with("done"), "{output}");
        match output
            .split_once("[Its git worktree: ")
            .map(|(_, rest)| rest.split(';').next().unwrap().to_owned())
        {
            Some(place) => Path::new(&place).join("attacked").exists(),
            None => repo.join("attacked").exists(),
        }
    });
    assert!(attacked, "the attack was made");
    let ran = fs::read_dir(&marks).unwrap();
    ran.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn no_command_has_longhauls_own_git_run_something() {
    for nested in [true, false] {
        assert_eq!(attacked(None, nested), Vec::<String>::new(), "without a sandbox");
    }
}

#[test]
fn in_bubblewrap_no_command_has_longhauls_own_git_run_something() {
    use longhaul::toolset::Sandbox;
    if !Path::new("/usr/bin/bwrap").exists() {
        return crate::kit::skipped("bubblewrap is not installed");
    }
    for nested in [true, false] {
        assert_eq!(attacked(Some(Sandbox::new()), nested), Vec::<String>::new());
    }
}

#[test]
fn under_landlock_no_command_has_longhauls_own_git_run_something() {
    use longhaul::toolset::Sandbox;
    if yard().is_none() {
        return;
    }
    for nested in [true, false] {
        let sandbox = Sandbox::new().without_bubblewrap().helper(env!("CARGO_BIN_EXE_longhaul"));
        assert_eq!(attacked(Some(sandbox), nested), Vec::<String>::new());
    }
}

#[test]
fn under_landlock_commands_do_not_read_what_is_hidden() {
    let Some(yard) = yard() else { return };
    let data = yard.0.path().canonicalize().unwrap().join("data");
    fs::create_dir_all(data.join("access")).unwrap();
    fs::write(data.join("access/token"), "lh_secret").unwrap();
    std::os::unix::fs::symlink(&data, yard.0.path().join("link")).unwrap();
    let flags = ["--hide", data.to_str().unwrap()];
    let fine = yard.run(&flags, "cat ../secret.txt /etc/passwd > copy && cat copy > /dev/null && ls /usr/bin > /dev/null && echo fine");
    assert_eq!(String::from_utf8_lossy(&fine.stdout), "fine\n", "{fine:?}");
    for cmd in [
        "cat ../data/access/token".to_owned(),
        "cat ../link/access/token".to_owned(),
        format!("cat {}/access/token", data.display()),
        format!("cat /proc/self/root{}/access/token", data.display()),
        "ls ../data".to_owned(),
        "ln ../data/access/token t && cat t".to_owned(),
    ] {
        let refused = yard.run(&flags, &cmd);
        assert!(!refused.status.success(), "{cmd}: {refused:?}");
        assert!(!String::from_utf8_lossy(&refused.stdout).contains("lh_secret"), "{cmd}: {refused:?}");
    }
}
