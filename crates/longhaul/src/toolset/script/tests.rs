use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::toolset::tool_fixture::{call_context_in, call_tool};

fn tool(cmd: &str, args: &[(&str, Value)]) -> ScriptTool {
    let args = args.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    ScriptTool { cmd: cmd.to_owned(), args, ..ScriptTool::default() }
}

async fn call(script: &ScriptTools, name: &str, arguments: Value) -> Result<String, ToolError> {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let (context, _) = call_context_in(dir.path());
    call_tool(script, name, arguments, &context).await.map(|output| output.text)
}

#[tokio::test]
async fn arguments_arrive_as_variables_and_never_as_commands() {
    let args = [("who", json!({ "description": "Whom to greet." })), ("times", json!({ "type": "integer" }))];
    let script =
        ScriptTools::builder().tool("greet", tool("printf '%s|' \"$who\" ${times}", &args)).build().unwrap();
    let evil = r#""; touch pwned; echo $(touch pwned) `touch pwned` ' $HOME"#;
    let text = call(&script, "greet", json!({ "who": evil, "times": 3 })).await.unwrap();
    assert_eq!(text, format!("{evil}|3|\n[exit code 0]"));
    let listed =
        ScriptTools::builder().tool("ls", tool("ls; echo \"$who\" >/dev/null", &args[..1])).build().unwrap();
    let text = call(&listed, "ls", json!({ "who": evil })).await.unwrap();
    assert_eq!(text, "sub\n[exit code 0]", "nothing was made");
}

#[tokio::test]
async fn what_is_not_declared_is_not_handed_over_and_what_is_required_is() {
    let mut greet = tool("env", &[("who", json!("Whom to greet.")), ("how", json!({}))]);
    greet.required = Some(vec!["who".to_owned()]);
    greet.env.insert("TOKEN".to_owned(), "t0k3n".to_owned());
    greet.working_dir = Some("sub".into());
    let script = ScriptTools::builder().env("SHARED", "both").tool("greet", greet).build().unwrap();
    let text = call(&script, "greet", json!({ "who": "me", "LD_PRELOAD": "/evil.so", "PATH": "/evil" }))
        .await
        .unwrap();
    assert!(
        text.contains("who=me") && text.contains("TOKEN=t0k3n") && text.contains("SHARED=both"),
        "{text}"
    );
    assert!(text.contains("/sub\n") && !text.contains("evil") && !text.contains("how="), "{text}");
    let why = call(&script, "greet", json!({ "how": "loud" })).await.unwrap_err();
    assert_eq!(why, ToolError::Retry("`who` is missing".to_owned()));
    assert!(!format!("{script:?}").contains("t0k3n"), "no secret in {script:?}");
}

#[test]
fn the_model_is_told_what_a_script_takes() {
    let args = [("a", json!({ "type": "number", "description": "A number." })), ("b", json!("A text."))];
    let script = ScriptTools::builder().tool("sum", tool("echo", &args)).build().unwrap();
    let spec = script.tools[0].spec();
    assert_eq!(spec.description, "Runs: echo");
    assert_eq!(
        spec.parameters,
        json!({
            "type": "object",
            "properties": {
                "a": { "type": "number", "description": "A number." },
                "b": { "type": "string", "description": "A text." },
            },
            "required": ["a", "b"],
        })
    );
}

#[test]
fn a_script_that_makes_no_sense_is_refused_whole() {
    let mut bad = tool(" ", &[("my-arg", json!({})), ("PATH", json!({})), ("both", json!({}))]);
    bad.required = Some(vec!["missing".to_owned()]);
    bad.env.insert("both".to_owned(), "x".to_owned());
    let why = ScriptTools::builder().tool("bad", bad).build().unwrap_err().why;
    for part in [
        "'bad' has no `cmd`",
        "'my-arg' of 'bad' cannot be an environment variable",
        "'PATH' of 'bad' would change how every command runs",
        "'both' both in `args` and in `env`",
        "requires 'missing'",
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[tokio::test]
async fn a_script_that_fails_is_a_failure() {
    let script = ScriptTools::builder().tool("fail", tool("echo no >&2; exit 4", &[])).build().unwrap();
    let why = call(&script, "fail", json!({})).await.unwrap_err();
    assert_eq!(why, ToolError::Failed("no\n[exit code 4]".to_owned()));
}
