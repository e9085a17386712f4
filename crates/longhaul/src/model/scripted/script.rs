//! A loaded script: everything parsed, checked and compiled.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use minijinja::Error;
use regex::Regex;
use serde_saphyr::{Location, Spanned};

use super::error::{ModelScriptError, ScriptSource};
use super::template::{
    Expression, ScriptArguments, ScriptText, TemplateCompiler, Templates, describe_template_error,
};
use super::template_context::{self, TemplateContext};
use super::yaml::{self, AgentYaml, CaseYaml, FailureYaml, PaceYaml, TurnYaml};
use crate::message::{StopReason, Usage};
use crate::model::ModelRequest;

/// The reply after the last turn of a script without `otherwise`.
const ENDED: &str = "The script has ended.";
/// The entry for all agents without their own.
const ANY_AGENT: &str = "*";

/// A script: the replies of each agent of a team. `docs/scripted.md` explains every key.
#[derive(Debug)]
pub struct ModelScript {
    name: String,
    agents: HashMap<String, Vec<ScriptCase>>,
    pub(super) templates: Templates,
}

/// The turns for the tasks that match.
#[derive(Debug)]
pub(super) struct ScriptCase {
    when: TaskCondition,
    turns: Vec<ScriptTurn>,
    repeats: bool,
    otherwise: ScriptTurn,
}

#[derive(Debug)]
enum TaskCondition {
    Always,
    Contains(String),
    Matches(Regex),
}

/// One reply, and the errors before it.
#[derive(Debug)]
pub(super) struct ScriptTurn {
    until: Option<Expression>,
    pub(super) errors: Vec<ScriptedFailure>,
    pub(super) reasoning: Option<ScriptText>,
    pub(super) text: Option<ScriptText>,
    pub(super) calls: Vec<(String, ScriptArguments)>,
    pub(super) usage: Option<Usage>,
    pub(super) stop: StopReason,
    pub(super) pace: StreamPace,
}

/// The speed of a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamPace {
    /// Characters per chunk.
    pub(super) chunk: usize,
    /// The pause between two chunks.
    pub(super) pause: Duration,
    /// The delay before the first chunk.
    pub(super) delay: Duration,
}

/// An error to simulate.
#[derive(Debug, Clone)]
pub(super) enum ScriptedFailure {
    Status { status: u16, retry_after: Option<Duration>, message: String },
    Cut,
    Hang,
    Empty,
}

impl ModelScript {
    /// Parses a script. Errors use `name`. Fails if the YAML, a template or a key is wrong.
    pub fn parse(name: &str, yaml: &str) -> Result<ModelScript, ModelScriptError> {
        let source = ScriptSource { name, yaml };
        let shape = yaml::parse_script_yaml(source)?;
        let mut reader = ScriptCompiler { compiler: TemplateCompiler::new(source) };
        let quick = StreamPace { chunk: usize::MAX, pause: Duration::ZERO, delay: Duration::ZERO };
        let pace = reader.pace(shape.defaults, quick)?;
        let mut agents = HashMap::with_capacity(shape.agents.len());
        for (agent, part) in shape.agents {
            let cases = reader.agent(&agent, part, pace)?;
            agents.insert(agent, cases);
        }
        Ok(ModelScript { name: name.to_owned(), agents, templates: reader.compiler.finish() })
    }

    /// Loads a script from a file. Errors use its path. Fails if the file cannot be read or the script is
    /// wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<ModelScript, ModelScriptError> {
        let path = path.as_ref();
        let yaml = std::fs::read_to_string(path)
            .map_err(|source| ModelScriptError::Unreadable { path: path.to_owned(), source })?;
        ModelScript::parse(&path.display().to_string(), &yaml)
    }

    /// The name of the script in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the script has turns for an agent.
    pub fn has_agent(&self, agent: &str) -> bool {
        self.agents.contains_key(agent) || self.agents.contains_key(ANY_AGENT)
    }

    /// The turn that answers a request. Fails if the script has none for the agent or the task.
    pub(super) fn find_turn(&self, request: &ModelRequest<'_>) -> Result<&ScriptTurn, ScriptPlaybackError> {
        let agent = request.agent.as_str();
        let cases = self.agents.get(agent).or_else(|| self.agents.get(ANY_AGENT));
        let cases = cases.ok_or_else(|| ScriptPlaybackError(format!("the script has no agent '{agent}'")))?;
        let case = match cases.as_slice() {
            [ScriptCase { when: TaskCondition::Always, .. }] => cases.first(),
            _ => {
                let task = template_context::task_text(request);
                cases.iter().find(|case| case.when.matches(task))
            }
        };
        let case =
            case.ok_or_else(|| ScriptPlaybackError(format!("agent '{agent}' has no case for this task")))?;
        if case.repeats {
            case.repeated(request, &self.templates)
                .map_err(|error| describe_template_failure(request, &error))
        } else {
            Ok(case.nth(request.turn))
        }
    }
}

/// Why a script has no reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ScriptPlaybackError(String);

/// Describes a template that failed while the script was played.
pub(super) fn describe_template_failure(request: &ModelRequest<'_>, error: &Error) -> ScriptPlaybackError {
    ScriptPlaybackError(format!(
        "agent '{}', turn {}: {}",
        request.agent,
        u64::from(request.turn) + 1,
        describe_template_error(error)
    ))
}

impl TaskCondition {
    fn matches(&self, task: &str) -> bool {
        match self {
            TaskCondition::Always => true,
            TaskCondition::Contains(part) => task.contains(part.as_str()),
            TaskCondition::Matches(pattern) => pattern.is_match(task),
        }
    }
}

impl ScriptCase {
    fn nth(&self, turn: u32) -> &ScriptTurn {
        usize::try_from(turn).ok().and_then(|n| self.turns.get(n)).unwrap_or(&self.otherwise)
    }

    /// The turn if some turns repeat `until` a condition holds.
    ///
    /// The number of repetitions is not stored but found in the conversation: a condition that holds keeps
    /// holding, so a search finds the first reply before which it held.
    fn repeated(&self, request: &ModelRequest<'_>, templates: &Templates) -> Result<&ScriptTurn, Error> {
        let context = TemplateContext::new(request);
        let replies = context.reply_positions();
        let lost = request.turn.saturating_sub(u32::try_from(replies.len()).unwrap_or(u32::MAX));
        let now = request.turn;
        let mut given = 0;
        for turn in &self.turns {
            let Some(until) = &turn.until else {
                if given >= now {
                    return Ok(turn);
                }
                given += 1;
                continue;
            };
            let holds = |reply: u32| -> Result<bool, Error> {
                let index = usize::try_from(reply.saturating_sub(lost)).unwrap_or(usize::MAX);
                let then = match replies.get(index) {
                    Some(position) if reply < now => context.truncated_before(*position, reply),
                    _ => context.clone(),
                };
                Ok(templates.evaluate(until, then.into_value())?.is_true())
            };
            if !holds(now)? {
                return Ok(turn);
            }
            let (mut low, mut high) = (given, now.max(given));
            while low < high {
                let middle = low + (high - low) / 2;
                if holds(middle)? {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            given = low;
        }
        Ok(&self.otherwise)
    }
}

/// Compiles a script from its YAML.
struct ScriptCompiler<'a> {
    compiler: TemplateCompiler<'a>,
}

impl ScriptCompiler<'_> {
    fn wrong(&self, at: Location, message: impl Into<String>) -> ModelScriptError {
        self.compiler.source.error_at(at, message)
    }

    fn agent(
        &mut self,
        name: &str,
        part: Spanned<AgentYaml>,
        pace: StreamPace,
    ) -> Result<Vec<ScriptCase>, ModelScriptError> {
        let AgentYaml { turns, cases, otherwise } = part.value;
        match (turns, cases) {
            (Some(turns), None) => Ok(vec![self.case(CaseYaml { when: None, turns, otherwise }, pace)?]),
            (None, Some(cases)) if otherwise.is_none() => {
                cases.into_iter().map(|case| self.case(case, pace)).collect()
            }
            (None, Some(_)) => Err(self.wrong(
                part.defined,
                format!("agent '{name}' has cases: `otherwise` belongs into each case"),
            )),
            (Some(_), Some(_)) => Err(self.wrong(
                part.defined,
                format!("agent '{name}' has both turns and cases; expected one of them"),
            )),
            (None, None) => {
                Err(self
                    .wrong(part.defined, format!("agent '{name}' says nothing; expected `turns` or `cases`")))
            }
        }
    }

    fn case(&mut self, case: CaseYaml, pace: StreamPace) -> Result<ScriptCase, ModelScriptError> {
        let when = match case.when {
            None => TaskCondition::Always,
            Some(when) => self.when(when)?,
        };
        let turns: Vec<ScriptTurn> =
            case.turns.into_iter().map(|turn| self.turn(turn, pace)).collect::<Result<_, _>>()?;
        let otherwise = match case.otherwise {
            Some(turn) if turn.value.until.is_some() => {
                return Err(
                    self.wrong(turn.defined, "`otherwise` goes on for ever; `until` does not belong there")
                );
            }
            Some(turn) => self.turn(turn, pace)?,
            None => ScriptTurn {
                until: None,
                errors: Vec::new(),
                reasoning: None,
                text: Some(ScriptText::Fixed(ENDED.to_owned())),
                calls: Vec::new(),
                usage: None,
                stop: StopReason::End,
                pace,
            },
        };
        let repeats = turns.iter().any(|turn| turn.until.is_some());
        Ok(ScriptCase { when, turns, repeats, otherwise })
    }

    fn when(&self, when: Spanned<String>) -> Result<TaskCondition, ModelScriptError> {
        let pattern = when.value.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        match pattern {
            None => Ok(TaskCondition::Contains(when.value)),
            Some(pattern) => Regex::new(pattern).map(TaskCondition::Matches).map_err(|error| {
                let why = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
                self.wrong(when.defined, format!("/{pattern}/ is not a pattern: {why}"))
            }),
        }
    }

    fn turn(&mut self, turn: Spanned<TurnYaml>, pace: StreamPace) -> Result<ScriptTurn, ModelScriptError> {
        let Spanned { value: turn, defined: at, .. } = turn;
        if turn.text.is_none() && turn.reasoning.is_none() && turn.calls.is_empty() && turn.errors.is_empty()
        {
            let message =
                "this turn says nothing; expected text, reasoning, calls or errors (text: \"\" for nothing)";
            return Err(self.wrong(at, message));
        }
        let calls: Vec<_> = turn
            .calls
            .into_iter()
            .map(|call| Ok((call.tool, self.compiler.compile_arguments(call.arguments)?)))
            .collect::<Result<_, ModelScriptError>>()?;
        let ends = if calls.is_empty() { StopReason::End } else { StopReason::Calls };
        Ok(ScriptTurn {
            until: turn.until.map(|until| self.compiler.compile_expression(&until)).transpose()?,
            errors: turn.errors.into_iter().map(|error| self.mishap(error)).collect::<Result<_, _>>()?,
            reasoning: turn.reasoning.map(|text| self.compiler.compile_text(text)).transpose()?,
            text: turn.text.map(|text| self.compiler.compile_text(text)).transpose()?,
            calls,
            usage: turn.usage.map(|u| Usage {
                input: u.input,
                cached: u.cached,
                cache_written: u.cache_written,
                output: u.output,
                reasoning: u.reasoning,
            }),
            stop: turn.stop.unwrap_or(ends),
            pace: self.pace(PaceYaml { chunk: turn.chunk, pace: turn.pace, delay: turn.delay }, pace)?,
        })
    }

    fn mishap(&self, error: Spanned<FailureYaml>) -> Result<ScriptedFailure, ModelScriptError> {
        match error.value {
            FailureYaml::Word(word) => match word.as_str() {
                "cut" => Ok(ScriptedFailure::Cut),
                "hang" => Ok(ScriptedFailure::Hang),
                "empty" => Ok(ScriptedFailure::Empty),
                _ => Err(self.wrong(
                    error.defined,
                    format!("'{word}' is not an error; expected cut, hang, empty or a mapping with a status"),
                )),
            },
            FailureYaml::Status(shape) if !(400..600).contains(&shape.status) => Err(self.wrong(
                error.defined,
                format!("{} is not the status of an error; expected 400 to 599", shape.status),
            )),
            FailureYaml::Status(shape) => Ok(ScriptedFailure::Status {
                status: shape.status,
                retry_after: shape.retry_after.map(|text| self.duration(&text)).transpose()?,
                message: shape.message,
            }),
        }
    }

    fn pace(&self, shape: PaceYaml, default: StreamPace) -> Result<StreamPace, ModelScriptError> {
        let chunk = match shape.chunk {
            None => default.chunk,
            Some(chunk) if chunk.value == 0 => {
                return Err(self.wrong(chunk.defined, "a chunk of 0 characters; expected at least 1"));
            }
            Some(chunk) => usize::try_from(chunk.value).unwrap_or(usize::MAX),
        };
        let or =
            |text: Option<Spanned<String>>, default| text.map_or(Ok(default), |text| self.duration(&text));
        Ok(StreamPace {
            chunk,
            pause: or(shape.pace, default.pause)?,
            delay: or(shape.delay, default.delay)?,
        })
    }

    fn duration(&self, text: &Spanned<String>) -> Result<Duration, ModelScriptError> {
        let parsed = text.value.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok());
        parsed.ok_or_else(|| {
            self.wrong(
                text.defined,
                format!("'{}' is not a duration; expected one like 20ms, 1.5s or 2m", text.value),
            )
        })
    }
}
