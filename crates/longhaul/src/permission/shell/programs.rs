//! Programs that run other programs, and what they run.

use super::parse::SimpleCommand;
use super::scripts;
use super::{CommandLine, DEEPEST, MOST, ShellCommand, ShellWord, WordPiece, collect_line};

/// A program that runs the command after its own options.
struct WrapperProgram {
    name: &'static str,
    /// The letters of options that take a value, and the long ones, in one text.
    values: &'static str,
    /// How many words come before the command.
    before: usize,
}

const fn wrapper(name: &'static str, values: &'static str, before: usize) -> WrapperProgram {
    WrapperProgram { name, values, before }
}

const WRAPPERS: [WrapperProgram; 48] = [
    wrapper(
        "sudo",
        "u g h p C D R T U r t user group host prompt close-from chdir chroot command-timeout other-user role type",
        0,
    ),
    wrapper("doas", "u C", 0),
    wrapper("pkexec", "user", 0),
    wrapper("run0", "u g D nice user group chdir", 0),
    wrapper("env", "u C unset chdir", 0),
    wrapper("nice", "n adjustment", 0),
    wrapper("ionice", "c n class classdata", 0),
    wrapper("chrt", "T P D", 1),
    wrapper("taskset", "", 1),
    wrapper("timeout", "k s kill-after signal", 1),
    wrapper("gtimeout", "k s kill-after signal", 1),
    wrapper("nohup", "", 0),
    wrapper("setsid", "", 0),
    wrapper("stdbuf", "i o e input output error", 0),
    wrapper("unbuffer", "", 0),
    wrapper("time", "f o format output", 0),
    wrapper("command", "", 0),
    wrapper("builtin", "", 0),
    wrapper("exec", "a", 0),
    wrapper("chroot", "userspec groups", 1),
    wrapper("unshare", "S G R w setuid setgid root wd map-user map-group propagation", 0),
    wrapper("nsenter", "t S G target setuid setgid", 0),
    wrapper("setpriv", "reuid regid groups inh-caps ambient-caps bounding-set securebits", 0),
    wrapper("capsh", "", 0),
    wrapper("setarch", "", 1),
    wrapper("linux32", "", 0),
    wrapper("linux64", "", 0),
    wrapper("arch", "", 0),
    wrapper("prlimit", "p", 0),
    wrapper("numactl", "C N m p i physcpubind cpunodebind membind", 0),
    wrapper("busybox", "", 0),
    wrapper("toybox", "", 0),
    wrapper("fakeroot", "l s i b lib faked", 0),
    wrapper("dbus-run-session", "config-file dbus-daemon", 0),
    wrapper("xvfb-run", "n e f p s w server-num error-file auth-file server-args wait", 0),
    wrapper("catchsegv", "", 0),
    wrapper("strace", "o e E p s S u a I O b P X", 0),
    wrapper("ltrace", "o e E p s S u a n x l", 0),
    wrapper("rlwrap", "", 0),
    wrapper("proxychains", "f", 0),
    wrapper("proxychains4", "f", 0),
    wrapper("torsocks", "", 0),
    wrapper("caffeinate", "t w", 0),
    wrapper("cpulimit", "l p e", 0),
    wrapper("choom", "n p", 0),
    wrapper("coproc", "", 0),
    wrapper("noglob", "", 0),
    wrapper("nocorrect", "", 0),
];

/// Programs that never run one of their arguments as a command.
const INERT: &str = "echo printf grep egrep fgrep zgrep cat tac ls ll head tail wc uniq cut tr diff cmp comm paste join \
    nl fold fmt column stat file test [ [[ true false : pwd cd pushd popd mkdir rmdir touch cp mv ln \
    chmod chown chgrp du df date id whoami who hostname uname which type hash whereis basename dirname \
    realpath readlink seq sleep tee jq yq tree rustc rustfmt gofmt tsc eslint prettier pytest mypy ruff \
    black gh kill ps pgrep export declare typeset local readonly unset set shift return exit break \
    continue wait read umask ulimit getopts let xxd od hexdump base64 md5sum sha1sum sha256sum b2sum \
    gzip gunzip zcat bzip2 xz zstd unzip cal bc expr factor yes rm shred curl ping dig nslookup brew pip \
    pip3 apropos help tput stty clear sync mktemp install truncate shuf rev iconv dos2unix lsof free \
    uptime top nproc lscpu netstat jobs fg bg disown";

const SHELLS: &str = "sh bash dash zsh ksh mksh ash rbash yash fish csh tcsh pdksh elvish nu";

/// Variables that make programs run their content, or the file that they name.
const HOOKS: &str = "BASH_ENV ENV PROMPT_COMMAND PS4 SHELLOPTS BASHOPTS LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH \
    DYLD_INSERT_LIBRARIES PERL5OPT PERL5DB RUBYOPT PYTHONSTARTUP NODE_OPTIONS";

/// Variables that hold a command.
const COMMANDS: &str = "PAGER EDITOR VISUAL BROWSER SHELL LESSOPEN LESSCLOSE MANPAGER SUDO_ASKPASS SSH_ASKPASS CC CXX LD \
    RUSTC RUSTC_WRAPPER RUSTDOC TAR_OPTIONS RSYNC_RSH CVS_RSH MAKEFLAGS";

/// Whether a list of names contains one.
fn listed(all: &str, name: &str) -> bool {
    all.split_ascii_whitespace().any(|own| own == name)
}

/// Adds a command and everything that it runs.
pub(super) fn collect_command(simple: SimpleCommand, found: &mut CommandLine, depth: usize, sure: bool) {
    for (name, value) in &simple.sets {
        let runs = listed(COMMANDS, name) || name.starts_with("GIT_") || name.starts_with("CARGO_");
        let hooks = listed(HOOKS, name);
        match value.known() {
            _ if hooks && sure => found.unclear(format!("`{name}` makes programs run what it names")),
            None if runs && sure => {
                found.unclear(format!("`{name}` is set to what nobody knows before it runs"))
            }
            None => {}
            Some("") => {}
            Some(text) => collect_line(text, found, depth + 1, false),
        }
    }
    run(&simple.words, found, depth, sure);
}

/// Adds what these words run.
fn run(words: &[ShellWord], found: &mut CommandLine, depth: usize, sure: bool) {
    let mut words = words;
    loop {
        // An empty variable is not a word.
        let Some(first) = words.first() else { return };
        if depth > DEEPEST || found.commands.len() >= MOST {
            return found.unclear("it runs more commands than can be looked at");
        }
        found.commands.push(ShellCommand { words: words.to_vec(), sure });
        let Some(name) = first.program() else {
            if sure {
                found.unclear("the name of a command in it is known only when it runs");
            }
            return;
        };
        let name = name.to_owned();
        let rest = &words[1..];
        let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) else {
            return program(&name, words, found, depth, sure);
        };
        // It only reports on the command and does not run it.
        if name == "command"
            && rest
                .first()
                .is_some_and(|word| word.start().starts_with(['-']) && word.start().contains(['v', 'V']))
        {
            return;
        }
        let Some(inner) = wrapped(wrapper, rest, found, depth, sure) else { return };
        if rest.is_empty() || inner.len() == words.len() {
            return;
        }
        if found.commands.iter().filter(|command| command.words.last() == words.last()).count() > 64 {
            return found.unclear("it runs one command through too many others");
        }
        words = inner;
    }
}

/// The command that a wrapper runs, after its options; adds what the options run.
fn wrapped<'a>(
    wrapper: &WrapperProgram,
    rest: &'a [ShellWord],
    found: &mut CommandLine,
    depth: usize,
    sure: bool,
) -> Option<&'a [ShellWord]> {
    let takes: Vec<&str> = wrapper.values.split(' ').collect();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        if word.splits && sure {
            found.unclear(format!("what `{}` runs is known only when it runs", wrapper.name));
        }
        let text = word.start();
        if text == "--" {
            at += 1;
            break;
        }
        let is_option = text.starts_with('-') && text != "-" || (wrapper.name == "env" && text == "-");
        let sets = text.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        let may_set = matches!(wrapper.name, "env" | "sudo" | "doas" | "command");
        if !(is_option || sets && may_set) {
            break;
        }
        at += 1;
        if !is_option {
            continue;
        }
        if text == "-" {
            continue;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if wrapper.name == "env" && "split-string".starts_with(name) && name.len() > 1 {
                split_string(value.map(str::to_owned), rest, at, found, depth, sure);
                return None;
            }
            let known = takes.iter().any(|take| take.len() > 1 && take.starts_with(name));
            at += usize::from(value.is_none() && known);
            continue;
        }
        let letters = &text[1..];
        if wrapper.name == "env"
            && let Some(place) = letters.find('S')
        {
            let attached = &letters[place + 1..];
            let attached = (!attached.is_empty()).then(|| attached.to_owned());
            split_string(attached.filter(|_| word.known().is_some()), rest, at, found, depth, sure);
            return None;
        }
        // The last letter of some options takes what follows; an earlier one has its value in the same word.
        let value = letters
            .char_indices()
            .find(|(_, c)| takes.iter().any(|take| take.len() == 1 && take.starts_with(*c)));
        at += usize::from(value.is_some_and(|(place, c)| place + c.len_utf8() == letters.len()));
    }
    Some(rest.get(at + wrapper.before..).unwrap_or_default())
}

/// `env -S`: several words in one text, and more of them after it.
fn split_string(
    attached: Option<String>,
    rest: &[ShellWord],
    at: usize,
    found: &mut CommandLine,
    depth: usize,
    sure: bool,
) {
    let (text, more) = match attached {
        Some(text) => (Some(text), rest.get(at..).unwrap_or_default()),
        None => (
            rest.get(at).and_then(ShellWord::known).map(str::to_owned),
            rest.get(at + 1..).unwrap_or_default(),
        ),
    };
    let Some(text) = text.filter(|text| !text.contains(['$', '\\'])) else {
        return found.unclear("what `env -S` runs is known only when it runs");
    };
    let text = format!("env {text}");
    let mut parsed = super::parse::ParsedCommands::default();
    let read = super::parse::parse(&text, depth + 1, &mut parsed);
    match (read, parsed.commands.pop()) {
        (Ok(()), Some(mut simple)) if parsed.commands.is_empty() => {
            simple.words.extend_from_slice(more);
            run(&simple.words, found, depth + 1, sure);
        }
        _ => found.unclear("what `env -S` runs cannot be read"),
    }
}

/// Adds what a program runs that is not a wrapper.
fn program(name: &str, words: &[ShellWord], found: &mut CommandLine, depth: usize, sure: bool) {
    let args = &words[1..];
    let line = |text: &str, found: &mut CommandLine, sure: bool| collect_line(text, found, depth + 1, sure);
    match name {
        _ if listed(SHELLS, name) => shell(name, args, found, depth, sure),
        "eval" => match joined(args) {
            Some(text) => line(&text, found, sure),
            None if sure => found.unclear("`eval` runs a text that is known only when it runs"),
            None => {}
        },
        "alias" => {
            for word in args {
                match word.known().and_then(|text| text.split_once('=')) {
                    Some((_, value)) => line(&format!("{value} \"$@\""), found, sure),
                    None if word.known().is_some() => {}
                    None if sure => found.unclear("`alias` names a command that is known only when it runs"),
                    None => {}
                }
            }
        }
        "trap" => match args.iter().find(|word| !word.start().starts_with('-')).map(ShellWord::known) {
            Some(Some(text)) => line(text, found, sure),
            Some(None) if sure => found.unclear("`trap` runs a text that is known only when it runs"),
            _ => {}
        },
        "." | "source" => {
            let odd = |word: &ShellWord| {
                word.known().is_none_or(|file| file.starts_with("/dev/") || file.starts_with("/proc/"))
            };
            if sure && args.first().is_none_or(odd) {
                found.unclear(format!("`{name}` runs what is known only when it runs"));
            }
        }
        "enable" | "bind" | "complete" | "compgen" | "mapfile" | "readarray"
            if sure && args.iter().any(|word| word.start().starts_with(['-']) || word.known().is_none()) =>
        {
            found.unclear(format!("`{name}` may run other commands"));
        }
        "export" | "declare" | "typeset" | "local" | "readonly" => {
            let sets = args.iter().filter_map(|word| {
                let (name, value) = word.start().split_once('=')?;
                let known = word.known().is_some();
                let value = if known { ShellWord::text(value) } else { ShellWord::gap() };
                Some((name.to_owned(), value))
            });
            collect_command(
                SimpleCommand { sets: sets.collect(), words: Vec::new() },
                found,
                depth + 1,
                sure,
            );
        }
        "find" | "gfind" | "fd" | "fdfind" => {
            let runs = ["-exec", "-execdir", "-ok", "-okdir", "-x", "--exec", "-X", "--exec-batch"];
            for (at, word) in args.iter().enumerate() {
                if word.known().is_some_and(|text| runs.contains(&text)) {
                    let inner: Vec<ShellWord> = args[at + 1..]
                        .iter()
                        .take_while(|word| word.known() != Some(";"))
                        .map(filled)
                        .collect();
                    run(&inner, found, depth + 1, sure);
                } else if word.splits && sure {
                    found.unclear(format!("what `{name}` runs is known only when it runs"));
                }
            }
        }
        "xargs" | "gxargs" | "parallel" => xargs(name, args, found, depth, sure),
        "flock" | "su" | "runuser" | "script" | "watch" | "ssh" | "systemd-run" | "hyperfine" | "entr"
        | "at" | "batch" => {
            if sure && args.iter().any(|word| word.known().is_none()) {
                found.unclear(format!("what `{name}` runs is known only when it runs"));
            }
            if sure && matches!(name, "at" | "batch") {
                found.unclear(format!("`{name}` runs what it reads"));
            }
            embedded(args, found, depth);
        }
        "awk" | "gawk" | "mawk" | "nawk" => scripts::awk(name, args, found, sure),
        "sed" | "gsed" => scripts::sed(name, args, found, sure),
        "rg" | "ag" | "ack" if !args.iter().any(|word| word.start().starts_with("--p")) => {}
        "git" => git(args, found, depth),
        _ if scripts::interpreter(name, args, found, sure) => {}
        _ if listed(INERT, name) => {}
        // It may run its arguments: if a rule names one of them, ask.
        _ => embedded(args, found, depth),
    }
}

/// Adds arguments that may be a command, or contain one.
fn embedded(args: &[ShellWord], found: &mut CommandLine, depth: usize) {
    for (at, word) in args.iter().enumerate() {
        if found.commands.len() >= MOST {
            return found.unclear("it runs more commands than can be looked at");
        }
        let text = word.start().trim_start_matches([':', '!', '+', '@']);
        if word.program().is_some() && !text.starts_with('-') {
            let mut words = args[at..].to_vec();
            if text.len() < word.start().len() {
                words[0] = ShellWord::text(text);
            }
            found.commands.push(ShellCommand { words, sure: false });
        }
        let mut inner = Some(text);
        while let Some(text) = inner {
            if text.contains([' ', ';', '|', '&', '\n', '\t']) {
                collect_line(text.trim_start_matches(['!', ':']), found, depth + 1, false);
            } else if text.len() < word.start().len() && !text.is_empty() {
                let mut words = args[at..].to_vec();
                words[0] = ShellWord::text(text.trim_start_matches(['!', ':']));
                found.commands.push(ShellCommand { words, sure: false });
            }
            inner = text.split_once(['=', '!', '\'', '"']).map(|(_, after)| after);
        }
    }
}

/// A shell: `-c` and its text, or a file, or stdin.
fn shell(name: &str, args: &[ShellWord], found: &mut CommandLine, depth: usize, sure: bool) {
    let mut at = 0;
    let mut takes_text = false;
    while let Some(word) = args.get(at) {
        let Some(text) = word.known() else { break };
        if text == "--" || text == "-" {
            at += 1;
            break;
        }
        if matches!(text, "--version" | "--help") {
            return;
        }
        if !text.starts_with(['-', '+']) {
            break;
        }
        at += 1;
        if text.starts_with("--") {
            at += usize::from(matches!(text, "--rcfile" | "--init-file"));
            takes_text |= text == "--command";
            if text.starts_with("--command=") || text.starts_with("--init") || text.starts_with("--rcfile") {
                return found.unclear(format!("`{name}` runs more than its command"));
            }
            continue;
        }
        takes_text |= text.starts_with('-') && text.contains('c');
        at += usize::from(text.ends_with(['o', 'O']));
    }
    match (takes_text, args.get(at).map(ShellWord::known)) {
        (true, Some(Some(text))) => collect_line(text, found, depth + 1, sure),
        // A file: its content is not read.
        (false, Some(Some(file))) if !file.starts_with("/dev/") && !file.starts_with("/proc/") => {}
        _ if sure => found.unclear(format!("`{name}` runs a text that is known only when it runs")),
        _ => {}
    }
}

/// The command of `xargs`, followed by what it reads.
fn xargs(name: &str, args: &[ShellWord], found: &mut CommandLine, depth: usize, sure: bool) {
    if name == "parallel" {
        if sure {
            found.unclear("`parallel` runs what it reads");
        }
        return embedded(args, found, depth);
    }
    let mut at = 0;
    let mut replaced: Option<String> = None;
    while let Some(word) = args.get(at) {
        let text = word.start();
        if word.known().is_none() && sure {
            found.unclear("what `xargs` runs is known only when it runs");
        }
        if text == "--" {
            at += 1;
            break;
        }
        if !text.starts_with('-') {
            break;
        }
        at += 1;
        if let Some(long) = text.strip_prefix("--") {
            let (long, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if long.starts_with("rep") {
                replaced = Some(value.unwrap_or("{}").to_owned());
            }
            let takes = ["arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"];
            at += usize::from(value.is_none() && takes.contains(&long));
            continue;
        }
        let letters = &text[1..];
        if let Some(place) = letters.find(['I', 'J', 'i']) {
            let attached = &letters[place + 1..];
            let own = letters[place..].starts_with('i');
            replaced = Some(match (attached.is_empty(), own) {
                (false, _) => attached.to_owned(),
                (true, true) => "{}".to_owned(),
                (true, false) => {
                    at += 1;
                    args.get(at - 1).map(|word| word.start().to_owned()).unwrap_or_default()
                }
            });
            continue;
        }
        let takes = letters.find(['a', 'E', 'd', 'L', 'n', 'P', 's', 'R', 'S']);
        at += usize::from(takes.is_some_and(|place| place + 1 == letters.len()));
    }
    let mut inner = args.get(at..).unwrap_or_default().to_vec();
    if inner.is_empty() {
        return;
    }
    match replaced.filter(|text| !text.is_empty()) {
        Some(text) => {
            for word in &mut inner {
                let had = word
                    .pieces
                    .iter()
                    .any(|piece| matches!(piece, WordPiece::Text(own) if own.contains(&text)));
                if had {
                    *word = ShellWord { pieces: vec![WordPiece::Gap], splits: false, quoted: true };
                }
            }
        }
        None => inner.push(ShellWord::gap()),
    }
    run(&inner, found, depth + 1, sure);
}

/// `git` runs what its settings name, and what some of its commands are given.
fn git(args: &[ShellWord], found: &mut CommandLine, depth: usize) {
    let mut at = 0;
    let mut runs = false;
    while let Some(word) = args.get(at).filter(|word| word.start().starts_with('-')) {
        let text = word.start();
        runs |=
            text.starts_with("-c") || text.starts_with("--config-env") || text.starts_with("--exec-path=");
        at += 1 + usize::from(matches!(text, "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace"));
    }
    let name = args.get(at).and_then(ShellWord::known).unwrap_or_default();
    const RUNS: [&str; 10] = [
        "bisect",
        "submodule",
        "rebase",
        "filter-branch",
        "config",
        "difftool",
        "mergetool",
        "for-each-repo",
        "hook",
        "daemon",
    ];
    const OPTIONS: [&str; 7] =
        ["--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager", "-O", "-x", "--ext-diff"];
    runs |= RUNS.contains(&name);
    runs |= args.iter().any(|word| OPTIONS.iter().any(|option| word.start().starts_with(option)));
    if runs {
        embedded(args, found, depth);
    }
    if args.iter().any(|word| word.start().starts_with("ext::")) {
        embedded(args, found, depth);
    }
}

/// The words as one text, if all of them are known.
fn joined(words: &[ShellWord]) -> Option<String> {
    let words: Option<Vec<&str>> = words.iter().map(ShellWord::known).collect();
    Some(words?.join(" "))
}

/// A word in which `{}` is replaced when it runs.
fn filled(word: &ShellWord) -> ShellWord {
    match word.known() {
        Some(text) if text.contains("{}") || text.contains("{.}") => {
            ShellWord { pieces: vec![WordPiece::Gap], splits: false, quoted: true }
        }
        _ => word.clone(),
    }
}
