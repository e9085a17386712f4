//! Reads a YAML team file into a `Team`, or reports errors with line and column.
//!
//! [`parse`] turns a text into a [`TeamFile`] and reports all errors at once, without I/O. [`check_host`]
//! reports what the machine lacks: variables that are not set, and files that do not exist.
//!
//! ```
//! use longhaul::teamfile;
//!
//! let text = "agents:\n  root:\n    modle: openai/gpt-5\n    toolsets: [{type: shel}]\n";
//! let reading = teamfile::parse(text);
//! assert!(reading.file.is_none());
//! let messages: Vec<String> = reading.problems.iter().map(|problem| problem.message.clone()).collect();
//! assert_eq!(messages, ["unknown key 'modle' in an agent", "there is no toolset of type 'shel'"]);
//! assert_eq!(reading.problems[0].help.as_deref(), Some("did you mean 'model'?"));
//! assert_eq!((reading.problems[0].at.line, reading.problems[0].at.column), (3, 5));
//! ```

mod assemble;
mod bundle;
mod references;
mod cycles;
mod file_schema;
mod suggestions;
mod yaml;
mod config;
mod problem;
mod host_check;
mod trust;
mod upgrade;
mod normal_value;
mod variables;
mod reader;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod toolset_docs_tests;

use serde::Deserialize as _;

pub use assemble::{
    AssembleError, AssembledTeam, BundleLoader, Environment, ModelOverride, VariableLookup, assemble,
};
pub use bundle::{DecodeBundleError, FileProblem, TeamBundle, TeamBundleError};
pub use config::*;
pub use cycles::find_cycles;
pub use file_schema::json_schema;
pub use host_check::{HostProbe, check_host};
pub use problem::{Problem, ProblemKind, Severity, SourceSpan};
pub use trust::{TrustItem, trust_digest, trust_items};
pub use variables::{VariableError, fill_variables, required_variables};
pub use yaml::MAX_TEAM_FILE_BYTES;

/// The result of parsing a team file.
#[derive(Debug)]
#[non_exhaustive]
pub struct ParsedTeamFile {
    /// The team, if the file has no errors. Warnings do not matter.
    pub file: Option<TeamFile>,
    /// All errors and warnings, in the order of the file.
    pub problems: Vec<Problem>,
}

impl ParsedTeamFile {
    /// The number of errors.
    pub fn error_count(&self) -> usize {
        self.problems.iter().filter(|problem| problem.is_error()).count()
    }
}

/// Parses a team file. Never fails: errors are in [`ParsedTeamFile::problems`].
pub fn parse(text: &str) -> ParsedTeamFile {
    let (node, mut problems) = match yaml::parse_yaml(text) {
        Ok(parsed) => parsed,
        Err(problem) => return ParsedTeamFile { file: None, problems: vec![problem] },
    };
    let mut reader = reader::TeamFileReader::default();
    let mut file = None;
    if let Some(mut value) = reader.read_team(&node) {
        upgrade::upgrade(&mut value);
        match TeamFile::deserialize(value) {
            Ok(team) => {
                let team = TeamFile { spans: std::mem::take(&mut reader.spans), ..team };
                problems.append(references::check_references(&team, reader.problems.as_slice()));
                file = Some(team);
            }
            // The schema tables allow what the types do not: a bug in Longhaul.
            Err(error) => {
                problems.push(Problem::error(node.at, "", format!("cannot read the file: {error}")));
            }
        }
    }
    problems.append(reader.problems);
    let problems = problems.into_sorted();
    let file = file.filter(|_| !problems.iter().any(Problem::is_error));
    ParsedTeamFile { file, problems }
}
