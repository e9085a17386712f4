//! `longhaul answer`.

use longhaul::id::QuestionId;
use longhaul::journal::descendants;
use longhaul::store::TaskFilter;
use longhaul::task::TaskState;
use longhaul::{LonghaulError, Status, TaskId};
use serde_json::json;

use super::CliContext;
use super::send::join_or_read_stdin;
use crate::args::AnswerArgs;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::view::{Ink, one_line, pluralize, truncate};

/// How much of a question to repeat.
const REPEATED: usize = 160;

pub(super) async fn run(context: &CliContext, args: &AnswerArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let (typed, data_dir) = (longhaul.find(&args.id).await?, context.data_dir()?);
    let said = join_or_read_stdin(&args.words)?;
    let root = longhaul.state(typed).await?.root;
    // Read the current state: answered questions are no longer open.
    let tree = longhaul.list(TaskFilter::tree(root)).await?;
    let id = asking(&tree, typed, args.question, &data_dir)?;
    let taken = match args.decline {
        true => longhaul.decline(id, args.question).await,
        false => longhaul.answer(id, args.question, said.trim_end()).await,
    };
    let taken = match taken {
        Err(error @ LonghaulError::NotAsking { .. }) => return Err(suggest_asking_tasks(&tree, error)),
        taken => taken?,
    };
    let state = longhaul.state(id).await?;
    let term = context.term;
    let text = |task: TaskId, question: QuestionId| match question_of(&tree, task, question) {
        Some(text) => truncate(&one_line(text), REPEATED),
        None => format!("question {question}"),
    };
    if args.json {
        let also: Vec<_> = taken
            .also_answered
            .iter()
            .map(|(task, question)| json!({ "task": task, "question": question }))
            .collect();
        let (granted, asked) = (taken.granted, question_of(&tree, id, taken.question));
        term.print_json(&json!({
            "task": id, "question": taken.question, "text": asked, "granted": granted, "also": also,
        }))?;
        return Ok(CliExitCode::Success);
    }
    let shown = |id: TaskId| term.paint(Ink::Id, &id.to_string());
    term.print_line(&format!("answered {}: {}", shown(id), text(id, taken.question)))?;
    if let Some(pattern) = &taken.granted {
        term.print_line(&format!(
            "allowed from now on, in the whole tree: {}",
            one_line(&pattern.to_string())
        ))?;
    }
    for (task, question) in &taken.also_answered {
        term.print_line(&format!("that answers {} too: {}", shown(*task), text(*task, *question)))?;
    }
    if state.status == Status::Pending {
        term.print_line(&format!(
            "it is not running; resume it with:  {}",
            data_dir.resume_command(state.root)
        ))?;
    }
    Ok(CliExitCode::Success)
}

/// Returns a question as one line.
fn question_of(tree: &[TaskState], task: TaskId, question: QuestionId) -> Option<&str> {
    let state = tree.iter().find(|state| state.id == task)?;
    state.asked.iter().find(|asked| asked.question == question).map(|asked| asked.text.as_str())
}

/// Returns the task whose question is meant: the one that was typed, or the only one below it that asks.
fn asking(
    tree: &[TaskState],
    typed: TaskId,
    question: Option<QuestionId>,
    data_dir: &DataDir,
) -> Result<TaskId, CliError> {
    if tree.iter().any(|state| state.id == typed && !state.asked.is_empty()) {
        return Ok(typed);
    }
    let is_meant = |name: QuestionId| question.is_none_or(|question| question == name);
    let open: Vec<(TaskId, &str, QuestionId)> = descendants(tree, &[typed])
        .filter(|state| !state.status.is_final())
        .flat_map(|state| {
            state.asked.iter().map(move |asked| (state.id, asked.text.as_str(), asked.question))
        })
        .filter(|(_, _, name)| is_meant(*name))
        .collect();
    match open[..] {
        // If it has no open question, answering it reports that.
        [] => Ok(typed),
        [(task, ..)] => Ok(task),
        [(first, _, name), ..] => {
            let listed: Vec<String> = open
                .iter()
                .map(|(task, text, _)| format!("{task}: {}", truncate(&one_line(text), REPEATED)))
                .collect();
            let what = format!(
                "{} are open below {typed}: {}",
                pluralize(open.len(), "question"),
                listed.join("; ")
            );
            let several = open.iter().filter(|(task, ..)| *task == first).count() > 1;
            let named = if several { format!(" --question {name}") } else { String::new() };
            let hint = data_dir.shell_command(&format!("answer {first}{named} …"));
            Err(CliError::new(CliExitCode::Usage, what).with_hint(format!("answer them one by one: {hint}")))
        }
    }
}

/// Adds a hint about other tasks of the tree that ask something, if this one does not.
fn suggest_asking_tasks(tree: &[TaskState], error: LonghaulError) -> CliError {
    let asking: Vec<String> =
        tree.iter().filter(|state| !state.asked.is_empty()).map(|state| state.id.to_string()).collect();
    let error = CliError::from(error);
    match asking.is_empty() {
        true => error,
        false => {
            error.with_hint(format!("these tasks of its tree have open questions: {}", asking.join(", ")))
        }
    }
}
