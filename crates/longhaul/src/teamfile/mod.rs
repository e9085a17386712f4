//! Reads a YAML team file into a `Team`, or reports errors with line and column.
//!
//! [`read`] makes a [`TeamFile`] of a text and tells everything that is wrong with it at once; it is pure. [`survey`] tells
//! what is wrong with the surroundings: variables that are not set, files that are not there.
//!
//! ```
//! use longhaul::teamfile;
//!
//! let text = "agents:\n  root:\n    modle: openai/gpt-5\n    toolsets: [{type: shel}]\n";
//! let reading = teamfile::read(text);
//! assert!(reading.file.is_none());
//! let told: Vec<String> = reading.problems.iter().map(|problem| problem.message.clone()).collect();
//! assert_eq!(told, ["unknown key 'modle' in an agent", "there is no toolset of type 'shel'"]);
//! assert_eq!(reading.problems[0].help.as_deref(), Some("did you mean 'model'?"));
//! assert_eq!((reading.problems[0].at.line, reading.problems[0].at.column), (3, 5));
//! ```

mod assemble;
mod bundle;
mod check;
mod circles;
mod form;
mod near;
mod node;
mod parts;
mod problem;
mod survey;
mod trust;
mod upgrade;
mod value;
mod variables;
mod walk;

#[cfg(test)]
mod tests;

use serde::Deserialize as _;

pub use assemble::{AssembleError, Assembly, Loader, Lookup, ModelOverride, Outfit, assemble};
pub use bundle::{Bundle, BundleError, Notice};
pub use circles::circles;
pub use form::schema;
pub use node::LARGEST;
pub use parts::*;
pub use problem::{Place, Problem, Severity};
pub use survey::{Around, survey};
pub use trust::{TrustItem, trust_digest, trust_items};
pub use variables::{Unfilled, fill, variables};

/// What a text is, read as a team file.
#[derive(Debug)]
pub struct Reading {
    /// The team, if nothing is wrong with it but what can be passed over.
    pub file: Option<TeamFile>,
    /// All that is wrong, in the order of the file.
    pub problems: Vec<Problem>,
}

impl Reading {
    /// How many problems keep the team from running.
    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|problem| problem.is_error()).count()
    }
}

/// Reads a team file.
pub fn read(text: &str) -> Reading {
    let (node, mut told) = match node::parse(text) {
        Ok(read) => read,
        Err(problem) => return Reading { file: None, problems: vec![problem] },
    };
    let mut walk = walk::Walk::default();
    let mut file = None;
    if let Some(mut value) = walk.team(&node) {
        upgrade::upgrade(&mut value);
        match TeamFile::deserialize(value) {
            Ok(read) => {
                let read = TeamFile { places: std::mem::take(&mut walk.places), ..read };
                told.append(check::check(&read, walk.told.kept()));
                file = Some(read);
            }
            // The tables allow what the types do not: ours to mend.
            Err(error) => {
                told.push(Problem::error(node.at, "", format!("the file cannot be read: {error}")));
            }
        }
    }
    told.append(walk.told);
    let problems = told.in_order();
    let file = file.filter(|_| !problems.iter().any(Problem::is_error));
    Reading { file, problems }
}
