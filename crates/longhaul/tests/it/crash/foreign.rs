//! Agents of other programs in the crash harness: no prompt is sent twice, and no process is left.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use longhaul::entry::Entry;
use longhaul::{Agent, SubAgentDialect, Team};

use crate::acp::fake;
use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::kill::{death, for_seeds};
use crate::crash::process::{Player, is_alive, until};
use crate::crash::seeded::Seeded;
use crate::crash::team::scripted;

/// After so many kills a run is left to end in peace.
const KILLS: u32 = 12;
/// How far into a generation its death can be.
const FAR: u64 = 22;
/// The agents, and what is wrong with each.
const AGENTS: [(&str, &str); 4] =
    [("loads", ""), ("forgets", "forgets"), ("resumes", "no_load resumes"), ("sends", "delegates")];

const SCRIPT: &str = r#"
defaults: { delay: 0ms }
agents:
  lead:
    turns:
      - calls:
          - { tool: run_background_agent, arguments: { agent: loads, task: "do tag<kale>" } }
          - { tool: run_background_agent, arguments: { agent: forgets, task: "do tag<leek>" } }
          - { tool: run_background_agent, arguments: { agent: resumes, task: "do tag<mint>" } }
          - { tool: run_background_agent, arguments: { agent: sends, task: "do tag<oats>" } }
      - until: find_all('FOUND\[(.+?)\]') | length >= 4
        text: Waiting for more.
      - text: "ALL: {{ find_all('FOUND\\[(.+?)\\]') | join(' | ') }}"
  helper:
    turns: [{ text: "PART[{{ task }}]" }]
"#;

/// A lead with four agents of other programs, one of which sends out a helper itself.
pub(crate) fn team(dir: &Path) -> Team {
    let mut lead = Agent::builder("lead").model(scripted(SCRIPT)).dialect(SubAgentDialect::Background);
    for (name, faults) in AGENTS {
        let program = fake::program(&home(dir, name), faults);
        let mut agent = Agent::builder(name).acp(program);
        if name == "sends" {
            agent = agent.sub_agent(Agent::builder("helper").model(scripted(SCRIPT)).build().unwrap());
        }
        lead = lead.sub_agent(agent.build().unwrap());
    }
    Team::new(lead.build().unwrap()).unwrap()
}

fn home(dir: &Path, agent: &str) -> PathBuf {
    dir.join(agent)
}

pub(crate) fn killed(options: &Options) {
    kills(options, options.seeds.div_ceil(7), 1);
}

pub(crate) fn killed_300_times(options: &Options) {
    kills(options, 40, 300);
}

fn kills(options: &Options, seeds: u64, least: u64) {
    let begun = Instant::now();
    let kills = for_seeds(options, seeds, |seed, dir| {
        let mut seeded = Seeded::new(seed ^ 0xACB);
        let mut kills = 0;
        loop {
            let death = if kills < KILLS { death(&mut seeded, FAR) } else { "-".to_owned() };
            let status = Player::start("foreign", dir, &["p", &death, "5"]).end();
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(9), "the death of '{death}' was another: {status}");
            kills += 1;
            nobody_is_left(dir);
            no_prompt_came_twice(&Audit::of(dir), dir);
        }
        let audit = Audit::of(dir);
        audit.all_ended_once();
        let answer = audit.answer();
        for found in ["kale", "leek", "mint", "oats weigh it"] {
            assert!(answer.contains(found), "{answer}");
        }
        let helpers = audit.tasks.values().filter(|(state, _)| state.agent.as_str() == "helper").count();
        assert_eq!(helpers, 1, "the agent of another program sent out {helpers} helpers");
        no_prompt_came_twice(&audit, dir);
        nobody_is_left(dir);
        kills
    });
    println!("  {kills} kills with agents of other programs in {:.1?}", begun.elapsed());
    assert!(options.only.is_some() || kills >= least, "only {kills} kills");
}

/// Each prompt that an agent has received is in the journal, and was received no more often than it is there: a prompt that is
/// sent again because it did not arrive counts once.
fn no_prompt_came_twice(audit: &Audit, dir: &Path) {
    for (agent, _) in AGENTS {
        let mut written: HashMap<String, usize> = HashMap::new();
        for (state, journal) in audit.tasks.values().filter(|(state, _)| state.agent.as_str() == agent) {
            let mut open = 0;
            for record in journal {
                match &record.entry {
                    Entry::Prompted { held: true, .. } => {}
                    Entry::Prompted { text, again, .. } => {
                        *written.entry(text.to_string()).or_default() += usize::from(!again);
                    }
                    Entry::Called { foreign: true, .. } => open += 1,
                    Entry::Returned(returned) if returned.foreign.is_some() => open -= 1,
                    _ => {}
                }
            }
            assert!(!state.status.is_final() || open == 0, "{agent} has calls without a result");
        }
        let mut came: HashMap<(String, String), usize> = HashMap::new();
        for (session, text) in fake::received(&home(dir, agent)) {
            *came.entry((session, text)).or_default() += 1;
        }
        for ((session, text), times) in &came {
            let most = written.get(text).copied().unwrap_or(0);
            assert!(
                *times <= most,
                "{agent} got this {times} times in {session}, and {most} were written: {text}"
            );
            let is_order = text.contains("do tag<") && !text.contains("interrupted");
            assert!(!is_order || *times == 1, "{agent} got its order {times} times in {session}: {text}");
        }
    }
}

fn nobody_is_left(dir: &Path) {
    for (agent, _) in AGENTS {
        for pid in crate::crash::process::lines(&home(dir, agent).join("pids")) {
            let pid = pid.parse().unwrap();
            until("the end of an agent's process", || !is_alive(pid));
        }
    }
}
