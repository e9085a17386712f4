//! `longhaul check` and `longhaul schema`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use longhaul::teamfile::{
    self, AssembleError, Environment, HostProbe, Problem, ProblemKind, Severity, TeamBundle, TrustItem,
};
use serde::Serialize;

use super::CliContext;
use crate::args::{CheckArgs, SchemaKind};
use crate::exit::{CliError, CliExitCode};
use crate::team;
use crate::view::{Ink, TerminalOutput, pluralize, sanitize};

pub(super) async fn run(context: &CliContext, args: &CheckArgs) -> Result<CliExitCode, CliError> {
    let (files, skipped) = find_team_files(&args.paths)?;
    let environment = team::build_environment(context, &args.providers, &context.data_dir()?)?;
    let (mut errors, mut warnings) = (0, 0);
    for path in &files {
        let checked = match TeamFileReport::for_file(path, &environment).await {
            // If there are several files, report an unreadable one like any other.
            Err(error) if files.len() > 1 => TeamFileReport::unreadable(path, &error),
            checked => checked?,
        };
        if args.json {
            context.term.print_json(&checked)?;
        } else {
            checked.print(context.term)?;
        }
        errors += checked.errors;
        warnings += checked.warnings;
    }
    if !args.json {
        let mut total = format!(
            "{}: {}, {}",
            pluralize(files.len(), "file"),
            pluralize(errors, "error"),
            pluralize(warnings, "warning")
        );
        if skipped > 0 {
            total += &format!("; {} skipped (no `agents`, so not a team)", pluralize(skipped, "YAML file"));
        }
        let ink = if errors > 0 { Ink::Bad } else { Ink::Good };
        context.term.print_line(&context.term.paint(ink, &total))?;
    }
    let wrong = errors > 0 || args.strict && warnings > 0;
    Ok(if wrong { CliExitCode::Team } else { CliExitCode::Success })
}

pub(super) fn print_schema(context: &CliContext, of: SchemaKind) -> Result<CliExitCode, CliError> {
    /// The schema of `--json` events. A test compares it with real events, key by key.
    const EVENTS: &str = include_str!("events.schema.json");
    match of {
        SchemaKind::Team => {
            context.term.print_line(&serde_json::to_string_pretty(&teamfile::json_schema())?)?
        }
        SchemaKind::Events => context.term.print_line(EVENTS.trim_end())?,
    }
    Ok(CliExitCode::Success)
}

/// The result of checking one file.
#[derive(Default, Serialize)]
struct TeamFileReport {
    file: String,
    ok: bool,
    errors: usize,
    warnings: usize,
    agents: Vec<String>,
    /// The time to read and check the file, in microseconds.
    micros: u128,
    problems: Vec<Problem>,
    /// What the team does without asking.
    trust: Vec<TrustItem>,
    #[serde(skip)]
    text: String,
}

impl TeamFileReport {
    async fn for_file(path: &Path, environment: &Environment) -> Result<TeamFileReport, CliError> {
        let began = std::time::Instant::now();
        let text = read_team_file(path)?;
        let mut reading = teamfile::parse(&text);
        let (mut agents, mut trust) = (Vec::new(), Vec::new());
        if let Some(file) = &reading.file {
            reading.problems.extend(teamfile::check_host(file, &LocalHostProbe(path)));
            // If the bundle cannot be read completely, the problems already say so.
            let bundle = TeamBundle::load(path);
            reading.problems.extend(bundle.iter().flat_map(teamfile::find_cycles));
            if let Ok(bundle) = &bundle
                && reading.problems.iter().all(|problem| !problem.is_error())
            {
                let more = run_problems(bundle, environment).await;
                let is_new = |problem: &Problem| reading.problems.iter().all(|known| known.at != problem.at);
                let more: Vec<Problem> = more.into_iter().filter(is_new).collect();
                reading.problems.extend(more);
            }
            trust.extend(bundle.iter().flat_map(teamfile::trust_items));
            agents.extend(file.agents.keys().cloned());
        }
        let (errors, all) = (reading.error_count(), reading.problems.len());
        Ok(TeamFileReport {
            file: path.display().to_string(),
            ok: errors == 0,
            errors,
            warnings: all - errors,
            agents,
            micros: began.elapsed().as_micros(),
            problems: reading.problems.into_iter().map(team::with_command_help).collect(),
            trust,
            text,
        })
    }

    /// Creates the report of a file that cannot be read.
    fn unreadable(path: &Path, error: &CliError) -> TeamFileReport {
        let (message, help) = (error.message().to_owned(), error.hint_text().map(str::to_owned));
        let problem = Problem { message, help, ..Problem::error(teamfile::SourceSpan::START, "", "") };
        let (file, problems) = (path.display().to_string(), vec![problem]);
        TeamFileReport { file, errors: 1, problems, ..TeamFileReport::default() }
    }

    fn print(&self, term: TerminalOutput) -> Result<(), CliError> {
        let (sign, ink) = match (self.errors, self.warnings) {
            (0, 0) => ("✓", Ink::Good),
            (0, _) => ("!", Ink::Attention),
            _ => ("✗", Ink::Bad),
        };
        let what = match (self.errors, self.warnings) {
            (0, 0) => pluralize(self.agents.len(), "agent"),
            (0, warnings) => {
                format!("{}, {}", pluralize(self.agents.len(), "agent"), pluralize(warnings, "warning"))
            }
            (errors, 0) => pluralize(errors, "error"),
            (errors, warnings) => {
                format!("{}, {}", pluralize(errors, "error"), pluralize(warnings, "warning"))
            }
        };
        let name = sanitize(&self.file);
        term.print_line(&format!("{} {name}  {}", term.paint(ink, sign), term.paint(Ink::Faint, &what)))?;
        for problem in &self.problems {
            for (index, line) in problem.render(&name, &self.text).lines().enumerate() {
                let line = sanitize(line);
                let ink = match (index, problem.severity) {
                    (0, Severity::Error) => Ink::Bad,
                    (0, Severity::Warning) => Ink::Attention,
                    _ if line.trim_start().starts_with("-->") => Ink::Faint,
                    _ => Ink::Plain,
                };
                term.print_line(&format!("  {}", term.paint(ink, &line)))?;
            }
            term.print_line("")?;
        }
        if !self.trust.is_empty() {
            term.print_line("  By itself, without asking anybody, it")?;
            crate::trust::format_trust_items(&self.trust, term)
                .iter()
                .try_for_each(|line| term.print_line(line))?;
            term.print_line("")?;
        }
        Ok(())
    }
}

/// Returns why `run` would refuse a team whose file is valid. Something that is only missing here, such as a
/// key, is a warning.
async fn run_problems(bundle: &TeamBundle, environment: &Environment) -> Vec<Problem> {
    let start = teamfile::SourceSpan::START;
    match teamfile::assemble(bundle, environment) {
        Ok(assembly) => {
            let own = assembly.warnings.into_iter().filter(|notice| notice.file == bundle.name);
            let mut problems: Vec<Problem> = own.map(|notice| notice.problem).collect();
            if let Err(error) = team::check_auto_model(&assembly.team, environment).await {
                let help = error.hint_text().unwrap_or_default();
                problems.push(Problem::warning(start, "", error.message()).with_help(help));
            }
            problems
        }
        Err(AssembleError::InvalidFile { file, problems, .. }) if file == bundle.name => {
            let here = |problem: Problem| match problem.kind {
                ProblemKind::Environment => Problem { severity: Severity::Warning, ..problem },
                _ => problem,
            };
            problems.into_iter().map(here).collect()
        }
        Err(error) => {
            let problem = Problem::error(start, "", "").with_help("check that file too");
            // It has several lines.
            vec![Problem { message: error.to_string(), ..problem }]
        }
    }
}

/// The machine that runs the check.
struct LocalHostProbe<'a>(&'a Path);

impl HostProbe for LocalHostProbe<'_> {
    fn has_variable(&self, name: &str) -> bool {
        std::env::var_os(name).is_some()
    }

    fn has_file(&self, path: &Path) -> bool {
        self.0.parent().unwrap_or(Path::new("")).join(path).is_file()
    }
}

/// Reads a team file. Fails if it cannot be read or is too large.
pub(crate) fn read_team_file(path: &Path) -> Result<String, CliError> {
    let name = path.display();
    let cannot = |error: std::io::Error| {
        CliError::new(CliExitCode::Team, format!("the team file {name} cannot be read: {error}"))
            .with_hint("`longhaul init FILE` writes a starter file")
    };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let most = teamfile::MAX_TEAM_FILE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(cannot)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::new(CliExitCode::Team, format!("the team file {name} is not valid UTF-8 (byte {at})"))
            .with_hint("save it as UTF-8")
    })
}

/// Returns the team files in order, and how many YAML files in the directories are not team files.
fn find_team_files(paths: &[PathBuf]) -> Result<(Vec<PathBuf>, usize), CliError> {
    let (mut files, mut skipped) = (Vec::new(), 0);
    for path in paths {
        if path.is_dir() {
            let mut found = Vec::new();
            collect_yaml_files(path, 0, &mut found)?;
            let all = found.len();
            found.retain(|file| may_be_team(file));
            skipped += all - found.len();
            if found.is_empty() {
                let what = format!("there is no team file in {}", path.display());
                return Err(CliError::new(CliExitCode::Usage, what)
                    .with_hint("name a team file, or a directory that has some"));
            }
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    Ok((files, skipped))
}

/// Returns whether a YAML file in a directory looks like a team file. An unreadable file counts, so that it
/// is reported.
fn may_be_team(path: &Path) -> bool {
    let Ok(text) = read_team_file(path) else { return true };
    let is_key = |line: &str| line.trim_start_matches(['{', ' ', '"', '\'']).starts_with("agents");
    text.lines().any(|line| (line.starts_with(['a', '{', '"', '\''])) && is_key(line))
}

fn collect_yaml_files(dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let cannot = |error: std::io::Error| {
        CliError::new(CliExitCode::Team, format!("the directory {} cannot be read: {error}", dir.display()))
            .with_hint("name team files instead")
    };
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(cannot)?;
    entries.sort();
    for path in entries {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden {
            continue;
        }
        // Skip links: they could lead back here.
        if path.is_dir() && !path.is_symlink() && depth < 16 {
            collect_yaml_files(&path, depth + 1, files)?;
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}
