//! What it costs to read a team file: `cargo bench -p longhaul --bench teamfile`.

use divan::{Bencher, black_box};
use longhaul::teamfile;

fn main() {
    divan::main();
}

const EVERYTHING: &str = include_str!("../tests/teams/everything.yaml");
const REVIEW: &str = include_str!("../../../examples/teams/code-review.yaml");

#[divan::bench]
fn a_usual_team(bencher: Bencher<'_, '_>) {
    bencher.bench(|| teamfile::parse(black_box(REVIEW)));
}

#[divan::bench]
fn every_key_there_is(bencher: Bencher<'_, '_>) {
    bencher.bench(|| teamfile::parse(black_box(EVERYTHING)));
}

/// A hundred agents that all know one another.
#[divan::bench]
fn a_hundred_agents(bencher: Bencher<'_, '_>) {
    let names: Vec<String> = (0..100).map(|n| format!("agent{n}")).collect();
    let mut text = String::from("agents:\n");
    for (n, name) in names.iter().enumerate() {
        let others: Vec<&str> = names.iter().map(String::as_str).filter(|other| *other != names[n]).collect();
        text.push_str(&format!(
            "  {name}:\n    model: openai/gpt-5\n    instruction: You are number {n}.\n    sub_agents: [{}]\n    toolsets: [{{type: think}}, {{type: filesystem}}]\n",
            others.join(", ")
        ));
    }
    assert!(teamfile::parse(&text).file.is_some());
    bencher.bench(|| teamfile::parse(black_box(&text)));
}

#[divan::bench]
fn the_schema() -> serde_json::Value {
    teamfile::json_schema()
}
