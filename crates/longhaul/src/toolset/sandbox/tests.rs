use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::toolset::tool_fixture::{call_context_in, call_tool};
use crate::toolset::{Shell, Toolset as _, ToolsetContext};

fn words(spec: &CommandSpec) -> String {
    let args: Vec<_> = spec.args.iter().map(|arg| arg.to_string_lossy()).collect();
    format!("{} {}", spec.program.display(), args.join(" "))
}

fn plain() -> CommandSpec {
    CommandSpec::shell("echo $x", "/work/sub".into(), Default::default())
}

fn paths() -> SandboxPaths {
    SandboxPaths {
        work: "/work".into(),
        writable: vec!["/work".into(), "/more".into()],
        ..SandboxPaths::default()
    }
}

#[test]
fn what_bubblewrap_is_told() {
    let mut paths = paths();
    paths.tmpfs = vec!["/tmp".into()];
    paths.git = vec![GitDirs {
        writable: vec!["/work/.git".into()],
        read_only: vec!["/work/.git/config".into()],
        masked: vec!["/work/.git/hooks".into()],
        remove_afterwards: vec!["/work/.git/commondir".into()],
    }];
    let spec = bubblewrap(Path::new("/usr/bin/bwrap"), &paths, false, plain());
    assert_eq!(
        words(&spec),
        "/bin/sh -c \"$@\"; exit $? sh /usr/bin/bwrap --unshare-pid --unshare-ipc --unshare-uts --die-with-parent \
         --new-session --cap-drop ALL --unshare-net --ro-bind / / --dev /dev --proc /proc \
         --ro-bind-try /proc/sys /proc/sys --ro-bind-try /proc/sysrq-trigger /proc/sysrq-trigger \
         --ro-bind-try /proc/irq /proc/irq --ro-bind-try /proc/bus /proc/bus --tmpfs /tmp \
         --ro-bind-try /run/current-system /run/current-system --bind /work /work --bind /more /more \
         --bind /work/.git /work/.git --ro-bind /work/.git/config /work/.git/config --tmpfs /work/.git/hooks \
         --chdir /work/sub -- /bin/sh -c echo $x"
    );
    let spec = bubblewrap(Path::new("/usr/bin/bwrap"), &paths, true, plain());
    assert!(!words(&spec).contains("--unshare-net"));
}

#[test]
fn what_the_helper_is_told() {
    let spec = landlocked(Path::new("/opt/longhaul"), &paths(), true, plain());
    assert_eq!(words(&spec), "/opt/longhaul sandbox-exec --rw /work --rw /more --net -- /bin/sh -c echo $x");
}

#[tokio::test]
async fn where_there_is_no_sandbox_nothing_runs() {
    let sandbox = Sandbox::new().without_bubblewrap();
    let why = sandbox.confine(plain(), Path::new("/")).await.unwrap_err().to_string();
    assert!(
        why.contains("the command was not run") && why.contains("Install bubblewrap, or set `sandbox: off`"),
        "{why}"
    );
}

#[test]
fn a_forged_worktree_opens_nothing() {
    let dir = TempDir::new().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("work/fake/worktrees/x")).unwrap();
    fs::create_dir_all(at("elsewhere/objects")).unwrap();
    fs::write(at("work/.git"), format!("gitdir: {}", at("work/fake/worktrees/x").display())).unwrap();
    fs::write(at("work/fake/worktrees/x/gitdir"), at("work/.git").display().to_string()).unwrap();
    fs::write(at("work/fake/worktrees/x/commondir"), at("elsewhere").display().to_string()).unwrap();
    let nothing = GitDirs { read_only: vec![at("work/.git")], ..GitDirs::default() };
    assert_eq!(GitDirs::for_worktree(&at("work")), Ok(Some(nothing.clone())));
    fs::write(at("work/.git"), format!("gitdir: {}", at("elsewhere").display())).unwrap();
    assert_eq!(GitDirs::for_worktree(&at("work")), Ok(Some(nothing)));
}

/// Runs commands in a bubblewrap sandbox, in `work` inside a temporary directory.
struct SandboxFixture {
    outer: TempDir,
    shell: Shell,
}

impl SandboxFixture {
    /// Returns `None` where bubblewrap does not work. The test is then skipped, and counted.
    async fn new(sandbox: Sandbox) -> Option<Self> {
        // Use the directory of the checkout, wherever it is.
        let here = std::env::current_exe().unwrap();
        SandboxFixture::new_in(here.parent().unwrap(), sandbox).await
    }

    async fn new_in(place: &Path, sandbox: Sandbox) -> Option<Self> {
        if let Err(why) = bubblewrap_works(false).await {
            crate::testing::report_skipped(&why.to_string());
            return None;
        }
        let outer = TempDir::new_in(place).unwrap();
        fs::create_dir_all(outer.path().join("work/sub")).unwrap();
        fs::write(outer.path().join("secret.txt"), "secret").unwrap();
        Some(SandboxFixture { outer, shell: Shell::builder().sandbox(sandbox).build() })
    }

    fn work(&self) -> PathBuf {
        self.outer.path().join("work")
    }

    async fn run(&self, cmd: &str) -> Result<String, String> {
        let (context, _) = call_context_in(&self.work());
        let called = call_tool(&self.shell, "shell", json!({ "cmd": cmd }), &context).await;
        called.map(|output| output.text).map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn in_bubblewrap_commands_write_only_below_the_working_directory() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    writes_only_below(&fixture).await;
}

/// In `/tmp`, which is otherwise private to the command.
#[tokio::test]
async fn in_bubblewrap_commands_write_only_below_the_working_directory_in_tmp() {
    let Some(fixture) = SandboxFixture::new_in(Path::new("/tmp"), Sandbox::new()).await else { return };
    let beside = TempDir::new_in("/tmp").unwrap();
    writes_only_below(&fixture).await;
    assert_eq!(
        fixture.run("cat ../secret.txt").await.unwrap(),
        "secret\n[exit code 0]",
        "it is read as elsewhere"
    );
    assert!(
        fixture.run(&format!("ls {}", beside.path().display())).await.is_err(),
        "what else is in /tmp is not there"
    );
}

async fn writes_only_below(fixture: &SandboxFixture) {
    let work = fixture.work();
    let git = |args: &str| format!("git -c user.name=a -c user.email=a@b {args}");
    let made = std::process::Command::new("git").args(["init", "-q"]).current_dir(&work).status();
    assert!(made.unwrap().success());

    let text = fixture
        .run("echo hi > a.txt; cat a.txt; mkdir d; echo x > /tmp/own; cat /tmp/own; ls /dev/null")
        .await
        .unwrap();
    assert_eq!(text, "hi\nx\n/dev/null\n[exit code 0]");
    assert_eq!(fs::read_to_string(work.join("a.txt")).unwrap(), "hi\n");
    let outer = fixture.outer.path().display().to_string();
    for (way, cmd) in [
        ("redirection", "echo pwned > ../secret.txt".to_owned()),
        ("an absolute path", format!("echo pwned > {outer}/new.txt")),
        ("a link", format!("ln -s {outer}/secret.txt s; echo pwned > s")),
        ("a hard link", format!("ln {outer}/secret.txt h && echo pwned > h")),
        ("removal", "rm -f ../secret.txt; test ! -e ../secret.txt && echo pwned > ../secret.txt".to_owned()),
        ("another place", "echo pwned > /etc/longhaul-pwned".to_owned()),
        ("another process's files", "echo pwned > /proc/1/root/etc/longhaul-pwned".to_owned()),
        ("a new mount", "mount -t tmpfs none /etc".to_owned()),
        ("a remount", "mount -o remount,rw /".to_owned()),
        ("the kernel's settings", "test -w /proc/sys/kernel/core_pattern".to_owned()),
        ("a device", "mknod disk b 7 0".to_owned()),
    ] {
        assert!(fixture.run(&cmd).await.is_err(), "{way}");
        assert_eq!(fs::read_to_string(fixture.outer.path().join("secret.txt")).unwrap(), "secret", "{way}");
        assert!(!Path::new("/etc/longhaul-pwned").exists(), "{way}");
    }
    assert_eq!(fs::read_dir(fixture.outer.path()).unwrap().count(), 2, "nothing came beside them");
    assert!(!Path::new("/tmp/own").exists(), "their /tmp is their own");

    fs::remove_dir_all(work.join(".git/hooks")).unwrap();
    for cmd in [
        "git config core.fsmonitor 'touch pwned'",
        "mv .git/hooks .git/hooks-old",
        "mv .git .git-old",
        "rm -rf .git/hooks .git/config; test ! -e .git/config",
        "ln -sf /dev/null .git/config",
        "mv .git/config .git/config-old",
    ] {
        assert!(fixture.run(cmd).await.is_err(), "{cmd}");
    }
    // Commands may write there, and only they see it.
    let _ = fixture.run("echo pwned > .git/hooks/post-commit").await;
    assert_eq!(fs::read_dir(work.join(".git/hooks")).unwrap().count(), 0, "nothing has become a hook");
    // It cannot be prevented, so it is removed when the command has ended.
    fixture.run("mkdir evil; git init -q --bare evil; echo ../evil > .git/commondir").await.unwrap();
    assert!(!work.join(".git/commondir").exists());
    let commit = format!("{} && {}", git("add a.txt"), git("commit -qm one && git log --oneline | wc -l"));
    assert!(fixture.run(&commit).await.unwrap().contains("1\n[exit code 0]"), "commits are fine");
    // If there was one before, commands are refused.
    fs::write(work.join(".git/commondir"), "../evil").unwrap();
    assert!(fixture.run("true").await.unwrap_err().contains("commondir"));
    fs::remove_file(work.join(".git/commondir")).unwrap();
}

#[tokio::test]
async fn in_bubblewrap_other_working_trees_keep_their_configuration() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    let work = fixture.work();
    let git = |dir: &Path, args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"])
            .args(args);
        assert!(command.current_dir(dir).status().unwrap().success(), "{args:?}");
    };
    let inner = fixture.outer.path().join("inner");
    for dir in [&inner, &work] {
        fs::create_dir_all(dir).unwrap();
        git(dir, &["init", "-q"]);
        git(dir, &["commit", "-q", "--allow-empty", "-m", "one"]);
    }
    git(&work, &["submodule", "--quiet", "add", "../inner", "module"]);
    git(&work, &["commit", "-q", "-m", "two"]);
    git(&work, &["worktree", "add", "-q", "../linked"]);
    git(&work, &["config", "extensions.worktreeConfig", "true"]);
    let kept = ["modules/module/config", "worktrees/linked/commondir", "worktrees/linked/gitdir", "config"];
    let kept = || kept.map(|name| fs::read_to_string(work.join(".git").join(name)).unwrap());
    let before = kept();
    for cmd in [
        "echo pwned > .git/worktrees/linked/commondir",
        "echo pwned > .git/worktrees/linked/gitdir",
        "mv .git/worktrees .git/old",
        "mv .git/worktrees/linked .git/worktrees/old",
        "echo pwned >> .git/config.worktree",
        "echo pwned >> .git/modules/module/config",
        "echo pwned > .git/modules/module/hooks/post-checkout",
        "mv .git/modules .git/old",
        "mv .git/modules/module .git/old",
    ] {
        assert!(fixture.run(cmd).await.is_err(), "{cmd}");
        assert_eq!(kept(), before, "{cmd}");
    }
    assert_eq!(fs::read_to_string(work.join(".git/config.worktree")).unwrap(), "");
}

#[tokio::test]
async fn in_bubblewrap_there_is_no_network_unless_it_is_allowed() {
    if !Path::new("/bin/bash").exists() {
        return crate::testing::report_skipped("there is no /bin/bash");
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("/bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'");
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    assert!(fixture.run(&connect).await.is_err());
    assert!(fixture.run("grep -v lo: /proc/net/dev | grep :").await.is_err(), "only the loopback of its own");
    let Some(fixture) = SandboxFixture::new(Sandbox::new().network(true)).await else { return };
    assert!(fixture.run(&connect).await.unwrap().contains("connected"));
}

#[tokio::test]
async fn in_bubblewrap_nobody_survives_by_leaving_the_group() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new().network(true)).await else { return };
    // The duration of its sleep identifies the process.
    let mark = format!("{}.{}", 100_000 + std::process::id(), 25);
    let text = fixture.run(&format!("setsid sleep {mark} & echo begun")).await.unwrap();
    assert!(text.starts_with("begun"), "{text}");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let alive = || {
        let found = std::process::Command::new("pgrep").args(["-f", &format!("^sleep {mark}")]).status();
        found.is_ok_and(|status| status.success())
    };
    while alive() {
        assert!(std::time::Instant::now() < deadline, "it is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stop_reaches_into_bubblewrap() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    let tools = fixture.shell.open(&ToolsetContext::new("tester")).await.unwrap();
    let (context, _) = call_context_in(&fixture.work());
    let begun = std::time::Instant::now();
    let arguments = json!({ "cmd": "trap '' TERM; echo up; sleep 100", "timeout": 1.0 }).to_string();
    let why = tools[0].call(&arguments, &context).await.unwrap_err().to_string();
    assert!(why.contains("took longer than 1 s"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn in_bubblewrap_temporary_directories_and_run_are_empty_and_of_the_commands_own() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    let kept = std::env::current_exe().unwrap().starts_with("/tmp");
    for dir in ["/tmp", "/var/tmp", "/run"] {
        if kept && dir == "/tmp" {
            continue; // It contains the path to the working directory.
        }
        assert_eq!(
            fixture
                .run(&format!("ls -A {dir} | grep -v -e ^current-system$ -e ^systemd$"))
                .await
                .unwrap_err(),
            "(no output)\n[exit code 1]",
            "{dir}"
        );
    }
    let mark = format!("longhaul-own-{}", std::process::id());
    fixture.run(&format!("touch /tmp/{mark} /var/tmp/{mark} /run/{mark}")).await.unwrap();
    for dir in ["/tmp", "/var/tmp", "/run"] {
        assert!(!Path::new(dir).join(&mark).exists(), "{dir}");
    }
    assert!(fixture.run(&format!("ls /var/tmp/{mark}")).await.is_err(), "the next command has another");
}

/// Uses Perl, because git requires it and so it is installed.
fn perl(script: &str) -> Option<String> {
    if !Path::new("/usr/bin/perl").exists() {
        crate::testing::report_skipped("there is no /usr/bin/perl");
        return None;
    }
    Some(format!("/usr/bin/perl -MSocket -e '{script}'"))
}

#[tokio::test]
async fn in_bubblewrap_only_sockets_in_tmp_and_run_are_out_of_reach() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    let connect = |path: &str| {
        perl(&format!(
            "socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, pack_sockaddr_un({path})) or die $!; print qq(connected)"
        ))
    };
    let listening = |path: &Path| std::os::unix::net::UnixListener::bind(path).unwrap();
    let in_tmp = TempDir::new_in("/tmp").unwrap();
    let (hidden, open) = (in_tmp.path().join("s"), PathBuf::from("sub/s"));
    let _hidden = listening(&hidden);
    // The path of a socket must be short, so bind it relative to this directory.
    let here = std::os::unix::net::UnixListener::bind(short(&fixture.work().join(&open)));
    let Some(cmd) = connect(&format!("q({})", hidden.display())) else { return };
    assert!(fixture.run(&cmd).await.is_err());
    if let Ok(_here) = here {
        let cmd = connect("q(sub/s)").unwrap();
        assert!(fixture.run(&cmd).await.unwrap().contains("connected"), "elsewhere they are reached");
    }
    // Abstract sockets, which have no file, belong to the network.
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("longhaul-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let cmd = connect(&format!("qq(\\0{name})")).unwrap();
    assert!(fixture.run(&cmd).await.is_err());
    let Some(fixture) = SandboxFixture::new(Sandbox::new().network(true)).await else { return };
    assert!(fixture.run(&cmd).await.unwrap().contains("connected"), "the test can tell");
}

/// Returns a short path through an open directory: the path of a socket has at most 107 bytes.
fn short(path: &Path) -> PathBuf {
    let dir = fs::File::open(path.parent().unwrap()).unwrap();
    use std::os::fd::IntoRawFd as _;
    // Keep it open until the test ends: the path is resolved when the socket is bound.
    Path::new("/proc/self/fd").join(dir.into_raw_fd().to_string()).join(path.file_name().unwrap())
}

#[tokio::test]
async fn in_bubblewrap_the_superuser_has_no_capabilities_and_nobody_else_is_signalled() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    let text = fixture
        .run("grep -E '^(Cap(Eff|Prm|Inh|Amb)|NoNewPrivs)' /proc/self/status | tr -d '0: \\t'")
        .await
        .unwrap();
    assert_eq!(text, "CapInh\nCapPrm\nCapEff\nCapAmb\nNoNewPrivs1\n[exit code 0]");
    let mut other = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    assert!(fixture.run(&format!("kill -9 {}", other.id())).await.is_err());
    assert!(other.try_wait().unwrap().is_none(), "it lives");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test]
async fn in_bubblewrap_sigterm_is_not_passed_on() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    let tools = fixture.shell.open(&ToolsetContext::new("tester")).await.unwrap();
    let (context, _) = call_context_in(&fixture.work());
    let cmd = "trap 'echo cleaned > cleaned; exit 0' TERM; touch up; while :; do sleep 0.02; done";
    let arguments = json!({ "cmd": cmd, "timeout": 100.0 }).to_string();
    let up = fixture.work().join("up");
    let (called, ()) = tokio::join!(tools[0].call(&arguments, &context), async {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !up.exists() && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        context.cancel.cancel();
    });
    assert!(called.is_err() && up.exists());
    assert!(!fixture.work().join("cleaned").exists());
}

/// A documented limit: repositories that a command creates are not protected.
#[tokio::test]
async fn in_bubblewrap_a_command_can_make_repositories_and_those_are_not_protected() {
    let Some(fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    let hook = |at: &str| {
        format!("printf '#!/bin/sh\\ntouch ran\\n' > {at}/post-checkout; chmod +x {at}/post-checkout")
    };
    for (what, cmd, made) in [
        ("a new .git", format!("git init -q . && {}", hook(".git/hooks")), ".git/hooks/post-checkout"),
        (
            "a nested one",
            format!("git init -q nested && {}", hook("nested/.git/hooks")),
            "nested/.git/hooks/post-checkout",
        ),
        (
            "a bare one",
            format!("git init -q --bare bare && {}", hook("bare/hooks")),
            "bare/hooks/post-checkout",
        ),
    ] {
        let _ = fs::remove_dir_all(fixture.work().join(".git"));
        fixture.run(&cmd).await.unwrap();
        assert!(fixture.work().join(made).exists(), "{what}");
    }
    // Links are not followed to protect their targets.
    let _ = fs::remove_dir_all(fixture.work().join(".git"));
    fs::rename(fixture.work().join("nested/.git"), fixture.work().join("moved")).unwrap();
    std::os::unix::fs::symlink("moved", fixture.work().join(".git")).unwrap();
    fixture.run("echo x > .git/hooks/post-merge").await.unwrap();
    assert!(fixture.work().join("moved/hooks/post-merge").exists());
}

#[tokio::test]
async fn in_bubblewrap_commands_do_not_see_the_tokens_and_the_store_of_the_own_server() {
    let Some(mut fixture) = SandboxFixture::new(Sandbox::new()).await else { return };
    // Beside the working directory, and below it.
    let places = [fixture.outer.path().join("data"), fixture.work().join("data")];
    for place in &places {
        fs::create_dir_all(place.join("access")).unwrap();
        fs::write(place.join("access/token"), "lh_secret").unwrap();
        fs::write(place.join("longhaul.db"), "the store").unwrap();
    }
    let server = crate::toolset::OwnServer::new([], places);
    fixture.shell = Shell::builder().sandbox(Sandbox::new().own_server(&server)).build();
    for path in ["../data/access/token", "data/access/token", "../data/longhaul.db", "data/longhaul.db"] {
        let refused = fixture.run(&format!("cat {path}")).await;
        let text = refused.unwrap_or_else(|error| error);
        assert!(!text.contains("lh_secret") && !text.contains("the store"), "{path}: {text}");
    }
    let found = fixture.run("grep -rs lh_secret .. && echo found").await;
    assert!(!found.clone().unwrap_or_else(|error| error).contains("found"), "{found:?}");
    let _ = fixture.run("rm -rf ../data/access data/access").await;
    assert!(fixture.work().join("data/access/token").exists(), "nor can they remove them");
    assert!(fixture.run("echo x > own.txt && cat own.txt").await.unwrap().contains('x'), "the rest works");
}

#[test]
fn landlock_refuses_what_it_cannot_hide() {
    let mut paths = paths();
    paths.hidden = vec!["/data".into()];
    assert!(check_landlock_can_hide(&paths).is_ok());
    let spec = landlocked(Path::new("/opt/longhaul"), &paths, false, plain());
    assert!(words(&spec).contains("--rw /more --hide /data -- "), "{}", words(&spec));
    paths.hidden = vec!["/work/data".into()];
    let why = check_landlock_can_hide(&paths).unwrap_err().to_string();
    assert!(why.contains("/work/data") && why.contains("--data DIR"), "{why}");
}
