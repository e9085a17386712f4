//! `auto`: a key that is set, a server of this machine, or an error that says what to do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::kit::{Kit, Provider, Ran};
use crate::server::{Act, Asked, says};

const TEAM: &str = "agents:\n  root:\n    model: auto\n";

/// Ports of loopback where nobody listens.
const NOBODY: [(&str, &str); 2] = [("OLLAMA_HOST", "127.0.0.1:9"), ("LLAMA_ARG_PORT", "9")];

fn run(kit: &Kit, variables: &[(&str, &str)]) -> Ran {
    let mut command = kit.command(&["run", "team.yaml", "Hello", "--timeout", "20s"]);
    command.envs(NOBODY).envs(variables.iter().copied());
    Ran::from(command.output().unwrap())
}

fn kit() -> Kit {
    let kit = Kit::new();
    kit.write("team.yaml", TEAM);
    kit
}

fn serves(asked: &Asked) -> Act {
    if asked.headers.starts_with("GET ") {
        let models = r#"{"data": [{"id": "nomic-embed-text"}, {"id": "qwen3:4b"}]}"#;
        return Act::Refuse(200, vec![("content-type", "application/json".to_owned())], models.to_owned());
    }
    Act::Stream(says("Hello from this machine."))
}

#[test]
fn the_first_provider_whose_key_is_set() {
    for (key, host) in [
        ("ANTHROPIC_API_KEY", "api.anthropic.com:443"),
        ("OPENAI_API_KEY", "api.openai.com:443"),
        ("GEMINI_API_KEY", "generativelanguage.googleapis.com:443"),
    ] {
        // A proxy that hears where the request would go, and lets nothing through.
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", proxy.local_addr().unwrap());
        let heard = std::thread::spawn(move || {
            let (mut stream, _) = proxy.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").unwrap();
            line
        });
        let kit = kit();
        // A local server that would answer is not asked.
        let provider = Provider::start(serves);
        let ollama = provider.address();
        let mut command = kit.command(&["run", "team.yaml", "Hello", "--timeout", "2s"]);
        command
            .envs(NOBODY)
            .env("OLLAMA_HOST", ollama)
            .env(key, "sk-marked-0123456789")
            .env("HTTPS_PROXY", &at)
            .env("https_proxy", &at)
            .env("NO_PROXY", "127.0.0.1")
            .env("no_proxy", "127.0.0.1");
        let ran = Ran::from(command.output().unwrap());
        // If nobody came, it would wait for ever.
        let _ = TcpStream::connect(at.trim_start_matches("http://"));
        assert_ne!(ran.status.code(), Some(0), "{}", ran.err);
        assert_eq!(heard.join().unwrap().trim_end(), format!("CONNECT {host} HTTP/1.1"));
        assert!(provider.asked().is_empty());
        assert!(!ran.err.contains("sk-marked"), "{}", ran.err);
    }
}

#[test]
fn a_server_of_this_machine_where_no_key_is_set() {
    for variable in ["OLLAMA_HOST", "LLAMA_ARG_PORT"] {
        let kit = kit();
        let provider = Provider::start(serves);
        let place = provider.address();
        let value = if variable == "OLLAMA_HOST" { &place[..] } else { place.rsplit(':').next().unwrap() };
        let ran = run(&kit, &[(variable, value)]).ended(0);
        assert_eq!(ran.out, "Hello from this machine.\n");
        let asked = provider.asked();
        assert!(asked.iter().any(|asked| asked.body["model"] == "qwen3:4b"), "{asked:?}");
    }
}

#[test]
fn its_recording_needs_it_no_more() {
    let kit = kit();
    let provider = Provider::start(serves);
    let place = provider.address();
    let with = |flag: &str| {
        let mut command = kit.command(&["run", "team.yaml", "Hello", flag, "tape.jsonl"]);
        command.envs(NOBODY).env("OLLAMA_HOST", &place);
        Ran::from(command.output().unwrap()).ended(0).out
    };
    let recorded = with("--record");
    drop(provider);
    assert_eq!(with("--replay"), recorded);
}

#[test]
fn nothing_is_an_error_that_says_what_to_set() {
    let kit = kit();
    let ran = run(&kit, &[]).complains(6, &["model auto: no model can be asked", "longhaul init --scripted"]);
    assert_eq!(ran.out, "");
    assert!(kit.journals().is_empty(), "there is no task that could only fail");
    for words in
        ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "Ollama", "llama.cpp", "longhaul demo"]
    {
        assert!(ran.err.contains(words), "'{words}' is not in: {}", ran.err);
    }
}
