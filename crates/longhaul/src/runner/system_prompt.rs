//! Builds the system prompt: the agent's instruction, the date and the environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::open_tools::{OpenTools, push_paragraph};
use crate::agent::{Agent, Preamble};
use crate::message::prompt_tags::{escape, escape_attribute};

/// How much of a prompt file is read, in bytes.
const FILE_CAP: usize = 64 * 1024;

/// The whole system prompt.
pub(super) async fn build_system_prompt(
    open_tools: &OpenTools,
    agent: &Agent,
    now: Timestamp,
    dir: Option<PathBuf>,
) -> Arc<str> {
    if agent.preamble == Preamble::default() {
        return open_tools.system.clone();
    }
    let preamble = agent.preamble.clone();
    let told = tokio::task::spawn_blocking(move || preamble_parts(&preamble, now, dir.as_deref())).await;
    let mut text = open_tools.system.to_string();
    told.unwrap_or_default().iter().for_each(|part| push_paragraph(&mut text, part));
    text.into()
}

fn preamble_parts(preamble: &Preamble, now: Timestamp, dir: Option<&Path>) -> Vec<String> {
    let mut parts = Vec::new();
    if preamble.date {
        parts.push(format!("Today is {} (UTC).", now.to_zoned(TimeZone::UTC).strftime("%A, %Y-%m-%d")));
    }
    if preamble.environment {
        let place =
            dir.map_or("none".to_owned(), |dir| escape_attribute(&dir.display().to_string()).into_owned());
        let git = dir.is_some_and(|dir| dir.ancestors().any(|dir| dir.join(".git").exists()));
        parts.push(format!(
            "<environment>\nWorking directory: {place}\nGit repository: {}\nOperating system: {} ({})\n</environment>",
            if git { "yes" } else { "no" },
            std::env::consts::OS,
            std::env::consts::ARCH,
        ));
    }
    for name in &preamble.prompt_files {
        match read_prompt_file(name, dir) {
            Some(text) => {
                let (name, text) = (escape_attribute(name), escape(text.trim_end()));
                parts.push(format!("<file name=\"{name}\">\n{text}\n</file>"));
            }
            None => {
                tracing::warn!(file = name, "the prompt file is not in the working directory or above it")
            }
        }
    }
    parts
}

fn read_prompt_file(name: &str, dir: Option<&Path>) -> Option<String> {
    let bytes = dir?.ancestors().find_map(|dir| std::fs::read(dir.join(name)).ok())?;
    let text = String::from_utf8_lossy(&bytes);
    let end = text.floor_char_boundary(FILE_CAP);
    Some(text[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_what_it_is_to_know() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("below");
        std::fs::create_dir_all(dir.join(".git")).unwrap();
        std::fs::write(above.path().join("AGENTS.md"), "Be kind.\n").unwrap();
        let preamble = Preamble {
            date: true,
            environment: true,
            prompt_files: vec!["AGENTS.md".into(), "missing.md".into()],
        };
        let told = preamble_parts(&preamble, "2026-11-15T23:59:00Z".parse().unwrap(), Some(&dir));
        assert_eq!(told[0], "Today is Sunday, 2026-11-15 (UTC).");
        assert!(told[1].contains(&format!("Working directory: {}\nGit repository: yes", dir.display())));
        assert_eq!(told[2..], ["<file name=\"AGENTS.md\">\nBe kind.\n</file>"]);
        assert_eq!(preamble_parts(&Preamble::default(), Timestamp::UNIX_EPOCH, None), Vec::<String>::new());
    }
}
