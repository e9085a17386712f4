//! `longhaul tools`: what each agent of a team has. (Servers are in `mcp.rs`, consent is in `trust.rs`.)

use crate::kit::Kit;
use crate::term::Terminal;

/// A team whose model needs a key that nobody has.
const TEAM: &str = "\
agents:
  root:
    model: openai/gpt-5
    sub_agents: [reader]
    toolsets: [{type: background_agents}]
  reader:
    model: anthropic/claude-sonnet-4-5
    toolsets:
      - {type: filesystem, tools: [read_file, edit_file]}
      - {type: script, shell: {wipe: {cmd: 'true', description: \"Wipes\\e[2J it.\"}}}
";

fn kit() -> Kit {
    let kit = Kit::new();
    kit.write("team.yaml", TEAM);
    // A script is something to agree to.
    kit.run(&["tools", "team.yaml", "--trust"]).ended(0);
    kit
}

#[test]
fn every_agent_has_its_tools_with_their_arguments_and_effects() {
    let kit = kit();
    let ran = kit.run(&["tools", "team.yaml"]).ended(0);
    assert_eq!(ran.err, "", "no key is needed");
    for told in [
        "    run_background_agent  starts tasks\n",
        "      agent (\"reader\", required): ",
        "    list_background_agents  only reads\n",
        "\nreader  3 tools\n  filesystem\n",
        "    read_file  only reads\n",
        "      path (string, required): ",
        "    edit_file  changes things",
        "      edits (array of object, required): ",
        "    wipe  changes things\n",
    ] {
        assert!(ran.out.contains(told), "'{told}' is not in:\n{}", ran.out);
    }
    assert!(ran.out.starts_with("root  "), "{}", ran.out);
    assert!(!kit.database().exists(), "there is no task");

    let only = kit.run(&["tools", "team.yaml", "--agent", "reader"]).ended(0);
    assert!(only.out.starts_with("reader  3 tools\n") && !only.out.contains("root"), "{}", only.out);

    let json = kit.run(&["tools", "team.yaml", "--json"]).ended(0).json();
    assert_eq!(
        json.iter().map(|agent| agent["agent"].as_str().unwrap()).collect::<Vec<_>>(),
        ["root", "reader"]
    );
    let read = &json[1]["toolsets"][0]["tools"][0];
    assert_eq!((&read["name"], &read["effects"]["read_only"]), (&"read_file".into(), &true.into()));
    assert_eq!(json[1]["unavailable"], serde_json::json!([]));
}

#[test]
fn it_fits_narrow_terminals_and_does_without_colours() {
    let kit = kit();
    for columns in [40_u16, 80] {
        let mut command = kit.command(&["tools", "team.yaml", "--agent", "reader"]);
        let coloured = Terminal::run(&command, columns, 100);
        let (screen, code) = coloured.end();
        assert_eq!(code, 0, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{screen}");
        assert!(coloured.colours().contains("\x1b["), "{screen}");
        let plain = Terminal::run(command.env("NO_COLOR", "1"), columns, 100);
        assert_eq!(plain.end().0, screen);
        assert!(!plain.colours().contains('\x1b'), "{:?}", plain.colours());
    }
}

#[test]
fn what_cannot_be_listed_is_told() {
    let kit = kit();
    kit.run(&["tools", "team.yaml", "--agent", "writer"])
        .complains(2, &["--agent: there is no agent 'writer' in team.yaml", "there are: root, reader"]);
    kit.run(&["tools", "nowhere.yaml"]).complains(6, &["nowhere.yaml", "longhaul init"]);
    kit.write("wrong.yaml", "agents: {root: {modle: auto}}\n");
    let wrong = kit.run(&["tools", "wrong.yaml"]).ended(6).err;
    assert!(
        wrong.starts_with("error: the team file is wrong\n") && wrong.contains("longhaul check wrong.yaml"),
        "{wrong}"
    );
}
