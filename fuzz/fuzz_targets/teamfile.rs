//! The loader of team files: whatever is written, it is read in little time and memory, all that is told lies in the
//! file, and what is taken is the same when it was kept and read again.

#![no_main]

use std::cell::RefCell;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use longhaul::model::http::{HttpClient, HttpOptions};
use longhaul::teamfile::{
    AssembleError, Environment, HostProbe, Problem, SourceSpan, TeamBundle, TeamFile, assemble, check_host,
    parse,
};
use longhaul_fuzz::within;

/// What a file of this size may take; aliases stand for much that is not written, and what is told of a mistake may be
/// much longer than the mistake, two hundred times.
fn enough(text: &str) -> usize {
    let most = 128 << 20;
    if text.contains('*') { most } else { most.min((2 << 20) + 2048 * text.len()) }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let reading = within(enough(text), || parse(text));
    assert_eq!(reading.file.is_none(), reading.error_count() > 0, "{:?}", reading.problems);
    lie_in(text, &reading.problems);
    assert_eq!(parse(text).problems, reading.problems, "it is told the same again");
    if let Some(file) = &reading.file {
        taken(text, file);
    }
});

/// What holds for a file that is right.
fn taken(text: &str, file: &TeamFile) {
    assert!(file.root_agent().is_some_and(|root| file.agents.contains_key(root)), "somebody is asked first");
    let bundle = TeamBundle::from_text("team.yaml", text);
    let kept = bundle.encode();
    assert!(TeamBundle::is_encoded(&kept));
    let back = TeamBundle::decode(&kept).expect("what was kept can be read");
    assert_eq!(back, bundle);
    assert_eq!(parse(&back.text).file.as_ref(), Some(file), "kept and read again");
    lie_in(text, &check_host(file, &Nowhere));

    ENVIRONMENT.with_borrow_mut(|(used, environment)| {
        // Places of providers are remembered: not for ever.
        *used += 1;
        if *used % 512 == 0 {
            *environment = new_environment();
        }
        match within(enough(text), || assemble(&bundle, environment)) {
            Ok(assembly) => {
                for notice in &assembly.warnings {
                    lie_in(text, std::slice::from_ref(&notice.problem));
                }
            }
            Err(AssembleError::InvalidFile { problems, .. }) => {
                assert!(!problems.is_empty(), "it says what is wrong");
                lie_in(text, &problems);
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    });
}

/// Every problem is at a place of the file, and can be shown on a terminal.
fn lie_in(text: &str, problems: &[Problem]) {
    let lines: Vec<&str> = text.split('\n').collect();
    for problem in problems {
        let SourceSpan { line, column, length } = problem.at;
        assert!(line >= 1 && column >= 1 && length >= 1, "{problem:?}");
        assert!(line as usize <= lines.len(), "{problem:?}: there are {} lines", lines.len());
        let width = lines[line as usize - 1].chars().count();
        assert!(column as usize <= width + 1, "{problem:?}: the line has {width} columns");
        assert!(!problem.message.is_empty());
    }
    for problem in problems.iter().take(20) {
        let shown = problem.render("team.yaml", text);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }
}

/// A machine on which nothing is.
struct Nowhere;

impl HostProbe for Nowhere {
    fn has_variable(&self, _: &str) -> bool {
        false
    }

    fn has_file(&self, _: &Path) -> bool {
        false
    }
}

thread_local! {
    static ENVIRONMENT: RefCell<(usize, Environment)> = RefCell::new((0, new_environment()));
}

fn new_environment() -> Environment {
    let http = HttpClient::new(HttpOptions::default()).expect("a way to providers");
    let variables = |name: &str| match name {
        "OPENAI_API_KEY" | "HOME" | "A" => Some("$B".to_owned()),
        _ => None,
    };
    Environment::new(http, variables, "nowhere")
}
