//! `longhaul check` and `longhaul schema`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use longhaul::teamfile::{self, Around, AssembleError, Bundle, Outfit, Problem, Severity, TrustItem};
use serde::Serialize;

use super::Desk;
use crate::args::{CheckArgs, SchemaOf};
use crate::exit::{Code, Trouble};
use crate::team;
use crate::view::{Ink, Term, clean, many};

pub(super) async fn run(desk: &Desk, args: &CheckArgs) -> Result<Code, Trouble> {
    let (files, skipped) = files(&args.paths)?;
    let outfit = team::outfit(desk, &args.outside, &desk.place()?)?;
    let (mut errors, mut warnings) = (0, 0);
    for path in &files {
        let checked = match Checked::of(path, &outfit).await {
            // One of many that cannot be read is a line like the others.
            Err(trouble) if files.len() > 1 => Checked::unread(path, &trouble),
            checked => checked?,
        };
        if args.json {
            desk.term.json(&checked)?;
        } else {
            checked.show(desk.term)?;
        }
        errors += checked.errors;
        warnings += checked.warnings;
    }
    if !args.json {
        let mut total = format!(
            "{}: {}, {}",
            many(files.len(), "file"),
            many(errors, "error"),
            many(warnings, "warning")
        );
        if skipped > 0 {
            total += &format!("; {} skipped (no `agents`, so not a team)", many(skipped, "YAML file"));
        }
        let ink = if errors > 0 { Ink::Bad } else { Ink::Good };
        desk.term.line(&desk.term.paint(ink, &total))?;
    }
    let wrong = errors > 0 || args.strict && warnings > 0;
    Ok(if wrong { Code::Team } else { Code::Fine })
}

pub(super) fn schema(desk: &Desk, of: SchemaOf) -> Result<Code, Trouble> {
    /// The events as `--json` tells them; a test holds it against real ones, key by key.
    const EVENTS: &str = include_str!("events.schema.json");
    match of {
        SchemaOf::Team => desk.term.line(&serde_json::to_string_pretty(&teamfile::schema())?)?,
        SchemaOf::Events => desk.term.line(EVENTS.trim_end())?,
    }
    Ok(Code::Fine)
}

/// A file, and what is wrong with it.
#[derive(Serialize)]
struct Checked {
    file: String,
    ok: bool,
    errors: usize,
    warnings: usize,
    agents: Vec<String>,
    /// How long it took to read and to check, in microseconds.
    micros: u128,
    problems: Vec<Problem>,
    /// What the team does without anybody being asked.
    trust: Vec<TrustItem>,
    #[serde(skip)]
    text: String,
}

impl Checked {
    async fn of(path: &Path, outfit: &Outfit) -> Result<Checked, Trouble> {
        let began = std::time::Instant::now();
        let text = read(path)?;
        let mut reading = teamfile::read(&text);
        let (mut agents, mut trust) = (Vec::new(), Vec::new());
        if let Some(file) = &reading.file {
            reading.problems.extend(teamfile::survey(file, &Here(path)));
            // One that cannot be read whole has told so by now.
            let bundle = Bundle::gather(path);
            reading.problems.extend(bundle.iter().flat_map(teamfile::circles));
            if let Ok(bundle) = &bundle
                && reading.problems.iter().all(|problem| !problem.is_error())
            {
                let more = cannot_run(bundle, outfit).await;
                let is_new = |problem: &Problem| reading.problems.iter().all(|told| told.at != problem.at);
                let more: Vec<Problem> = more.into_iter().filter(is_new).collect();
                reading.problems.extend(more);
            }
            trust.extend(bundle.iter().flat_map(teamfile::trust_items));
            agents.extend(file.agents.keys().cloned());
        }
        let (errors, all) = (reading.errors(), reading.problems.len());
        Ok(Checked {
            file: path.display().to_string(),
            ok: errors == 0,
            errors,
            warnings: all - errors,
            agents,
            micros: began.elapsed().as_micros(),
            problems: reading.problems,
            trust,
            text,
        })
    }

    /// A file that there is nothing to be told of but that it cannot be read.
    fn unread(path: &Path, trouble: &Trouble) -> Checked {
        let problem = Problem {
            severity: Severity::Error,
            at: teamfile::Place::START,
            path: String::new(),
            message: trouble.what().to_owned(),
            help: trouble.help().map(str::to_owned),
        };
        Checked {
            file: path.display().to_string(),
            ok: false,
            errors: 1,
            warnings: 0,
            agents: Vec::new(),
            micros: 0,
            problems: vec![problem],
            trust: Vec::new(),
            text: String::new(),
        }
    }

    fn show(&self, term: Term) -> Result<(), Trouble> {
        let (sign, ink) = match (self.errors, self.warnings) {
            (0, 0) => ("✓", Ink::Good),
            (0, _) => ("!", Ink::Waits),
            _ => ("✗", Ink::Bad),
        };
        let what = match (self.errors, self.warnings) {
            (0, 0) => many(self.agents.len(), "agent"),
            (0, warnings) => format!("{}, {}", many(self.agents.len(), "agent"), many(warnings, "warning")),
            (errors, 0) => many(errors, "error"),
            (errors, warnings) => format!("{}, {}", many(errors, "error"), many(warnings, "warning")),
        };
        let name = clean(&self.file);
        term.line(&format!("{} {name}  {}", term.paint(ink, sign), term.paint(Ink::Faint, &what)))?;
        for problem in &self.problems {
            for (index, line) in problem.render(&name, &self.text).lines().enumerate() {
                let line = clean(line);
                let ink = match (index, problem.severity) {
                    (0, Severity::Error) => Ink::Bad,
                    (0, Severity::Warning) => Ink::Waits,
                    _ if line.trim_start().starts_with("-->") => Ink::Faint,
                    _ => Ink::Plain,
                };
                term.line(&format!("  {}", term.paint(ink, &line)))?;
            }
            term.line("")?;
        }
        if !self.trust.is_empty() {
            term.line("  By itself, without asking anybody, it")?;
            crate::trust::listed(&self.trust, term).iter().try_for_each(|line| term.line(line))?;
            term.line("")?;
        }
        Ok(())
    }
}

/// Why `run` would refuse a team whose file reads well. What is only missing here, such as a key, is a warning.
async fn cannot_run(bundle: &Bundle, outfit: &Outfit) -> Vec<Problem> {
    let problem = |severity, message: String, help: &str| Problem {
        severity,
        at: teamfile::Place::START,
        path: String::new(),
        message,
        help: Some(help.to_owned()),
    };
    match teamfile::assemble(bundle, outfit) {
        Ok(assembly) => {
            let own = assembly.notices.into_iter().filter(|notice| notice.file == bundle.name);
            let mut problems: Vec<Problem> = own.map(|notice| notice.problem).collect();
            if let Err(trouble) = team::somebody_to_ask(&assembly.team, outfit).await {
                let help = trouble.help().unwrap_or_default().to_owned();
                problems.push(problem(Severity::Warning, trouble.what().to_owned(), &help));
            }
            problems
        }
        Err(AssembleError::Wrong { file, problems, .. }) if file == bundle.name => {
            let here = |problem: Problem| match problem.is_of_environment() {
                true => Problem { severity: Severity::Warning, ..problem },
                false => problem,
            };
            problems.into_iter().map(here).collect()
        }
        Err(error) => vec![problem(Severity::Error, error.to_string(), "check that file too")],
    }
}

/// The machine that the check runs on.
struct Here<'a>(&'a Path);

impl Around for Here<'_> {
    fn has_variable(&self, name: &str) -> bool {
        std::env::var_os(name).is_some()
    }

    fn has_file(&self, path: &Path) -> bool {
        self.0.parent().unwrap_or(Path::new("")).join(path).is_file()
    }
}

/// The text of a team file. One that is much too large is not read to its end.
pub(crate) fn read(path: &Path) -> Result<String, Trouble> {
    let name = path.display();
    let cannot = |error: std::io::Error| {
        Trouble::new(Code::Team, format!("the team file {name} cannot be read: {error}"))
            .hint("`longhaul init FILE` writes one to begin with")
    };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let most = teamfile::LARGEST as u64 + 1;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(cannot)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Trouble::new(Code::Team, format!("the team file {name} is not UTF-8 text: byte {at} is none"))
            .hint("save it as UTF-8")
    })
}

/// The files that are meant, in order, and how many of the directories' are no team files.
fn files(paths: &[PathBuf]) -> Result<(Vec<PathBuf>, usize), Trouble> {
    let (mut files, mut skipped) = (Vec::new(), 0);
    for path in paths {
        if path.is_dir() {
            let mut found = Vec::new();
            below(path, 0, &mut found)?;
            let all = found.len();
            found.retain(|file| may_be_team(file));
            skipped += all - found.len();
            if found.is_empty() {
                let what = format!("there is no team file in {}", path.display());
                return Err(
                    Trouble::new(Code::Usage, what).hint("name a team file, or a directory that has some")
                );
            }
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    Ok((files, skipped))
}

/// Whether a YAML file that nobody has named looks like a team's. One that cannot be read is told of.
fn may_be_team(path: &Path) -> bool {
    let Ok(text) = read(path) else { return true };
    let is_key = |line: &str| line.trim_start_matches(['{', ' ', '"', '\'']).starts_with("agents");
    text.lines().any(|line| (line.starts_with(['a', '{', '"', '\''])) && is_key(line))
}

fn below(dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Trouble> {
    let cannot = |error: std::io::Error| {
        Trouble::new(Code::Team, format!("the directory {} cannot be read: {error}", dir.display()))
            .hint("name team files instead")
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
        // A link could lead back here.
        if path.is_dir() && !path.is_symlink() && depth < 16 {
            below(&path, depth + 1, files)?;
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}
