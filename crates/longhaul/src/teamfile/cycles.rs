//! Detects team files that refer to each other in a cycle.

use std::collections::HashSet;
use std::path::Path;

use super::bundle::{TeamBundle, parent_dir};
use super::reader::join_path;
use super::references::{AgentReference, resolve_reference};
use super::{Problem, ProblemKind, TeamFile, parse};

/// Reports each team file named in the bundle's own that leads to a cycle. `assemble` refuses such a team, too.
pub fn find_cycles(bundle: &TeamBundle) -> Vec<Problem> {
    let Some(team) = parse(&bundle.text).file else { return Vec::new() };
    let own = Path::new(&bundle.name).file_name().map(|name| name.to_string_lossy().into_owned());
    let own = own.unwrap_or_default();
    let mut problems = Vec::new();
    for (path, named) in referenced_team_files(&team) {
        let Some((key, text)) = bundle.find_file("", named) else { continue };
        let mut way = vec![own.clone()];
        if let Some(way) = path_to_cycle(bundle, &mut way, &key, text, &mut HashSet::new()) {
            let message = format!("the team file '{named}' refers to itself: {}", way.join(" → "));
            let help = "remove one of these references";
            let problem = Problem::error(team.span_of(&path).value, &path, message).with_help(help);
            problems.push(problem.with_kind(ProblemKind::Cycle));
        }
    }
    problems
}

/// The path from a file back to one that is already on the path.
fn path_to_cycle(
    bundle: &TeamBundle,
    way: &mut Vec<String>,
    key: &str,
    text: &str,
    seen: &mut HashSet<String>,
) -> Option<Vec<String>> {
    let again = way.iter().any(|before| before == key);
    way.push(key.to_owned());
    if again {
        return Some(std::mem::take(way));
    }
    // A file that was visited on another path leads to no cycle.
    if seen.insert(key.to_owned())
        && let Some(team) = parse(text).file
    {
        for (_, named) in referenced_team_files(&team) {
            if let Some((next, text)) = bundle.find_file(parent_dir(key), named)
                && let Some(way) = path_to_cycle(bundle, way, &next, text, seen)
            {
                return Some(way);
            }
        }
    }
    way.pop();
    None
}

/// The team files that a team file names, each with the path of the key.
fn referenced_team_files(team: &TeamFile) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for (name, agent) in &team.agents {
        for (key, others) in [("sub_agents", &agent.sub_agents), ("handoffs", &agent.handoffs)] {
            for (index, other) in others.iter().enumerate() {
                if let AgentReference::File { path, .. } = resolve_reference(team, other) {
                    found.push((format!("{}.{key}[{index}]", join_path("agents", name)), path));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, others) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("agents: {{root: {{model: auto, sub_agents: [{others}]}}}}\n"))
                .unwrap();
        }
        let bundle = TeamBundle::load(&dir.path().join(files[0].0)).unwrap();
        find_cycles(&bundle).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn a_way_back_is_found_and_shown() {
        let way = |named: &str, way: &str| format!("the team file '{named}' refers to itself: {way}");
        assert_eq!(
            messages(&[("a.yaml", "x:./b.yaml"), ("b.yaml", "y:./a.yaml")]),
            [way("./b.yaml", "a.yaml → b.yaml → a.yaml")]
        );
        assert_eq!(messages(&[("a.yaml", "x:./a.yaml")]), [way("./a.yaml", "a.yaml → a.yaml")]);
        assert_eq!(
            messages(&[("a.yaml", "x:./o/b.yaml"), ("o/b.yaml", "y:./c.yaml"), ("o/c.yaml", "z:./b.yaml")]),
            [way("./o/b.yaml", "a.yaml → o/b.yaml → o/c.yaml → o/b.yaml")]
        );
    }

    #[test]
    fn one_that_is_named_twice_is_no_way_back() {
        let files = [
            ("a.yaml", "x:./b.yaml, y:./c.yaml"),
            ("b.yaml", "z:./c.yaml"),
            ("c.yaml", ""),
            ("d.yaml", "x:./a.yaml"),
        ];
        assert_eq!(messages(&files), Vec::<String>::new());
    }
}
