use std::time::Duration;

use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::id::{AgentName, TaskKey};
use crate::message::{Call, Message, Reply, StopReason, ToolResult, Usage};
use crate::model::wire::WireCache;
use crate::model::{ModelError, ModelErrorKind, ReplyChunk};

/// A conversation with a model, as the runner would hold it.
struct ScriptFixture {
    model: ScriptedModel,
    agent: AgentName,
    messages: Vec<Message>,
    turn: u32,
    retry: u32,
    memo: WireCache,
}

type Pieces = Vec<Result<ReplyChunk, ModelError>>;

impl ScriptFixture {
    fn new(yaml: &str, agent: &str, task: &str) -> Self {
        let script = ModelScript::parse("demo.yaml", yaml).unwrap_or_else(|e| panic!("{e}"));
        let model = ScriptedModel::new(Arc::new(script));
        ScriptFixture {
            model,
            agent: agent.into(),
            messages: vec![Message::User(task.into())],
            turn: 0,
            retry: 0,
            memo: WireCache::default(),
        }
    }

    /// One turn of the agent `lead`.
    fn lead(turn: &str, task: &str) -> Self {
        ScriptFixture::new(&format!("agents:\n  lead:\n    turns:\n{}\n", indented(turn)), "lead", task)
    }

    fn request(&self) -> ModelRequest<'_> {
        let task = TaskKey::named("test").candidate_ids().next().unwrap();
        let ScriptFixture { agent, messages, turn, retry, memo, .. } = self;
        ModelRequest {
            task,
            root: task,
            depth: 0,
            agent,
            system: "Be brief.",
            messages,
            tools: &[],
            output: None,
            turn: *turn,
            retry: *retry,
            wire_cache: memo,
            text_delay: None,
        }
    }

    async fn pieces(&self) -> Pieces {
        self.model.stream(self.request()).collect().await
    }

    async fn reply(&self) -> Reply {
        let pieces = self.pieces().await;
        match pieces.last() {
            Some(Ok(ReplyChunk::Done(reply))) => (**reply).clone(),
            _ => panic!("{pieces:?}"),
        }
    }

    /// Adds the next reply to the conversation and returns its text.
    async fn say(&mut self) -> String {
        let reply = self.reply().await;
        self.turn += 1;
        self.messages.push(Message::Assistant(Arc::new(reply.clone())));
        reply.text()
    }

    fn hear(&mut self, letter: &str) -> &mut Self {
        self.messages.push(Message::User(letter.into()));
        self
    }

    fn returned(&mut self, tool: &str, output: &str) -> &mut Self {
        let result =
            ToolResult { call: "call".into(), tool: tool.into(), output: output.into(), is_error: false };
        self.messages.push(Message::Tool(result));
        self
    }

    async fn rejected(&self) -> String {
        match self.pieces().await.as_slice() {
            [Err(ModelError { kind: ModelErrorKind::Rejected(why), .. })] => why.clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn indented(turn: &str) -> String {
    turn.lines().map(|line| format!("      {line}\n")).collect()
}

fn arguments(reply: &Reply) -> Vec<&str> {
    reply.calls().map(|call| call.arguments.as_str()).collect()
}

#[tokio::test]
async fn turns_are_given_by_number_and_then_the_rest() {
    let yaml = "agents: { lead: { turns: [{ text: one }, { text: two }] }, '*': { turns: [{ text: any }], otherwise: { text: done } } }";
    let mut lead = ScriptFixture::new(yaml, "lead", "go");
    assert_eq!(
        [lead.say().await, lead.say().await, lead.say().await],
        ["one", "two", "The script has ended."]
    );
    let mut other = ScriptFixture::new(yaml, "other", "go");
    assert_eq!([other.say().await, other.say().await, other.say().await], ["any", "done", "done"]);
}

#[tokio::test]
async fn the_first_case_that_fits_the_task_is_played() {
    let yaml = "agents: { a: { cases: [{ when: files, turns: [{ text: F }] }, { when: '/^(?i)LINES$/', turns: [{ text: L }], otherwise: { text: O } }] } }";
    for (task, said) in [("count files", "F"), ("lines", "L")] {
        assert_eq!(ScriptFixture::new(yaml, "a", task).say().await, said);
    }
    let mut lines = ScriptFixture::new(yaml, "a", "Lines");
    lines.say().await;
    assert_eq!(lines.hear("files, please").say().await, "O", "the task decides, not what is said later");
    assert!(
        ScriptFixture::new(yaml, "a", "words").rejected().await.contains("demo.yaml: agent 'a' has no case")
    );
    assert!(ScriptFixture::new(yaml, "b", "words").rejected().await.contains("the script has no agent 'b'"));
}

#[tokio::test]
async fn templates_see_the_conversation() {
    let table = [
        ("{{ task }}", "count <b> & c"),
        ("{{ last }}", "stop at 9"),
        ("{{ results | join(', ') }}", "t-1 started, t-2 started, 42"),
        ("{{ result }}", "42"),
        ("{{ results_of('run') | length }}", "2"),
        ("{{ results_of('none') | length }}", "0"),
        ("{{ letters | join('|') }}", "hurry|stop at 9"),
        ("{{ find_all('t-\\d') | join(' ') }}", "t-1 t-2"),
        ("{{ find_all('t-(\\d)') | last }}", "2"),
        ("{{ letters | find_all('[a-z]+') | join(' ') }}", "at hurry stop"),
        ("{{ last | find_all('\\d') | first }}", "9"),
        ("{{ agent }} {{ turn }}", "lead 1"),
        ("{{ ('{\"a\": [1, 2]}' | from_json).a[1] }}", "2"),
        ("{% if 'hurry' in letters %}yes{% else %}no{% endif %}\n", "yes\n"),
        ("plain }} text {", "plain }} text {"),
    ];
    for (template, expected) in table {
        let quoted = serde_json::Value::from(template).to_string();
        let mut scene = ScriptFixture::lead(&format!("- text: first\n- text: {quoted}"), "count <b> & c");
        scene.say().await;
        scene
            .returned("run", "t-1 started")
            .hear("hurry")
            .returned("run", "t-2 started")
            .returned("ls", "42");
        scene.hear("stop at 9");
        assert_eq!(scene.reply().await.text(), expected, "{template}");
    }
}

#[tokio::test]
async fn a_task_that_continues_another_begins_anew() {
    let mut scene =
        ScriptFixture::lead("- text: \"{{ task }} {{ results | length }}\"\n- text: two {{ task }}", "old");
    scene.say().await;
    scene.returned("ls", "x").say().await;
    scene.turn = 0;
    scene.hear("new").hear("and more");
    assert_eq!([scene.say().await, scene.say().await], ["new 0", "two new"]);
}

#[tokio::test]
async fn a_template_that_fails_is_refused_with_its_place() {
    for turn in
        ["- text: '{{ result }}'", "- { text: x, calls: [{ tool: t, arguments: { a: '{{ task.b.c }}' } }] }"]
    {
        let why = ScriptFixture::lead(turn, "go").rejected().await;
        assert!(why.contains("demo.yaml: agent 'lead', turn 1: undefined value"), "{why}");
    }
    let why = ScriptFixture::lead("- { text: x, until: task.b.c }", "go").rejected().await;
    assert!(why.contains("demo.yaml: agent 'lead', turn 1: undefined value"), "{why}");
    let why = ScriptFixture::lead("- text: '{{ task | shout }}'", "go").rejected().await;
    assert!(why.contains("turn 1: unknown filter: filter shout"), "{why}");
    let why = ScriptFixture::lead("- text: \"{{ find_all('(') }}\"", "go").rejected().await;
    assert!(why.contains("'(' is not a pattern"), "{why}");
}

#[tokio::test]
async fn calls_have_ids_and_arguments_of_their_own_types() {
    let turn = r#"
- text: go
- text: now
  calls:
    - tool: bare
    - tool: fixed
      arguments: { z: 1, a: [true, null, 1.5, "x\"y"], m: {} }
    - tool: made
      arguments: { text: "for {{ task }}", ids: "{{ find_all('t-\\d') }}", n: "{{ 2 + 3 }}", deep: [{ s: "{{ task }}" }] }
    - { tool: two, arguments: { s: "{{ task }}{{ task }}", d: "{{ {'k': {'j': 1}} }}" } }
    - { tool: raw, arguments: '{"not": json' }
    - { tool: raw, arguments: "<{{ task }}>" }
"#;
    let mut scene = ScriptFixture::lead(turn.trim(), "a \"b\"");
    scene.say().await;
    scene.returned("run", "t-2 t-1");
    let reply = scene.reply().await;
    assert_eq!(
        arguments(&reply),
        [
            "{}",
            r#"{"z":1,"a":[true,null,1.5,"x\"y"],"m":{}}"#,
            r#"{"text":"for a \"b\"","ids":["t-1","t-2"],"n":5,"deep":[{"s":"a \"b\""}]}"#,
            r#"{"s":"a \"b\"a \"b\"","d":{"k":{"j":1}}}"#,
            r#"{"not": json"#,
            r#"<a "b">"#,
        ]
    );
    let ids: Vec<&str> = reply.calls().map(|call: &Call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_2_0", "call_2_1", "call_2_2", "call_2_3", "call_2_4", "call_2_5"]);
    assert_eq!((reply.stop, reply.model.as_str(), reply.cost), (StopReason::Calls, "scripted", Some(0)));
}

#[tokio::test]
async fn usage_is_told_or_estimated_from_what_is_new() {
    let mut scene = ScriptFixture::lead(
        "- { text: 12345678, reasoning: '1234' }\n- text: b\n- { text: c, usage: { input: 7, cached: 3, output: 2 } }",
        "12345",
    );
    let first = scene.reply().await.usage;
    // 9 bytes of instruction and 5 of task; then the usage so far, and 8 bytes more.
    assert_eq!(first, Usage { input: 3 + 2, output: 3, reasoning: 1, ..Usage::default() });
    scene.say().await;
    scene.returned("ls", "1234").hear("1234");
    assert_eq!(scene.reply().await.usage, Usage { input: 8 + 2, output: 1, ..Usage::default() });
    scene.say().await;
    assert_eq!(scene.reply().await.usage, Usage { input: 7, cached: 3, output: 2, ..Usage::default() });
}

#[tokio::test]
async fn each_try_meets_its_own_error_and_then_the_reply_comes() {
    let turn = "- errors: [{ status: 429, retry_after: 2s }, { status: 503, message: busy }, { status: 401 }, { status: 400, message: bad }, { status: 409 }, cut, empty]\n  text: abcdefg\n  chunk: 2";
    let mut scene = ScriptFixture::lead(turn, "go");
    let rejected = |why: &str| ModelErrorKind::Rejected(why.to_owned());
    let server = |status, message: &str| ModelErrorKind::Server { status, message: message.to_owned() };
    let kinds = [
        (ModelErrorKind::RateLimited(String::new()), Some(Duration::from_secs(2))),
        (server(503, "busy"), None),
        (rejected("401"), None),
        (rejected("400 bad"), None),
        (server(409, ""), None),
    ];
    for (kind, retry_after) in kinds {
        assert_eq!(
            scene.pieces().await,
            [Err(ModelError { model: "scripted".to_owned(), kind, retry_after })]
        );
        scene.retry += 1;
    }
    let text = |s: &str| Ok(ReplyChunk::Text(s.to_owned()));
    assert_eq!(scene.pieces().await, [text("ab"), text("c")], "cut");
    scene.retry += 1;
    let empty = scene.reply().await;
    assert_eq!((empty.blocks.len(), empty.stop, empty.usage.output), (0, StopReason::End, 0));
    for _ in 0..2 {
        scene.retry += 1;
        assert_eq!(scene.reply().await.text(), "abcdefg");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_reply_gives_one_piece_and_nothing_more() {
    let scene = ScriptFixture::lead("- { errors: [hang], text: abcdef, chunk: 2 }", "go");
    let mut stream = scene.model.stream(scene.request());
    assert_eq!(stream.next().await, Some(Ok(ReplyChunk::Text("ab".to_owned()))));
    assert!(tokio::time::timeout(Duration::from_secs(86400), stream.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_reply_comes_at_its_pace() {
    let yaml = "defaults: { pace: 1s, chunk: 2, delay: 10s }\nagents: { lead: { turns: [{ text: abcdef, reasoning: hm }, { text: abcdef, pace: 0s, delay: 0s, chunk: 99 }] } }";
    let mut scene = ScriptFixture::new(yaml, "lead", "go");
    let start = tokio::time::Instant::now();
    assert_eq!(scene.pieces().await.len(), 5);
    assert_eq!(start.elapsed().as_secs(), 13);
    scene.say().await;
    let quick = scene.pieces().now_or_never().expect("a reply without delay comes at once");
    assert_eq!(quick.len(), 2);
}

#[tokio::test]
async fn an_empty_text_is_an_empty_reply_and_a_stop_can_be_told() {
    assert_eq!(ScriptFixture::lead("- text: ''", "go").reply().await.blocks, []);
    assert_eq!(
        ScriptFixture::lead("- { text: and the, stop: length }", "go").reply().await.stop,
        StopReason::Length
    );
}

const ORCHESTRA: &str = r#"
agents:
  lead:
    turns:
      - calls: [{ tool: run, arguments: {} }]
      - until: find_all('RESULT \d+') | length >= 8
        text: "waiting, {{ turn }}"
      - text: "{{ find_all('RESULT (\\d+)') | join(' ') }}"
        calls: [{ tool: save, arguments: {} }]
      - until: letters | select('equalto', 'thanks') | list | length > 0
        text: saved {{ result }}
    otherwise: { text: bye }
"#;

#[tokio::test]
async fn a_compacted_conversation_still_finds_its_turn() {
    let mut scene = ScriptFixture::new(ORCHESTRA, "lead", "go");
    for _ in 0..5 {
        scene.say().await;
    }
    // Of five replies, only the last one is left.
    let last = scene.messages.pop().unwrap();
    scene.messages = vec![Message::User("go".into()), Message::User("summary".into()), last];
    assert_eq!(scene.say().await, "waiting, 5");
    for child in 1..=8 {
        scene.hear(&format!("RESULT {child}"));
    }
    assert_eq!(scene.say().await, "1 2 3 4 5 6 7 8");
    assert_eq!(scene.returned("save", "ok").say().await, "saved ok");
}

#[tokio::test]
async fn the_documented_script_plays() {
    let page = include_str!("../../../../../docs/scripted.md");
    let yaml = page.split("```yaml").nth(1).unwrap().split("```").next().unwrap();
    let fast = yaml.replace("5ms", "0s").replace("50ms", "0s");
    let mut lead = ScriptFixture::new(&fast, "lead", "src");
    assert_eq!(lead.say().await, "I will send out two researchers for: src");
    lead.returned("run_background_agent", "t-1").returned("run_background_agent", "t-2");
    assert_eq!(lead.say().await, "Waiting for 2 more.");
    let mut lines = ScriptFixture::new(&fast, "researcher", "Count the lines of src");
    assert_eq!(lead.hear(&lines.say().await).say().await, "Waiting for 1 more.");
    let mut files = ScriptFixture::new(&fast, "researcher", "Count the files of src");
    files.say().await;
    lead.hear(&files.returned("shell", "7\n").say().await);
    lead.retry = 3;
    assert_eq!(lead.say().await, "What they found:\n- files = 7\n- lines = 1200\n\n");
    lead.retry = 0;
    assert_eq!(lead.say().await, "I have said all I know.");
    let mut other = ScriptFixture::new(&fast, "researcher", "Sing");
    assert_eq!(other.say().await, "Nobody told me about: Sing");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_synthesis_is_the_same_however_the_letters_come(
        order in Just((1..=8u32).collect::<Vec<_>>()).prop_shuffle(),
        ends in proptest::collection::vec(any::<bool>(), 8),
    ) {
        futures::executor::block_on(async {
            let mut scene = ScriptFixture::new(ORCHESTRA, "lead", "go");
            scene.say().await;
            scene.returned("run", "started");
            let mut waits = 0;
            for (child, ends_batch) in order.iter().zip(ends) {
                if ends_batch {
                    waits += 1;
                    assert_eq!(scene.say().await, format!("waiting, {waits}"));
                }
                scene.hear(&format!("t-{child} completed: RESULT {child}"));
            }
            assert_eq!(scene.say().await, "1 2 3 4 5 6 7 8");
            scene.returned("save", "ok");
            assert_eq!(scene.say().await, "saved ok");
            assert_eq!(scene.hear("thanks").say().await, "bye");
            assert_eq!(scene.hear("RESULT 9").say().await, "bye");
        });
    }

    #[test]
    fn the_pieces_are_the_text_and_no_character_is_split(text in "\\PC{0,40}", thought in "\\PC{0,10}", chunk in 1u32..9) {
        let quoted = |text: &str| serde_json::Value::from(format!("{{% raw %}}{text}{{% endraw %}}")).to_string();
        prop_assume!(!text.contains("{%") && !thought.contains("{%"));
        let turn = format!("- {{ text: {}, reasoning: {}, chunk: {chunk} }}", quoted(&text), quoted(&thought));
        let scene = ScriptFixture::lead(&turn, "go");
        let pieces = futures::executor::block_on(scene.pieces());
        prop_assert_eq!(&pieces, &futures::executor::block_on(scene.pieces()), "the same request, the same answer");
        let (mut said, mut thoughts) = (String::new(), String::new());
        for piece in pieces {
            match piece.unwrap() {
                ReplyChunk::Text(piece) => {
                    prop_assert!(piece.chars().count() <= chunk as usize);
                    said.push_str(&piece);
                }
                ReplyChunk::Reasoning(piece) => thoughts.push_str(&piece),
                ReplyChunk::Done(reply) => {
                    prop_assert_eq!(reply.text(), said.as_str());
                    prop_assert_eq!(reply.reasoning(), thoughts.as_str());
                }
                ReplyChunk::Delayed(_) | ReplyChunk::Resumed => panic!("a script is never held"),
            }
        }
        prop_assert_eq!((said, thoughts), (text, thought));
    }
}
