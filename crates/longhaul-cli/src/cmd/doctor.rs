//! `longhaul doctor`: looks whether all is there that is needed, and says what to do about what is not.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use longhaul::model::http::usual_keys;
use longhaul::store::{Health, Sqlite};
use longhaul::teamfile::{self, Bundle, BundleError, Outfit};
use longhaul::toolset::Sandbox;
use serde::Serialize;

use super::Desk;
use crate::args::DoctorArgs;
use crate::exit::{Code, Trouble};
use crate::team;
use crate::trust::Trust;
use crate::view::{Ink, Term, bytes, clean, count, many, one_line};

/// How long a server of a team may take to start.
const START: Duration = Duration::from_secs(30);
/// Below this many bytes of free space there is reason to worry, and below that one reason to stop.
const LITTLE: u64 = 1 << 30;
const TOO_LITTLE: u64 = 64 << 20;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Fine,
    /// It works, or something else does in its place.
    Warning,
    Broken,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    mark: Mark,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Check {
    fn fine(name: &'static str, what: impl Into<String>) -> Check {
        Check { name, mark: Mark::Fine, what: what.into(), hint: None }
    }

    fn warning(name: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Check {
        Check { name, mark: Mark::Warning, what: what.into(), hint: Some(hint.into()) }
    }

    fn broken(name: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Check {
        Check { name, mark: Mark::Broken, what: what.into(), hint: Some(hint.into()) }
    }

    fn show(&self, term: Term) -> Result<(), Trouble> {
        let (sign, ink) = match self.mark {
            Mark::Fine => ("✓", Ink::Good),
            Mark::Warning => ("!", Ink::Waits),
            Mark::Broken => ("✗", Ink::Bad),
        };
        const TAKEN: usize = 12;
        let what = term.wrapped_to(&clean(&self.what), TAKEN);
        for (index, line) in what.trim_end().lines().enumerate() {
            let name = if index == 0 { self.name } else { "" };
            let sign = if index == 0 { term.paint(ink, sign) } else { " ".to_owned() };
            term.line(format!("{sign} {name:<9} {line}").trim_end())?;
        }
        if let Some(hint) = &self.hint {
            for (index, line) in term.wrapped_to(&clean(hint), TAKEN + 2).lines().enumerate() {
                let arrow = if index == 0 { "→" } else { " " };
                term.line(&term.paint(Ink::Faint, &format!("            {arrow} {line}")))?;
            }
        }
        Ok(())
    }
}

pub(super) async fn run(desk: &Desk, args: &DoctorArgs) -> Result<Code, Trouble> {
    let place = desk.place()?;
    let outfit = team::outfit(desk, &args.outside, &place)?;
    // Before anything else: whoever looks at a team starts its servers.
    let bundle = args.team.as_deref().map(Bundle::gather);
    if let (Some(file), Some(Ok(bundle))) = (&args.team, &bundle) {
        Trust::of(&place, file, bundle).demand(desk, args.trust)?;
    }
    let mut all = Told { desk, json: args.json, marks: Vec::new() };
    all.tell(Check::fine("longhaul", format!("version {}", env!("CARGO_PKG_VERSION"))))?;
    for check in database(&place.database, args.full) {
        all.tell(check)?;
    }
    let servers = outfit.http.servers_here().await;
    let here = servers.iter().any(|(_, _, model)| model.is_some());
    all.tell(keys(&|name| (outfit.variables)(name), here))?;
    all.tell(here_is(&servers))?;
    all.tell(sandbox(&outfit).await)?;
    all.tell(git().await)?;
    all.tell(terminal(desk.term, &|name| std::env::var(name).ok()))?;
    if let (Some(file), Some(bundle)) = (&args.team, bundle) {
        for check in of_team(file, bundle, &outfit).await {
            all.tell(check)?;
        }
    }
    team::close(&outfit).await;
    all.sum_up()
}

/// What has been told so far.
struct Told<'a> {
    desk: &'a Desk,
    json: bool,
    marks: Vec<Mark>,
}

impl Told<'_> {
    fn tell(&mut self, check: Check) -> Result<(), Trouble> {
        self.marks.push(check.mark);
        if self.json { self.desk.term.json(&check) } else { check.show(self.desk.term) }
    }

    fn sum_up(&self) -> Result<Code, Trouble> {
        let number = |mark| self.marks.iter().filter(|has| **has == mark).count();
        let (broken, warnings) = (number(Mark::Broken), number(Mark::Warning));
        if !self.json {
            let (ink, words) = match (broken, warnings) {
                (0, 0) => (Ink::Good, "all is well".to_owned()),
                (0, warnings) => (Ink::Good, format!("nothing is broken; {}", many(warnings, "warning"))),
                (1, warnings) => (Ink::Bad, format!("1 thing is broken; {}", many(warnings, "warning"))),
                (broken, warnings) => {
                    (Ink::Bad, format!("{broken} things are broken; {}", many(warnings, "warning")))
                }
            };
            self.desk.term.line(&self.desk.term.paint(ink, &words))?;
        }
        Ok(if broken > 0 { Code::Failed } else { Code::Fine })
    }
}

/// The database: whether it can be read and written, and how much room there is.
fn database(path: &Path, full: bool) -> Vec<Check> {
    let name = path.display();
    let mut checks = Vec::new();
    match if full { Sqlite::examine(path) } else { Sqlite::examine_newest(path) } {
        Err(error) => {
            let hint = "`--data DIR` keeps tasks in another place";
            checks.push(Check::broken("database", error.to_string(), hint));
        }
        Ok(None) => {
            checks.push(Check::fine("database", format!("{name} is not there yet: the first task begins it")))
        }
        Ok(Some(health)) if !health.wrong.is_empty() => {
            let what = format!("{name} is damaged: {}", health.wrong.join("; "));
            let hint =
                format!("put a backup in its place, or get out what can be read: sqlite3 {name} .recover");
            checks.push(Check::broken("database", what, hint));
        }
        Ok(Some(health)) => {
            let version = match health.version == health.current {
                true => format!("version {}", health.version),
                false => format!("version {}, made {} when it is used", health.version, health.current),
            };
            let others = match health.workers {
                0 => "nobody runs tasks of it now".to_owned(),
                1 => "1 process runs tasks of it now".to_owned(),
                several => format!("{several} processes run tasks of it now"),
            };
            let tasks = match health.tasks > Health::COUNTED {
                true => format!("more than {} tasks", count(Health::COUNTED)),
                false => many(usize::try_from(health.tasks).unwrap_or(usize::MAX), "task"),
            };
            let checked = match health.all {
                true => "unharmed".to_owned(),
                false => format!(
                    "open tasks and the newest {} are unharmed (`longhaul doctor --full` checks all)",
                    Health::NEWEST
                ),
            };
            let what = format!(
                "{name}: {version}, {tasks}, {} ({} free), {checked}; {others}",
                bytes(health.size),
                bytes(health.free),
            );
            checks.push(Check::fine("database", what));
        }
    }
    checks.extend(room(path));
    checks
}

/// Whether there can be written where the database is to be, and how much.
#[cfg(unix)]
fn room(path: &Path) -> Option<Check> {
    use nix::unistd::{AccessFlags, access};
    let dir = path.ancestors().skip(1).find(|dir| dir.is_dir())?;
    if access(dir, AccessFlags::W_OK).is_err() {
        let what = format!("the directory {} cannot be written to", dir.display());
        return Some(Check::broken(
            "disk",
            what,
            "give yourself the right to (chmod, chown), or use `--data DIR`",
        ));
    }
    let disk = nix::sys::statvfs::statvfs(dir).ok()?;
    #[allow(clippy::useless_conversion, reason = "how wide these are differs between systems")]
    let free = u64::from(disk.blocks_available()).saturating_mul(u64::from(disk.fragment_size()));
    let what = format!("{} free on the disk of {}", bytes(free), dir.display());
    let hint =
        "make room: `longhaul prune --older-than 30d --vacuum` deletes old tasks and gives back their space";
    Some(match free {
        ..TOO_LITTLE => Check::broken("disk", what, hint),
        TOO_LITTLE..LITTLE => Check::warning("disk", what, hint),
        _ => Check::fine("disk", what),
    })
}

#[cfg(not(unix))]
fn room(_: &Path) -> Option<Check> {
    None
}

/// Which keys of providers are set: their names, never what they are.
fn keys(get: &dyn Fn(&str) -> Option<String>, server_here: bool) -> Check {
    let is_set = |name: &&&str| get(name).is_some_and(|value| !value.trim().is_empty());
    let mut set: Vec<&str> = Vec::new();
    let mut all: Vec<&str> = Vec::new();
    for (_, names) in usual_keys() {
        all.extend(names.first());
        set.extend(names.iter().filter(is_set));
    }
    set.dedup();
    if !set.is_empty() {
        return Check::fine("keys", format!("{} set", set.join(", ")));
    }
    let what = format!("none is set of the keys that {} providers use", all.len());
    match server_here {
        true => Check::fine("keys", format!("{what}; a server of this machine answers")),
        false => Check::warning(
            "keys",
            what,
            format!(
                "set one in the environment ({}, …), name a file with `--env-from-file FILE`, or start Ollama; `longhaul demo` needs none",
                all.iter().take(3).copied().collect::<Vec<_>>().join(", ")
            ),
        ),
    }
}

/// Servers on this machine. That there are none is no trouble.
fn here_is(servers: &[(&str, String, Option<String>)]) -> Check {
    let has = |(name, place, model): &(&str, String, Option<String>)| {
        Some(format!("{name} at {place} has {}", one_line(model.as_ref()?)))
    };
    let there: Vec<String> = servers.iter().filter_map(has).collect();
    if !there.is_empty() {
        return Check::fine("servers", there.join("; "));
    }
    let looked: Vec<String> = servers.iter().map(|(name, place, _)| format!("{name} at {place}")).collect();
    Check::fine(
        "servers",
        format!("none of this machine answers ({}); only their models need one", looked.join(", ")),
    )
}

/// By what commands can be confined.
async fn sandbox(outfit: &Outfit) -> Check {
    let mut sandbox = Sandbox::new();
    if let Some(helper) = &outfit.helper {
        sandbox = sandbox.helper(helper);
    }
    match sandbox.means().await {
        Ok(means) if means.starts_with("bubblewrap") => Check::fine("sandbox", means),
        Ok(means) => Check::warning(
            "sandbox",
            format!("{means}: it does less than bubblewrap (docs/confinement.md)"),
            "install bubblewrap",
        ),
        Err(_) => Check::warning(
            "sandbox",
            "neither bubblewrap nor Landlock: agents with `sandbox: on` cannot run commands",
            "install bubblewrap",
        ),
    }
}

async fn git() -> Check {
    let mut git = tokio::process::Command::new("git");
    git.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(Duration::from_secs(5), git.output()).await {
        Ok(Ok(out)) if out.status.success() => {
            Check::fine("git", one_line(&String::from_utf8_lossy(&out.stdout)))
        }
        _ => Check::warning("git", "not found: `isolation: worktree` does not work", "install git"),
    }
}

/// What the terminal can do.
fn terminal(term: Term, get: &dyn Fn(&str) -> Option<String>) -> Check {
    if !term.live {
        return Check::fine("terminal", "standard output is none: no colours, nothing is drawn over");
    }
    let (columns, rows) = term.size();
    let colours = if term.color { "colours" } else { "no colours" };
    let kind = get("TERM").unwrap_or_default();
    let what = format!("{columns} columns, {rows} rows, {colours}, TERM={}", one_line(&kind));
    // The first that is set counts.
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| get(name)).find(|value| !value.is_empty());
    let is_utf8 = locale.as_deref().is_some_and(|value| {
        let value = value.to_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    });
    match (is_utf8, columns) {
        (false, _) => Check::warning(
            "terminal",
            format!("{what}; the locale is {}, not UTF-8", locale.as_deref().unwrap_or("not set")),
            "if lines and signs look wrong: export LANG=C.UTF-8",
        ),
        (true, ..40) => Check::warning("terminal", what, "40 columns or more are needed for tables"),
        (true, _) => Check::fine("terminal", what),
    }
}

/// A team: whether the file is right, and whether what it names can be started.
async fn of_team(file: &Path, bundle: Result<Bundle, BundleError>, outfit: &Outfit) -> Vec<Check> {
    let name = file.display();
    let check = || format!("`longhaul check {name}` tells more");
    let mut bundle = match bundle {
        Ok(bundle) => bundle,
        Err(error) => {
            return vec![Check::broken("team", format!("the team file {error}"), "name a team file")];
        }
    };
    bundle.working_dir = std::env::current_dir().ok();
    #[cfg(unix)]
    let outfit = &Outfit {
        // Nobody is asked for a login by a look.
        mcp: longhaul::toolset::McpPool::new(longhaul::toolset::McpOptions {
            login: None,
            ..outfit.mcp.options().clone()
        }),
        ..outfit.clone()
    };
    let (team, notices) = match teamfile::assemble(&bundle, outfit) {
        Ok(assembly) => (assembly.team, assembly.notices),
        Err(error) => return vec![Check::broken("team", error.to_string(), check())],
    };
    let agents: Vec<String> = team.agents().map(|agent| one_line(agent.name.as_str())).collect();
    let mut checks =
        vec![Check::fine("team", format!("{name}: {} ({})", many(agents.len(), "agent"), agents.join(", ")))];
    for notice in notices {
        let help = notice.problem.help.clone().unwrap_or_else(check);
        let at = notice.problem.at;
        let what = format!("{}:{}:{}: {}", notice.file, at.line, at.column, notice.problem.message);
        checks.push(Check::warning("team", what, help));
    }
    if let Err(trouble) = team::somebody_to_ask(&team, outfit).await {
        checks.push(Check::broken("model", trouble.what(), trouble.help().unwrap_or_default()));
    }
    for agent in team.agents() {
        let patron = team.patron(agent);
        for toolset in &agent.toolsets {
            let agent = one_line(agent.name.as_str());
            let whose = format!("{} of {agent}", one_line(toolset.name()));
            let opened = tokio::time::timeout(START, toolset.open(&patron)).await;
            checks.push(match opened {
                // What every agent has, and nothing is in.
                Ok(Ok(tools)) if tools.is_empty() => continue,
                Ok(Ok(tools)) => Check::fine("toolset", format!("{whose}: {}", many(tools.len(), "tool"))),
                Ok(Err(error)) => {
                    let hint = format!("mend that; until then {agent} runs without these tools");
                    Check::broken("toolset", format!("{whose}: {}", clean(&error.why)), hint)
                }
                Err(_) => {
                    let what = format!("{whose} did not start within {} s", count(START.as_secs()));
                    Check::broken("toolset", what, "start its command by hand to see what it waits for")
                }
            });
        }
    }
    for toolset in team.agents().flat_map(|agent| &agent.toolsets) {
        let _ = tokio::time::timeout(START, toolset.close()).await;
    }
    team::close(outfit).await;
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Out;

    #[test]
    fn keys_are_named_and_never_shown() {
        let get = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-secret".to_owned());
        let check = keys(&get, false);
        assert_eq!((check.mark, check.what.as_str()), (Mark::Fine, "OPENAI_API_KEY set"));
        assert!(!serde_json::to_string(&check).unwrap().contains("secret"));
        let empty = |_: &str| Some(" ".to_owned());
        assert_eq!(keys(&empty, false).mark, Mark::Warning);
        assert_eq!(keys(&|_| None, true).mark, Mark::Fine);
    }

    #[test]
    fn a_terminal_without_utf8_is_told_what_to_do() {
        let term = Term { out: Out::Stdout, color: true, live: true };
        let with =
            |locale: &'static str| terminal(term, &move |name| (name == "LANG").then(|| locale.to_owned()));
        assert_eq!(with("de_DE.UTF-8").mark, Mark::Fine);
        assert_eq!(with("C").mark, Mark::Warning);
        assert_eq!(terminal(Term { live: false, ..term }, &|_| None).mark, Mark::Fine);
    }
}
