//! Reads a YAML team file into a `Team`, or reports errors with line and column.
//!
//! [`parse`] makes a [`TeamFile`] of a text and tells everything that is wrong with it at once; it is pure. [`check_host`] tells
//! what is wrong with the surroundings: variables that are not set, files that are not there.
//!
//! ```
//! use longhaul::teamfile;
//!
//! let text = "agents:\n  root:\n    modle: openai/gpt-5\n    toolsets: [{type: shel}]\n";
//! let reading = teamfile::parse(text);
//! assert!(reading.file.is_none());
//! let told: Vec<String> = reading.problems.iter().map(|problem| problem.message.clone()).collect();
//! assert_eq!(told, ["unknown key 'modle' in an agent", "there is no toolset of type 'shel'"]);
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

use serde::Deserialize as _;

pub use assemble::{
    AssembleError, AssembledTeam, BundleLoader, Environment, ModelOverride, VariableLookup, assemble,
};
pub use bundle::{FileProblem, TeamBundle, TeamBundleError};
pub use config::*;
pub use cycles::find_cycles;
pub use file_schema::json_schema;
pub use host_check::{HostProbe, check_host};
pub use problem::{Problem, Severity, SourceSpan};
pub use trust::{TrustItem, trust_digest, trust_items};
pub use variables::{VariableError, fill_variables, required_variables};
pub use yaml::MAX_TEAM_FILE_BYTES;

/// What a text is, read as a team file.
#[derive(Debug)]
pub struct ParsedTeamFile {
    /// The team, if nothing is wrong with it but what can be passed over.
    pub file: Option<TeamFile>,
    /// All that is wrong, in the order of the file.
    pub problems: Vec<Problem>,
}

impl ParsedTeamFile {
    /// How many problems keep the team from running.
    pub fn error_count(&self) -> usize {
        self.problems.iter().filter(|problem| problem.is_error()).count()
    }
}

/// Reads a team file.
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
            // The tables allow what the types do not: ours to mend.
            Err(error) => {
                problems.push(Problem::error(node.at, "", format!("the file cannot be read: {error}")));
            }
        }
    }
    problems.append(reader.problems);
    let problems = problems.into_sorted();
    let file = file.filter(|_| !problems.iter().any(Problem::is_error));
    ParsedTeamFile { file, problems }
}
