//! `longhaul serve`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul::agent::{TeamError, Unattended};
use longhaul::entry::TeamRef;
use longhaul::store::Store;
use longhaul::teamfile::{BundleLoader, Environment, TeamBundle};
use longhaul::toolset::OwnServer;
use longhaul::worker::TeamLoader;
use longhaul::{Longhaul, Team};
use longhaul_server::access::{AccessControl, AccessDir, DEFAULT_TOKEN};
use longhaul_server::api;
use longhaul_server::app::app;
use longhaul_server::backend::{Backend, RunsHere, ServedTeam};
use longhaul_server::dashboard;
use longhaul_server::events::{EventHub, HubOptions};
use longhaul_server::guard::{AllowedHosts, Guard, GuardLimits};
use longhaul_server::listen::{ListenError, ListenOptions, Listener, TlsFiles};
use longhaul_server::mcp::{self, McpHttpOptions};
use longhaul_server::responses;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::CliContext;
use super::resume::AttendanceOptions;
use super::token::access_failure;
use super::unsandboxed::unsandboxed;
use crate::args::ServeArgs;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::open_files;
use crate::serve_lock::{ServeLock, ServerInfo};
use crate::signals::ExitSignals;
use crate::team::{self, TeamFromFile};
use crate::trust::TeamFileTrust;
use crate::view::{Ink, sanitize};

/// How long tasks may take to finish their step when the server stops.
const DRAINING: Duration = Duration::from_secs(10);
/// How often to check that the database is still there.
const DATABASE_POLL: Duration = Duration::from_secs(1);

pub(super) async fn run(context: &CliContext, args: &ServeArgs) -> Result<CliExitCode, CliError> {
    // Listen from the start: a service manager may stop us at any time.
    let mut signals = ExitSignals::listen()?;
    let names = team_names(&args.teams)?;
    let dir = team::resolve_working_dir(args.dir.as_deref())
        .map_err(|error| error.with_hint("`--dir DIR` names one that exists"))?;
    let data_dir = context.data_dir()?;
    let store = data_dir.open_store().await?;
    let mut lock = ServeLock::acquire(&data_dir).await?;
    let access_dir = AccessDir::in_data_dir(data_dir.path());
    let token_file = access_dir.ensure_first_token().map_err(|error| access_failure(&error))?;
    let access = AccessControl::open(access_dir.clone()).map_err(|error| access_failure(&error))?;
    let listener = listen(context, args).await?;
    let hosts = allowed_hosts(args, &listener)?;

    // The agents of this server can neither call it nor read its tokens.
    let own_server = OwnServer::new([listener.address()], [data_dir.path().to_owned()]);
    let environment = team::build_environment(context, &args.providers, &data_dir)?.own_server(own_server);
    let teams = load_teams(context, args, &data_dir, &environment, &names, &dir).await?;
    let (longhaul, served) = start(&*store, store.clone(), &environment, teams, &names, &dir).await?;

    let url = listener.url();
    let digests = served.iter().filter_map(|team| match team.team.reference() {
        TeamRef::File(digest) => Some(digest.clone()),
        _ => None,
    });
    let digests = digests.collect();
    lock.describe(&ServerInfo { pid: std::process::id(), url: Some(url.clone()), teams: digests })?;
    let draining = CancellationToken::new();
    let guard = Guard::new(access.clone(), hosts, GuardLimits::default(), draining.clone());
    let backend = Backend::new(longhaul.clone(), served.clone(), Arc::new(RunsHere));
    let hub = EventHub::start(store.clone(), HubOptions::default(), draining.clone());
    let app = app(interfaces(backend, &hub)?, guard);
    let mut server = JoinSet::new();
    let stop = draining.clone();
    server.spawn(async move { listener.serve(app, stop).await });
    let mut watch = JoinSet::new();
    watch.spawn(async move { access.watch().await });

    let started = StartText { url: &url, teams: &served, dir: &dir, token_file: token_file.as_deref() };
    // A server goes on if no one reads what it prints.
    CliError::ignore_closed_output(started.print(context, args.json, &data_dir, &access_dir))?;
    let ended = wait_for_end(&longhaul, &data_dir, &mut signals).await;

    // 1. No request and no task is taken any more. Streams end, and their clients know why. `longhaul mcp` no
    //    longer counts on this server.
    let leaving = ServerInfo { pid: std::process::id(), url: Some(url), teams: Vec::new() };
    let _ = lock.describe(&leaving);
    longhaul.drain();
    draining.cancel();
    if !args.json {
        context.note(&format!(
            "Stopping: tasks finish their current step (up to {} s) and go on at the next start. Ctrl-C again stops at once.",
            DRAINING.as_secs()
        ));
    }
    // 2. Requests and steps that are under way get some seconds. A second signal cuts them short.
    let stopped = async {
        let http = async { while server.join_next().await.is_some() {} };
        tokio::join!(http, hub.ended(), longhaul.shutdown_within(DRAINING));
    };
    let at_once = tokio::select! {
        () = stopped => false,
        () = signals.next() => true,
    };
    if at_once {
        server.abort_all();
        longhaul.shutdown_within(Duration::ZERO).await;
    }
    // 3. What the teams have started ends, and another server may begin.
    drop(watch);
    team::close_environment(&environment).await;
    drop(lock);
    ended.map(|()| CliExitCode::Success)
}

/// The interfaces that are served, each a router of its own.
fn interfaces(backend: Backend, hub: &EventHub) -> Result<Vec<longhaul_server::Router>, CliError> {
    // The guard checks Host and Origin for all of them.
    let options = McpHttpOptions {
        allowed_hosts: None,
        allowed_origins: None,
        shutdown: hub.draining().clone(),
        ..McpHttpOptions::default()
    };
    let mcp = mcp::router(&backend, &options)
        .map_err(|error| CliError::new(CliExitCode::Failed, error.to_string()))?;
    let http = [responses::router(backend.clone()), api::router(backend, hub.clone()), dashboard::router()];
    Ok([mcp].into_iter().chain(http).collect())
}

/// Waits for a signal. Fails if the database is gone.
async fn wait_for_end(
    longhaul: &Longhaul,
    data_dir: &DataDir,
    signals: &mut ExitSignals,
) -> Result<(), CliError> {
    let mut still_there = tokio::time::interval(DATABASE_POLL);
    loop {
        tokio::select! {
            () = signals.next() => return Ok(()),
            error = super::final_store_failure(longhaul, data_dir) => {
                return Err(longhaul::LonghaulError::from(error).into());
            }
            _ = still_there.tick() => {
                if let Some(error) = longhaul.store().file_lost() {
                    return Err(error.into());
                }
            }
        }
    }
}

async fn listen(context: &CliContext, args: &ServeArgs) -> Result<Listener, CliError> {
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = tls.map(|(certificate, key)| TlsFiles { certificate, key });
    let is_open = tls.is_none() && !args.listen.ip().is_loopback();
    let mut options = ListenOptions { tls, insecure: args.insecure_http, ..ListenOptions::new(args.listen) };
    // The other half is for tasks.
    options.limits.connections = options.limits.connections.min(open_files::raise_limit() / 2);
    let listener = Listener::bind(options).await.map_err(|error| listen_failure(&error))?;
    if is_open {
        context.note(&format!(
            "warning: {} can be reached from other machines WITHOUT TLS: everyone on the way can read the token and \
             everything else. Use --tls-cert and --tls-key instead.",
            listener.address()
        ));
    }
    Ok(listener)
}

fn listen_failure(error: &ListenError) -> CliError {
    let (code, hint) = match error {
        ListenError::NotPrivate(_) => (
            CliExitCode::Usage,
            "name a certificate (--tls-cert FILE --tls-key FILE), listen on 127.0.0.1, or accept the risk with \
             --insecure-http",
        ),
        ListenError::Bind { .. } => {
            (CliExitCode::Failed, "`--listen 127.0.0.1:PORT` names another port; port 0 takes a free one")
        }
        _ => (CliExitCode::Usage, "--tls-cert and --tls-key name PEM files that belong together"),
    };
    CliError::new(code, error.to_string()).with_hint(hint)
}

fn allowed_hosts(args: &ServeArgs, listener: &Listener) -> Result<AllowedHosts, CliError> {
    let address = listener.address();
    let hosts = AllowedHosts::loopback(listener.is_tls(), address.port()).with_address(address);
    args.allow_host.iter().try_fold(hosts, |hosts, name| {
        hosts.allow(name).map_err(|error| CliError::new(CliExitCode::Usage, format!("--allow-host: {error}")))
    })
}

/// Returns the names of the teams: those of their files without the extension. Fails if two are the same.
fn team_names(files: &[PathBuf]) -> Result<Vec<String>, CliError> {
    let mut names: Vec<String> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(fits) {
            let what = format!("--team: {} has no name that clients can use", file.display());
            return Err(CliError::new(CliExitCode::Usage, what)
                .with_hint("rename the file: use letters, digits, '-', '_' and '.'"));
        }
        if let Some(before) = names.iter().position(|other| *other == name) {
            let what = format!(
                "--team: {} and {} are both named '{name}'",
                files[before].display(),
                files[index].display()
            );
            return Err(CliError::new(CliExitCode::Usage, what)
                .with_hint("clients name a team by its file: rename one of them"));
        }
        names.push(name);
    }
    Ok(names)
}

/// Loads the teams, and asks whether to trust them.
async fn load_teams(
    context: &CliContext,
    args: &ServeArgs,
    data_dir: &DataDir,
    environment: &Environment,
    names: &[String],
    dir: &Path,
) -> Result<Vec<TeamFromFile>, CliError> {
    let mut teams = Vec::with_capacity(names.len());
    for file in &args.teams {
        // The whole path, so that the team is the same for `longhaul mcp`, however the path was typed.
        let file = file.canonicalize().unwrap_or_else(|_| file.clone());
        let made = team::assemble_served_team(context, environment, &args.model, &file, dir)?;
        // Ask before anything from the file is started or contacted.
        let trust = TeamFileTrust::new(data_dir, &file, &made.bundle);
        match std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            true => trust.ask_for_trust(context, args.trust)?,
            // A service manager starts it: there is no one to ask.
            false => trust.require_trust(context, args.trust)?,
        }
        team::check_auto_model(&made.team, environment).await?;
        let open = unsandboxed(&made.bundle);
        if !open.is_empty() {
            context.note(&format!(
                "warning: commands of {} run without a sandbox: they can read this server's token and use it. Set `sandbox: on` \
                 for its shell in {}.",
                open.join(", "),
                file.display()
            ));
        }
        teams.push(made);
    }
    Ok(teams)
}

/// Starts to run the tasks of the teams, also those that another process left.
async fn start(
    store: &dyn Store,
    shared: Arc<dyn Store>,
    environment: &Environment,
    teams: Vec<TeamFromFile>,
    names: &[String],
    dir: &Path,
) -> Result<(Longhaul, Vec<ServedTeam>), CliError> {
    let mut served = Vec::with_capacity(teams.len());
    for (made, name) in teams.iter().zip(names) {
        let team = made.save_to(store).await?;
        served.push(ServedTeam {
            name: name.clone(),
            team,
            working_dir: dir.to_owned(),
            budget: made.budget,
        });
    }
    let mut all = served.iter().map(|team| team.team.clone());
    let Some(first) = all.next() else {
        return Err(CliError::new(CliExitCode::Usage, "there is no team to serve"));
    };
    let mut builder = all.fold(super::longhaul_builder(first), |builder, team| builder.add_team(team));
    // Limits apply per process, not per team: several teams get the defaults.
    if let [only] = &teams[..] {
        builder = builder.limits(only.limits.clone());
    }
    let people = AttendanceOptions { unattended: Some(Unattended::Wait), ask_timeout: None, attended: false };
    let loader = ServedTeamLoader(BundleLoader::new(environment.clone()));
    let longhaul = people.apply_to(builder).loader(loader).shared_store(shared).start().await?;
    Ok((longhaul, served))
}

/// Loads teams that were served before, to finish their tasks. Tasks of `longhaul run` are left alone.
struct ServedTeamLoader(BundleLoader);

impl TeamLoader for ServedTeamLoader {
    fn wants(&self, file: &[u8]) -> bool {
        TeamBundle::is_encoded(file)
            && TeamBundle::decode(file).is_ok_and(|bundle| bundle.served)
            && team::other_host(file).is_none()
    }

    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        self.0.load(file)
    }
}

/// What is printed when the server has started.
struct StartText<'a> {
    url: &'a str,
    teams: &'a [ServedTeam],
    dir: &'a Path,
    token_file: Option<&'a Path>,
}

impl StartText<'_> {
    fn print(
        &self,
        context: &CliContext,
        json: bool,
        data_dir: &DataDir,
        access: &AccessDir,
    ) -> Result<(), CliError> {
        if json {
            return context.term.print_json(&serde_json::json!({
                "url": self.url,
                "token_file": self.token_file.map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned())),
                "teams": self.teams.iter().map(|team| &team.name).collect::<Vec<_>>(),
                "dir": self.dir,
                "pid": std::process::id(),
            }));
        }
        // A code that is written to a log could be used by its readers: print it only for a person.
        let code = match context.term.live && self.token_file.is_some() {
            true => access.create_code(DEFAULT_TOKEN).ok(),
            false => None,
        };
        for line in self.lines(context, data_dir, code.as_deref()) {
            context.term.print_line(&line)?;
        }
        Ok(())
    }

    fn lines(&self, context: &CliContext, data_dir: &DataDir, code: Option<&str>) -> Vec<String> {
        let term = context.term;
        let faint = |text: &str| term.paint(Ink::Faint, text);
        let row = |name: &str, text: &str| format!("  {}  {text}", faint(&format!("{name:<8}")));
        let mut lines = vec![format!("Longhaul serves {}", term.paint(Ink::Strong, self.url)), String::new()];
        for team in self.teams {
            let agents: Vec<String> = team.agents().iter().map(|agent| agent.name.to_string()).collect();
            let text = format!("{} ({})", team.name, agents.join(", "));
            lines.push(row("team", &sanitize(&text)));
        }
        lines.push(row("work in", &sanitize(&self.dir.display().to_string())));
        lines.push(match self.token_file {
            Some(file) => row("token", &sanitize(&file.display().to_string())),
            None => row("token", &format!("create one: {}", data_dir.shell_command("token create NAME"))),
        });
        let open = data_dir.shell_command("open");
        lines.push(match code {
            Some(code) => {
                let link = term.paint(Ink::Strong, &format!("{}/#code={code}", self.url));
                row("browser", &format!("{link}  {}", faint(&format!("once, within 60 s; then `{open}`"))))
            }
            None => row("browser", &format!("`{open}` prints a link that signs in")),
        });
        lines.push(row("stop", "Ctrl-C; unfinished tasks go on at the next start"));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_are_named_by_their_files_and_no_two_alike() {
        let names = |files: &[&str]| team_names(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["a/dev.yaml", "docs.v2.yml"]).unwrap(), ["dev", "docs.v2"]);
        let error = names(&["a/dev.yaml", "b/dev.yml"]).unwrap_err();
        assert!(error.message().contains("a/dev.yaml and b/dev.yml are both named 'dev'"), "{error}");
        assert!(names(&["my team.yaml"]).is_err());
    }
}
