//! `longhaul doctor`: checks the installation and suggests fixes.

use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use longhaul::Status;
use longhaul::model::http::provider_key_variables;
use longhaul::store::{DatabaseHealth, SqliteStore, TaskFilter};
use longhaul::teamfile::{self, Environment, TeamBundle, TeamBundleError};
use longhaul::toolset::Sandbox;
use serde::Serialize;

use super::CliContext;
use crate::args::DoctorArgs;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::store_address::PostgresUrl;
use crate::team;
use crate::trust::TeamFileTrust;
use crate::view::{Ink, TerminalOutput, format_bytes, format_count, one_line, pluralize, sanitize};

/// How long an MCP server of a team may take to start.
const START: Duration = Duration::from_secs(30);
/// Less free space than the first is a warning, less than the second an error.
const LOW_DISK_BYTES: u64 = 1 << 30;
const CRITICAL_DISK_BYTES: u64 = 64 << 20;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckStatus {
    Fine,
    /// It works, possibly with a fallback.
    Warning,
    Broken,
}

/// One check.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    name: &'static str,
    mark: CheckStatus,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl DoctorCheck {
    fn fine(name: &'static str, what: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name, mark: CheckStatus::Fine, what: what.into(), hint: None }
    }

    fn warning(name: &'static str, what: impl Into<String>, hint: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name, mark: CheckStatus::Warning, what: what.into(), hint: Some(hint.into()) }
    }

    fn broken(name: &'static str, what: impl Into<String>, hint: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name, mark: CheckStatus::Broken, what: what.into(), hint: Some(hint.into()) }
    }

    fn print(&self, term: TerminalOutput) -> Result<(), CliError> {
        let (sign, ink) = match self.mark {
            CheckStatus::Fine => ("✓", Ink::Good),
            CheckStatus::Warning => ("!", Ink::Attention),
            CheckStatus::Broken => ("✗", Ink::Bad),
        };
        const TAKEN: usize = 12;
        let what = term.wrap_within(&sanitize(&self.what), TAKEN);
        for (index, line) in what.trim_end().lines().enumerate() {
            let name = if index == 0 { self.name } else { "" };
            let sign = if index == 0 { term.paint(ink, sign) } else { " ".to_owned() };
            term.print_line(format!("{sign} {name:<9} {line}").trim_end())?;
        }
        if let Some(hint) = &self.hint {
            for (index, line) in term.wrap_within(&sanitize(hint), TAKEN + 2).lines().enumerate() {
                let arrow = if index == 0 { "→" } else { " " };
                term.print_line(&term.paint(Ink::Faint, &format!("            {arrow} {line}")))?;
            }
        }
        Ok(())
    }
}

pub(super) async fn run(context: &CliContext, args: &DoctorArgs) -> Result<CliExitCode, CliError> {
    let data_dir = context.data_dir()?;
    let environment = team::build_environment(context, &args.providers, &data_dir)?;
    // Check trust first: checking a team starts its servers.
    let bundle = args.team.as_deref().map(TeamBundle::load);
    if let (Some(file), Some(Ok(bundle))) = (&args.team, &bundle) {
        TeamFileTrust::new(&data_dir, file, bundle).require_trust(context, args.trust)?;
    }
    let mut all = DoctorReport { context, json: args.json, statuses: Vec::new() };
    all.add(DoctorCheck::fine("longhaul", format!("version {}", env!("CARGO_PKG_VERSION"))))?;
    match data_dir.postgres() {
        None => {
            for check in database(&data_dir.database, args.full) {
                all.add(check)?;
            }
        }
        Some(url) => all.add(shared_store(&data_dir, url).await)?,
    }
    let servers = environment.http.probe_local_servers().await;
    let here = servers.iter().any(|(_, _, model)| model.is_some());
    all.add(keys(&|name| (environment.variables)(name), here))?;
    all.add(check_local_servers(&servers))?;
    all.add(sandbox(&environment).await)?;
    all.add(git().await)?;
    all.add(terminal(context.term, &|name| std::env::var(name).ok()))?;
    if let (Some(file), Some(bundle)) = (&args.team, bundle) {
        for check in check_team(file, bundle, &environment).await {
            all.add(check)?;
        }
    }
    team::close_environment(&environment).await;
    all.print_summary()
}

/// Collects and prints the checks.
struct DoctorReport<'a> {
    context: &'a CliContext,
    json: bool,
    statuses: Vec<CheckStatus>,
}

impl DoctorReport<'_> {
    fn add(&mut self, check: DoctorCheck) -> Result<(), CliError> {
        self.statuses.push(check.mark);
        if self.json { self.context.term.print_json(&check) } else { check.print(self.context.term) }
    }

    fn print_summary(&self) -> Result<CliExitCode, CliError> {
        let number = |mark| self.statuses.iter().filter(|has| **has == mark).count();
        let (broken, warnings) = (number(CheckStatus::Broken), number(CheckStatus::Warning));
        if !self.json {
            let (ink, words) = match (broken, warnings) {
                (0, 0) => (Ink::Good, "all is well".to_owned()),
                (0, warnings) => {
                    (Ink::Good, format!("nothing is broken; {}", pluralize(warnings, "warning")))
                }
                (1, warnings) => (Ink::Bad, format!("1 thing is broken; {}", pluralize(warnings, "warning"))),
                (broken, warnings) => {
                    (Ink::Bad, format!("{broken} things are broken; {}", pluralize(warnings, "warning")))
                }
            };
            self.context.term.print_line(&self.context.term.paint(ink, &words))?;
        }
        Ok(if broken > 0 { CliExitCode::Failed } else { CliExitCode::Success })
    }
}

/// Checks that the store that several machines share can be used.
async fn shared_store(data_dir: &DataDir, url: &PostgresUrl) -> DoctorCheck {
    let name = url.shown();
    let counted = async {
        let store = data_dir.open_store().await?;
        let limit = usize::try_from(DatabaseHealth::COUNTED).unwrap_or(usize::MAX).saturating_add(1);
        let tasks = store.count(TaskFilter::newest(limit)).await?;
        let open = store.count(TaskFilter::default().live()).await?;
        let running = store.list(TaskFilter::default().status(vec![Status::Running])).await?;
        let workers: HashSet<_> = running.into_iter().filter_map(|state| state.worker).collect();
        Ok::<_, CliError>((tasks, open, workers.len()))
    };
    match counted.await {
        Ok((tasks, open, workers)) => {
            let most = usize::try_from(DatabaseHealth::COUNTED).unwrap_or(usize::MAX);
            let tasks = match tasks > most {
                true => format!("more than {} tasks", format_count(DatabaseHealth::COUNTED)),
                false => pluralize(tasks, "task"),
            };
            let workers = match workers {
                0 => "no process runs any now".to_owned(),
                1 => "1 process runs tasks now".to_owned(),
                several => format!("{several} processes run tasks now"),
            };
            let host = crate::store_address::host_id();
            DoctorCheck::fine(
                "database",
                format!("{name}: {tasks}, {open} open; {workers}; this machine is '{host}'"),
            )
        }
        Err(error) => {
            let hint = error.hint_text().unwrap_or("see docs/fleet.md").to_owned();
            DoctorCheck::broken("database", format!("{name}: {}", error.message()), hint)
        }
    }
}

/// Checks that the database can be read and written, and that there is enough free space.
fn database(path: &Path, full: bool) -> Vec<DoctorCheck> {
    let name = path.display();
    let mut checks = Vec::new();
    match if full { SqliteStore::examine(path) } else { SqliteStore::examine_newest(path) } {
        Err(error) => {
            let hint = "`--data DIR` selects another data directory";
            checks.push(DoctorCheck::broken("database", error.to_string(), hint));
        }
        Ok(None) => checks.push(DoctorCheck::fine(
            "database",
            format!("{name} does not exist yet: the first task creates it"),
        )),
        Ok(Some(health)) if !health.problems.is_empty() => {
            let what = format!("{name} is damaged: {}", health.problems.join("; "));
            let hint = format!("restore a backup, or recover what is readable: sqlite3 {name} .recover");
            checks.push(DoctorCheck::broken("database", what, hint));
        }
        Ok(Some(health)) => {
            let version = match health.version == health.current_version {
                true => format!("version {}", health.version),
                false => {
                    format!("version {}, made {} when it is used", health.version, health.current_version)
                }
            };
            let others = match health.workers {
                0 => "no process runs its tasks now".to_owned(),
                1 => "1 process runs its tasks now".to_owned(),
                several => format!("{several} processes run its tasks now"),
            };
            let tasks = match health.tasks > DatabaseHealth::COUNTED {
                true => format!("more than {} tasks", format_count(DatabaseHealth::COUNTED)),
                false => pluralize(usize::try_from(health.tasks).unwrap_or(usize::MAX), "task"),
            };
            let checked = match health.checked_all {
                true => "no damage found".to_owned(),
                false => format!(
                    "no damage found in open tasks and the newest {} (`longhaul doctor --full` checks all)",
                    DatabaseHealth::NEWEST
                ),
            };
            let what = format!(
                "{name}: {version}, {tasks}, {} ({} free), {checked}; {others}",
                format_bytes(health.size),
                format_bytes(health.free),
            );
            checks.push(DoctorCheck::fine("database", what));
        }
    }
    checks.extend(room(path));
    checks
}

/// Checks that the directory of the database is writable and has enough free space.
fn room(path: &Path) -> Option<DoctorCheck> {
    use nix::unistd::{AccessFlags, access};
    let dir = path.ancestors().skip(1).find(|dir| dir.is_dir())?;
    if access(dir, AccessFlags::W_OK).is_err() {
        let what = format!("the directory {} cannot be written to", dir.display());
        return Some(DoctorCheck::broken(
            "disk",
            what,
            "give yourself the right to (chmod, chown), or use `--data DIR`",
        ));
    }
    let disk = nix::sys::statvfs::statvfs(dir).ok()?;
    #[allow(clippy::useless_conversion, reason = "how wide these are differs between systems")]
    let free = u64::from(disk.blocks_available()).saturating_mul(u64::from(disk.fragment_size()));
    let what = format!("{} free on the disk of {}", format_bytes(free), dir.display());
    let hint =
        "make room: `longhaul prune --older-than 30d --vacuum` deletes old tasks and gives back their space";
    Some(match free {
        ..CRITICAL_DISK_BYTES => DoctorCheck::broken("disk", what, hint),
        CRITICAL_DISK_BYTES..LOW_DISK_BYTES => DoctorCheck::warning("disk", what, hint),
        _ => DoctorCheck::fine("disk", what),
    })
}

/// Lists which provider keys are set: their names, never their values.
fn keys(get: &dyn Fn(&str) -> Option<String>, server_here: bool) -> DoctorCheck {
    let is_set = |name: &&&str| get(name).is_some_and(|value| !value.trim().is_empty());
    let mut set: Vec<&str> = Vec::new();
    let mut all: Vec<&str> = Vec::new();
    for (_, names) in provider_key_variables() {
        all.extend(names.first());
        set.extend(names.iter().filter(is_set));
    }
    set.dedup();
    if !set.is_empty() {
        return DoctorCheck::fine("keys", format!("{} set", set.join(", ")));
    }
    let what = format!("no key is set for any of the {} providers", all.len());
    match server_here {
        true => DoctorCheck::fine("keys", format!("{what}; a local server answers")),
        false => DoctorCheck::warning(
            "keys",
            what,
            format!(
                "set one in the environment ({}, …), name a file with `--env-from-file FILE`, or start Ollama; `longhaul demo` needs none",
                all.iter().take(3).copied().collect::<Vec<_>>().join(", ")
            ),
        ),
    }
}

/// Lists model servers on this machine. Having none is not a problem.
fn check_local_servers(servers: &[(&str, String, Option<String>)]) -> DoctorCheck {
    let has = |(name, address, model): &(&str, String, Option<String>)| {
        Some(format!("{name} at {address} has {}", one_line(model.as_ref()?)))
    };
    let there: Vec<String> = servers.iter().filter_map(has).collect();
    if !there.is_empty() {
        return DoctorCheck::fine("servers", there.join("; "));
    }
    let looked: Vec<String> =
        servers.iter().map(|(name, address, _)| format!("{name} at {address}")).collect();
    DoctorCheck::fine(
        "servers",
        format!("no local model server answers ({}); you need one only for local models", looked.join(", ")),
    )
}

/// Checks how commands can be sandboxed.
async fn sandbox(environment: &Environment) -> DoctorCheck {
    let mut sandbox = Sandbox::new();
    if let Some(helper) = &environment.sandbox_helper {
        sandbox = sandbox.helper(helper);
    }
    match sandbox.describe_backend().await {
        Ok(means) if means.starts_with("bubblewrap") => DoctorCheck::fine("sandbox", means),
        Ok(means) => DoctorCheck::warning(
            "sandbox",
            format!("{means}: it does less than bubblewrap (docs/confinement.md)"),
            "install bubblewrap",
        ),
        Err(_) => DoctorCheck::warning(
            "sandbox",
            "neither bubblewrap nor Landlock: agents with `sandbox: on` cannot run commands",
            "install bubblewrap",
        ),
    }
}

async fn git() -> DoctorCheck {
    let mut git = tokio::process::Command::new("git");
    git.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(Duration::from_secs(5), git.output()).await {
        Ok(Ok(out)) if out.status.success() => {
            DoctorCheck::fine("git", one_line(&String::from_utf8_lossy(&out.stdout)))
        }
        _ => DoctorCheck::warning("git", "not found: `isolation: worktree` does not work", "install git"),
    }
}

/// Reports what the terminal supports.
fn terminal(term: TerminalOutput, get: &dyn Fn(&str) -> Option<String>) -> DoctorCheck {
    if !term.live {
        return DoctorCheck::fine("terminal", "stdout is not a terminal: no colours, no live display");
    }
    let (columns, rows) = term.size();
    let colours = if term.color { "colours" } else { "no colours" };
    let kind = get("TERM").unwrap_or_default();
    let what = format!("{columns} columns, {rows} rows, {colours}, TERM={}", one_line(&kind));
    // The first variable that is set counts.
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| get(name)).find(|value| !value.is_empty());
    let is_utf8 = locale.as_deref().is_some_and(|value| {
        let value = value.to_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    });
    match (is_utf8, columns) {
        (false, _) => DoctorCheck::warning(
            "terminal",
            format!("{what}; the locale is {}, not UTF-8", locale.as_deref().unwrap_or("not set")),
            "if lines and symbols look wrong: export LANG=C.UTF-8",
        ),
        (true, ..40) => DoctorCheck::warning("terminal", what, "40 columns or more are needed for tables"),
        (true, _) => DoctorCheck::fine("terminal", what),
    }
}

/// Checks a team: whether the file is valid, and whether its MCP servers start.
async fn check_team(
    file: &Path,
    bundle: Result<TeamBundle, TeamBundleError>,
    environment: &Environment,
) -> Vec<DoctorCheck> {
    let name = file.display();
    let check = || format!("`longhaul check {name}` tells more");
    let mut bundle = match bundle {
        Ok(bundle) => bundle,
        Err(error) => {
            return vec![DoctorCheck::broken("team", format!("the team file {error}"), "name a team file")];
        }
    };
    bundle.working_dir = std::env::current_dir().ok();
    // A check must not ask for a login.
    let mcp = longhaul::toolset::McpPool::new(environment.mcp.options().clone().show_login(None));
    let environment = &environment.clone().mcp(mcp);
    let (team, notices) = match teamfile::assemble(&bundle, environment) {
        Ok(assembly) => (assembly.team, assembly.warnings),
        Err(error) => return vec![DoctorCheck::broken("team", error.to_string(), check())],
    };
    let agents: Vec<String> = team.agents().map(|agent| one_line(agent.name.as_str())).collect();
    let mut checks = vec![DoctorCheck::fine(
        "team",
        format!("{name}: {} ({})", pluralize(agents.len(), "agent"), agents.join(", ")),
    )];
    for notice in notices {
        let help = notice.problem.help.clone().unwrap_or_else(check);
        let at = notice.problem.at;
        let what = format!("{}:{}:{}: {}", notice.file, at.line, at.column, notice.problem.message);
        checks.push(DoctorCheck::warning("team", what, help));
    }
    if let Err(error) = team::check_auto_model(&team, environment).await {
        checks.push(DoctorCheck::broken("model", error.message(), error.hint_text().unwrap_or_default()));
    }
    for agent in team.agents() {
        let toolset_context = team.toolset_context(agent);
        for toolset in &agent.toolsets {
            let agent = one_line(agent.name.as_str());
            let whose = format!("{} of {agent}", one_line(toolset.name()));
            let opened = tokio::time::timeout(START, toolset.open(&toolset_context)).await;
            checks.push(match opened {
                // Skip toolsets without tools, which every agent has.
                Ok(Ok(tools)) if tools.is_empty() => continue,
                Ok(Ok(tools)) => {
                    DoctorCheck::fine("toolset", format!("{whose}: {}", pluralize(tools.len(), "tool")))
                }
                Ok(Err(error)) => {
                    let hint = format!("fix that; until then {agent} runs without these tools");
                    DoctorCheck::broken("toolset", format!("{whose}: {}", sanitize(&error.why)), hint)
                }
                Err(_) => {
                    let what = format!("{whose} did not start within {} s", format_count(START.as_secs()));
                    DoctorCheck::broken("toolset", what, "start its command by hand to see what it waits for")
                }
            });
        }
    }
    for toolset in team.agents().flat_map(|agent| &agent.toolsets) {
        let _ = tokio::time::timeout(START, toolset.close()).await;
    }
    team::close_environment(environment).await;
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::OutputStream;

    #[test]
    fn keys_are_named_and_never_shown() {
        let get = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-secret".to_owned());
        let check = keys(&get, false);
        assert_eq!((check.mark, check.what.as_str()), (CheckStatus::Fine, "OPENAI_API_KEY set"));
        assert!(!serde_json::to_string(&check).unwrap().contains("secret"));
        let empty = |_: &str| Some(" ".to_owned());
        assert_eq!(keys(&empty, false).mark, CheckStatus::Warning);
        assert_eq!(keys(&|_| None, true).mark, CheckStatus::Fine);
    }

    #[test]
    fn a_terminal_without_utf8_is_told_what_to_do() {
        let term = TerminalOutput { stream: OutputStream::Stdout, color: true, live: true };
        let with =
            |locale: &'static str| terminal(term, &move |name| (name == "LANG").then(|| locale.to_owned()));
        assert_eq!(with("de_DE.UTF-8").mark, CheckStatus::Fine);
        assert_eq!(with("C").mark, CheckStatus::Warning);
        assert_eq!(terminal(TerminalOutput { live: false, ..term }, &|_| None).mark, CheckStatus::Fine);
    }
}
