//! Whether the user has accepted what a team file starts, reads and contacts by itself.
//!
//! The list comes from [`teamfile::trust_items`]. The data directory records what was accepted: the list, and
//! for which file. A changed list is asked about again, and so is another file.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use longhaul::teamfile::{self, TeamBundle, TrustItem};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cmd::CliContext;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::view::{Ink, OutputStream, TerminalOutput, one_line, sanitize};

/// The subdirectory of the data directory that holds the records.
const TRUSTED: &str = "trusted";

/// The record of a team file that the user has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TrustRecord {
    /// The path of the file, with symbolic links resolved.
    file: PathBuf,
    /// Device and inode identify the file after it was moved.
    device: u64,
    inode: u64,
    /// The digest of the list.
    digest: String,
    items: Vec<TrustItem>,
}

/// Whether a team file is trusted.
#[derive(Debug, PartialEq, Eq)]
enum TrustStatus {
    /// The list is empty or was accepted.
    Trusted,
    /// The user has not been asked about it.
    New,
    /// The list differs from the accepted one, which is given here.
    Changed(Vec<TrustItem>),
}

/// A team file, and what it does by itself.
pub(crate) struct TeamFileTrust<'a> {
    data_dir: &'a DataDir,
    name: String,
    file: PathBuf,
    items: Vec<TrustItem>,
}

impl<'a> TeamFileTrust<'a> {
    /// Collects what a team file and the files it refers to do by themselves.
    pub(crate) fn new(data_dir: &'a DataDir, file: &Path, bundle: &TeamBundle) -> TeamFileTrust<'a> {
        let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let name = one_line(&file.display().to_string());
        TeamFileTrust { data_dir, name, file: real, items: teamfile::trust_items(bundle) }
    }

    /// For commands that a person starts: asks at a terminal if the file is not trusted yet, and elsewhere
    /// prints a note and goes on. With `accepted` it does not ask. Fails if the user declines.
    pub(crate) fn ask_for_trust(&self, context: &CliContext, accepted: bool) -> Result<(), CliError> {
        let standing = self.status();
        if standing == TrustStatus::Trusted {
            return Ok(());
        }
        if accepted {
            self.remember(context);
            return Ok(());
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            context.note(&format!(
                "note: {} {}; `longhaul check` lists it, `--trust` accepts it",
                self.name,
                self.summary()
            ));
            return Ok(());
        }
        let term = TerminalOutput::for_stream(OutputStream::Stderr);
        for line in self.question_lines(&standing, term) {
            term.print_line(&line)?;
        }
        if !ask_yes_no("Run it? [y/N] ")? {
            return Err(CliError::new(
                CliExitCode::Team,
                format!("{} was not run: you did not accept it", self.name),
            )
            .with_hint(format!("`longhaul check {}` lists what it does; `--trust` accepts it", self.name)));
        }
        self.remember(context);
        Ok(())
    }

    /// For everything that starts a file unattended: never asks, and fails if the file is not trusted and not
    /// `accepted`.
    pub(crate) fn require_trust(&self, context: &CliContext, accepted: bool) -> Result<(), CliError> {
        if self.status() == TrustStatus::Trusted {
            return Ok(());
        }
        if accepted {
            self.remember(context);
            return Ok(());
        }
        let what = format!("{} is not trusted: it {}", self.name, self.summary());
        Err(CliError::new(CliExitCode::Team, what).with_hint(format!(
            "`longhaul check {}` lists it; `--trust` accepts it and remembers that",
            self.name
        )))
    }

    /// Returns whether the file is trusted already.
    pub(crate) fn is_trusted(&self) -> bool {
        self.status() == TrustStatus::Trusted
    }

    fn status(&self) -> TrustStatus {
        if self.items.is_empty() {
            return TrustStatus::Trusted;
        }
        let here = identity(&self.file);
        let same = |record: &TrustRecord| {
            record.file == self.file || here.is_some_and(|here| here == (record.device, record.inode))
        };
        let records = self.records();
        let digest = teamfile::trust_digest(&self.items);
        match records.iter().filter(|record| same(record)).max_by_key(|record| record.digest == digest) {
            None => TrustStatus::New,
            Some(record) if record.digest == digest && record.items == self.items => TrustStatus::Trusted,
            Some(record) => TrustStatus::Changed(record.items.clone()),
        }
    }

    fn directory(&self) -> PathBuf {
        self.data_dir.path().join(TRUSTED)
    }

    /// Returns the records, without those that cannot be read.
    fn records(&self) -> Vec<TrustRecord> {
        let entries = std::fs::read_dir(self.directory()).into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| std::fs::read(entry.path()).ok());
        texts.filter_map(|text| serde_json::from_slice(&text).ok()).collect()
    }

    fn remember(&self, context: &CliContext) {
        let (device, inode) = identity(&self.file).unwrap_or_default();
        let record = TrustRecord {
            file: self.file.clone(),
            device,
            inode,
            digest: teamfile::trust_digest(&self.items),
            items: self.items.clone(),
        };
        let name: String = Sha256::digest(self.file.as_os_str().as_encoded_bytes())
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if let Err(error) = write(&self.directory(), &name, &record) {
            let dir = self.directory();
            context.note(&format!(
                "warning: {} is not remembered as trusted: {}: {error}",
                self.name,
                dir.display()
            ));
        }
    }

    /// Summarizes what the file does, in one clause.
    fn summary(&self) -> String {
        let mut parts: Vec<(&str, usize)> = Vec::new();
        for item in &self.items {
            match parts.iter_mut().find(|(heading, _)| *heading == item.heading()) {
                Some((_, count)) => *count += 1,
                None => parts.push((item.heading(), 1)),
            }
        }
        parts.iter().map(|(heading, count)| format!("{heading} ({count})")).collect::<Vec<_>>().join(", ")
    }

    fn question_lines(&self, standing: &TrustStatus, term: TerminalOutput) -> Vec<String> {
        let name = &self.name;
        let mut lines = Vec::new();
        match standing {
            TrustStatus::Changed(before) => {
                lines.push(format!("{name} has changed since you accepted it:"));
                let gone = before.iter().filter(|item| !self.items.contains(item));
                let new = self.items.iter().filter(|item| !before.contains(item));
                lines.extend(new.map(|item| {
                    term.paint(
                        Ink::Attention,
                        &format!("  + {}: {}", item.heading(), format_trust_item(item)),
                    )
                }));
                lines.extend(gone.map(|item| {
                    term.paint(Ink::Faint, &format!("  - {}: {}", item.heading(), format_trust_item(item)))
                }));
                lines.push(String::new());
                lines.push("All of it:".to_owned());
            }
            _ => lines.push(format!("{name} has not been run here before. By itself it")),
        }
        lines.extend(format_trust_items(&self.items, term));
        lines.push(String::new());
        lines
    }
}

/// Formats items below their headings.
pub(crate) fn format_trust_items(items: &[TrustItem], term: TerminalOutput) -> Vec<String> {
    let mut lines = Vec::new();
    let mut heading = "";
    for item in items {
        if item.heading() != heading {
            heading = item.heading();
            lines.push(format!("  {}", term.paint(Ink::Strong, heading)));
        }
        let text = term.wrap_within(&format_trust_item(item), 4);
        lines.extend(text.lines().map(|line| format!("    {line}")));
    }
    lines
}

/// Formats an item as one line that hides nothing: line breaks are visible.
fn format_trust_item(item: &TrustItem) -> String {
    one_line(&item.to_string().trim_end().replace('\n', " ⏎ "))
}

pub(crate) fn ask_yes_no(question: &str) -> Result<bool, CliError> {
    let mut err = std::io::stderr();
    write!(err, "{}", sanitize(question))?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if !line.ends_with('\n') {
        writeln!(err)?;
    }
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn identity(file: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Writes a record atomically, readable only by its owner.
fn write(dir: &Path, name: &str, record: &TrustRecord) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let (path, draft) =
        (dir.join(format!("{name}.json")), dir.join(format!("{name}.{}.new", std::process::id())));
    let _ = std::fs::remove_file(&draft);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    serde_json::to_writer(&mut file, record)?;
    file.sync_all()?;
    std::fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TrustFixture {
        dir: tempfile::TempDir,
        data_dir: DataDir,
        context: CliContext,
    }

    impl TrustFixture {
        fn new() -> TrustFixture {
            let dir = tempfile::tempdir().unwrap();
            let data_dir = DataDir::resolve(Some(&dir.path().join("data"))).unwrap();
            let out = OutputStream::Stderr;
            let context = CliContext {
                data: None,
                store: None,
                term: TerminalOutput::for_stream(out),
                screen: crate::view::LiveRegion::on_stream(out),
            };
            TrustFixture { dir, data_dir, context }
        }

        fn write(&self, name: &str, instruction: &str, command: &str) -> PathBuf {
            let path = self.dir.path().join(name);
            let text = format!(
                "agents: {{root: {{model: auto, instruction: {instruction}, hooks: {{task_end: [{{type: command, command: {command}}}]}}}}}}"
            );
            std::fs::write(&path, text).unwrap();
            path
        }

        fn trust(&self, path: &Path) -> TeamFileTrust<'_> {
            TeamFileTrust::new(&self.data_dir, path, &TeamBundle::load(path).unwrap())
        }
    }

    #[test]
    fn what_was_agreed_to_is_remembered_with_the_file() {
        let fixture = TrustFixture::new();
        let file = fixture.write("team.yaml", "kind", "./a");
        assert_eq!(fixture.trust(&file).status(), TrustStatus::New);
        assert!(fixture.trust(&file).require_trust(&fixture.context, false).is_err());
        fixture.trust(&file).require_trust(&fixture.context, true).unwrap();
        assert!(fixture.trust(&file).is_trusted());
        assert!(fixture.trust(&file).require_trust(&fixture.context, false).is_ok());

        fixture.write("team.yaml", "rude", "./a");
        assert!(fixture.trust(&file).is_trusted(), "an instruction may change");
        let moved = fixture.dir.path().join("moved.yaml");
        std::fs::rename(&file, &moved).unwrap();
        assert!(fixture.trust(&moved).is_trusted(), "the file may be moved");

        let copy = fixture.write("copy.yaml", "kind", "./a");
        assert_eq!(
            fixture.trust(&copy).status(),
            TrustStatus::New,
            "what ./a is differs from place to place"
        );

        let changed = fixture.write("moved.yaml", "kind", "./b");
        let TrustStatus::Changed(before) = fixture.trust(&changed).status() else { panic!("it has changed") };
        assert_eq!(before[0].to_string(), "hook task_end of root: ./a");
        let lines = fixture.trust(&changed).question_lines(
            &TrustStatus::Changed(before),
            TerminalOutput { color: false, ..fixture.context.term },
        );
        assert!(lines.contains(&"  + starts programs: hook task_end of root: ./b".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"  - starts programs: hook task_end of root: ./a".to_owned()), "{lines:#?}");
    }

    #[test]
    fn only_its_owner_reads_what_is_remembered() {
        use std::os::unix::fs::PermissionsExt as _;
        let fixture = TrustFixture::new();
        let file = fixture.write("team.yaml", "kind", "./a");
        fixture.trust(&file).require_trust(&fixture.context, true).unwrap();
        let dir = fixture.trust(&file).directory();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let records: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!((mode(&dir), records.len(), mode(&records[0])), (0o700, 1, 0o600));
        std::fs::write(&records[0], "{").unwrap();
        assert_eq!(fixture.trust(&file).status(), TrustStatus::New, "a damaged record is none");
    }

    #[test]
    fn nothing_is_hidden_in_a_line() {
        let item = TrustItem::Command { what: "hook".into(), command: "true\nrm -rf /\r\n\u{1b}[2K".into() };
        assert_eq!(format_trust_item(&item), "hook: true ⏎ rm -rf /␍ ⏎ ␛[2K");
    }
}
