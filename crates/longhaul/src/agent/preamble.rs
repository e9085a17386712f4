//! What an agent is told of the day and the place, when a task begins.

/// What is added to an agent's instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preamble {
    /// Which day it is.
    pub date: bool,
    /// Where it works: directory, whether that is a git repository, operating system.
    pub environment: bool,
    /// What is in these files. Each is looked for in the working directory, then in the directories above it.
    pub prompt_files: Vec<String>,
}
