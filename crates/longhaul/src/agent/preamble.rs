//! What the system prompt says about the date and the environment when a task starts.

/// What is added to an agent's instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preamble {
    /// The current date.
    pub date: bool,
    /// The working directory, whether it is a git repository, and the operating system.
    pub environment: bool,
    /// The content of these files. Each is searched for in the working directory, then in its parent
    /// directories.
    pub prompt_files: Vec<String>,
}

fluent_setters!(Preamble {
    date: bool,
    environment: bool,
    prompt_files: Vec<String>,
});
