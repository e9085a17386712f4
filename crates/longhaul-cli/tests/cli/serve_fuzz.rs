//! `longhaul serve`, fuzzed from the description that it serves: no failure of the server, every answer as described, what
//! is described as valid is taken, and nothing without a token.

use longhaul::testing::report_skipped;
use nix::sys::signal::Signal;

use crate::fuzzer::Fuzzer;
use crate::kit::Kit;
use crate::serve::{Server, answered, submit};

const TEAM: &str = "agents:\n  root:\n    model: play\n    description: Answers.\n    sub_agents: [worker]\n    toolsets: [{ type: background_agents }, { type: user_prompt }]\n  worker: { model: play, description: Works. }\n";
const PLAY: &str = "agents:
  root:
    cases:
      - when: team
        turns:
          - calls: [{ tool: run_background_agent, arguments: { agent: worker, task: x } }]
          - text: Waiting.
          - text: Done.
      - when: /a/
        turns: [{ calls: [{ tool: user_prompt, arguments: { message: Which? } }] }, { text: Thanks. }]
      - turns: [{ text: Done. }]
  worker: { turns: [{ text: Found. }] }
";

#[test]
fn the_real_server_is_as_it_describes_itself() {
    let kit = Kit::new();
    let fuzzer = match Fuzzer::install(kit.ground.path()) {
        Ok(fuzzer) => fuzzer,
        Err(why) => return report_skipped(&format!("schemathesis cannot be installed: {why}")),
    };
    kit.plays("team.yaml", TEAM, PLAY);
    let server = Server::start(&kit);
    let tree = submit(&kit, "team up");
    answered(&kit, tree);
    // Streams and waits take their time; the server's own tests have them.
    let all = ["--exclude-path-regex", "events$|wait$", "--max-examples", "15", "--phases"];
    let known = [&all[..], &["examples,coverage,fuzzing"]].concat();
    fuzzer.run(&server.url, &server.token, Some(&tree.to_string()), &known);
    fuzzer.run(
        &server.url,
        &server.token,
        None,
        &[&all[..], &["examples,coverage,fuzzing,stateful"]].concat(),
    );
    server.end(Signal::SIGTERM).ended(0);
}
