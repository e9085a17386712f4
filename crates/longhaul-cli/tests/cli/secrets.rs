//! A real process with a marked key, against a provider that throws it back in every way: the mark is nowhere.

use crate::kit::{Kit, Provider};
use crate::server::{Act, Asked, calls, says};

/// With characters that JSON and URLs write in another way.
const KEY: &str = "mk-0123/abc+XYZ=\"MARKED-9f8e7d6c";
const MARKS: [&str; 4] = ["MARKED-9f8e7d6c", "mk-0123/abc", "mk-0123%2Fabc", "mk-0123\\/abc"];

fn misbehave(asked: &Asked) -> Act {
    let quoted = serde_json::to_string(KEY).unwrap();
    let error = format!(
        "{{\"error\":{{\"message\":\"Incorrect API key provided: {}. Get another\"}}}}",
        &quoted[1..quoted.len() - 1]
    );
    if asked.order().contains("be refused") {
        return Act::Refuse(
            401,
            vec![("x-ratelimit-note", KEY.to_owned()), ("www-authenticate", KEY.to_owned())],
            error,
        );
    }
    match asked.number {
        0 => Act::Refuse(500, Vec::new(), format!("no backend for Bearer {KEY}")),
        1 => Act::Refuse(429, vec![("retry-after-ms", "20".into())], error),
        2 => Act::Cut(vec![
            format!("data: {{\"error\":{{\"message\":\"key {}", &KEY[..9]),
            KEY[9..].to_owned(),
        ]),
        3 => {
            Act::Stream(calls("transfer_task", &serde_json::json!({"agent": "helper", "task": "be refused"})))
        }
        _ => Act::Stream(says("Safe.")),
    }
}

#[test]
fn a_marked_key_is_found_nowhere() {
    for from_file in [false, true] {
        let kit = Kit::new();
        let provider = Provider::start(misbehave);
        kit.write(
            "team.yaml",
            &format!(
                "agents:\n  root: {{model: m, sub_agents: [helper]}}\n  helper: {{model: m}}\n\
                 models:\n  m: {{provider: openai, model: gpt-5, base_url: \"{}\"}}\n",
                provider.url()
            ),
        );
        // The file with the key is not among what is looked through.
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(elsewhere.path(), format!("OPENAI_API_KEY='{KEY}'\n")).unwrap();
        let file = elsewhere.path().display().to_string();
        let mut seen: Vec<(String, Vec<u8>)> = Vec::new();
        // The second of them meets only 401.
        for (prompt, more) in
            [("Begin", &["--json"][..]), ("be refused", &[]), ("be refused again", &["--json"])]
        {
            let tape = format!("tape-{}.jsonl", seen.len());
            let mut args = vec!["run", "team.yaml", prompt, "--record", &tape];
            args.extend(more);
            if from_file {
                args.extend(["--env-from-file", &file]);
            }
            let mut command = kit.command(&args);
            command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
            if !from_file {
                command.env("OPENAI_API_KEY", KEY);
            }
            let output = command.output().unwrap();
            let expected = if prompt == "Begin" { Some(0) } else { Some(1) };
            assert_eq!(output.status.code(), expected, "{}", String::from_utf8_lossy(&output.stderr));
            assert!(output.stderr.windows(5).any(|word| word == b"TRACE"), "everything is logged");
            seen.push((format!("{prompt}: stdout"), output.stdout));
            seen.push((format!("{prompt}: stderr"), output.stderr));
        }
        let asked = provider.asked();
        assert!(
            asked.len() >= 6 && asked.iter().all(|asked| asked.headers.contains(KEY)),
            "the key was really sent"
        );
        let ids: Vec<String> = kit.journals().iter().map(|(state, _)| state.id.to_string()).collect();
        assert_eq!(ids.len(), 4);
        for id in &ids {
            for args in [&["show", id][..], &["show", id, "--json"], &["logs", id], &["logs", id, "--json"]] {
                let ran = kit.command(args).env("RUST_LOG", "trace").output().unwrap();
                seen.push((args.join(" "), [ran.stdout, ran.stderr].concat()));
            }
        }
        let tasks = kit.command(&["tasks", "--all", "--json"]).output().unwrap();
        seen.push(("tasks".to_owned(), tasks.stdout));
        let left = kit.left();
        for name in ["longhaul.db", "tape-0.jsonl"] {
            assert!(left.iter().any(|(path, bytes)| path.ends_with(name) && !bytes.is_empty()), "{name}");
        }
        seen.extend(left.into_iter().map(|(path, bytes)| (path.display().to_string(), bytes)));
        let echo = b"Incorrect API key provided: ";
        let echoes =
            seen.iter().filter(|(_, bytes)| bytes.windows(echo.len()).any(|part| part == echo)).count();
        assert!(
            echoes >= 8,
            "what threw the key back was kept, shown and recorded, but for the key: {echoes}"
        );
        for (name, bytes) in &seen {
            let text = String::from_utf8_lossy(bytes);
            for mark in MARKS {
                if let Some(at) = text.find(mark) {
                    let from = text.floor_char_boundary(at.saturating_sub(300));
                    let to = text.ceil_char_boundary((at + 100).min(text.len()));
                    panic!("{name} has {mark}: …{}…", &text[from..to]);
                }
            }
        }
    }
}
