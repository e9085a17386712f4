//! Answering the questions of tasks.

use super::{Longhaul, LonghaulError};
use crate::entry::{Approval, Entry, ExpectedAnswer, Question, QuestionAnswer};
use crate::id::{QuestionId, Seq, TaskId};
use crate::journal;
use crate::permission::{Consent, Pattern, arguments};
use crate::store::{Batch, Fence, StoreError, TaskFilter};
use crate::task::IllegalTransition;

/// The effect of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerReceipt {
    /// The question that it answered.
    pub question: QuestionId,
    /// The calls that it allows the whole tree from now on.
    pub granted: Option<Pattern>,
    /// Other open questions of the tree that this answers too.
    pub also_answered: Vec<(TaskId, QuestionId)>,
}

impl Longhaul {
    /// Answers a question of a task. If only one is open, `question` may be left out.
    ///
    /// Approvals are answered with `yes`, `no`, `no REASON`, `always`, `always program`, `always tool` or
    /// `always PATTERN` ([`Approval`]); other questions with text, or with JSON if they have a schema. Any
    /// process may answer, even while no process runs the task.
    ///
    /// Fails if the question is not open, if several are and none is named, or if the answer is invalid.
    pub async fn answer(
        &self,
        id: TaskId,
        question: Option<QuestionId>,
        text: impl Into<String>,
    ) -> Result<AnswerReceipt, LonghaulError> {
        let text = text.into();
        let (question, asks) = self.open_question(id, question).await?;
        let granted = match &asks.wants {
            ExpectedAnswer::Leave { tool, arguments, identity, .. } => {
                let pattern = granted_pattern(&text, tool, arguments)?;
                pattern.map(|pattern| Consent { pattern, tool: identity.as_deref().cloned() })
            }
            ExpectedAnswer::Words { schema } => {
                check_answer(&text, schema.as_ref())?;
                None
            }
        };
        self.record_answer(id, question, QuestionAnswer::Given(text), granted).await
    }

    /// Declines to answer a question. Fails like [`answer`](Self::answer).
    pub async fn decline(
        &self,
        id: TaskId,
        question: Option<QuestionId>,
    ) -> Result<AnswerReceipt, LonghaulError> {
        let (question, _) = self.open_question(id, question).await?;
        self.record_answer(id, question, QuestionAnswer::Declined, None).await
    }

    async fn open_question(
        &self,
        id: TaskId,
        named: Option<QuestionId>,
    ) -> Result<(QuestionId, Question), LonghaulError> {
        let task = self.0.service.snapshot(id).await?;
        let names = || task.questions.iter().map(|(question, _)| *question).collect::<Vec<_>>();
        match named {
            Some(named) => match task.questions.iter().find(|(question, _)| *question == named) {
                Some(found) => Ok(found.clone()),
                None => Err(self.not_open(id, named).await?),
            },
            None => match &task.questions[..] {
                [only] => Ok(only.clone()),
                [] => Err(LonghaulError::NotAsking { task: id, status: task.state.status }),
                _ => Err(LonghaulError::AmbiguousQuestion { task: id, open: names() }),
            },
        }
    }

    /// The error for a question that is not open.
    async fn not_open(&self, id: TaskId, question: QuestionId) -> Result<LonghaulError, LonghaulError> {
        let journal = journal::read_all(&*self.0.service.store, id, Seq(0)).await?;
        let said = journal.iter().rev().find_map(|record| match &record.entry {
            Entry::Answered { question: about, answer } if *about == question => Some(answer.to_string()),
            _ => None,
        });
        let was_asked = journal.iter().any(
            |record| matches!(&record.entry, Entry::Asked { question: about, .. } if *about == question),
        );
        Ok(match said {
            Some(said) => LonghaulError::AlreadyAnswered { task: id, question, said },
            None if was_asked => LonghaulError::AlreadyAnswered {
                task: id,
                question,
                said: "the call has ended without it".to_owned(),
            },
            None => LonghaulError::UnknownQuestion { task: id, question },
        })
    }

    async fn record_answer(
        &self,
        id: TaskId,
        question: QuestionId,
        answer: QuestionAnswer,
        granted: Option<Consent>,
    ) -> Result<AnswerReceipt, LonghaulError> {
        let store = &*self.0.service.store;
        let root = self.0.service.state(id).await?.root;
        let mut batch = Batch::one(id, Fence::Anyone, vec![Entry::Answered { question, answer }]);
        if let Some(Consent { pattern, tool }) = granted.clone() {
            let tool = tool.map(Box::new);
            batch = batch.and_write(root, Fence::Anyone, vec![Entry::Granted { pattern, tool }]);
        }
        match journal::append(store, batch).await {
            Ok(_) => {}
            Err(StoreError::Illegal {
                why: IllegalTransition::NotAsked(_) | IllegalTransition::NotNow { .. },
                ..
            }) => {
                return Err(self.not_open(id, question).await?);
            }
            Err(error) => return Err(error.into()),
        }
        let also = match &granted {
            Some(consent) => self.answer_matching_questions(root, consent).await?,
            None => Vec::new(),
        };
        Ok(AnswerReceipt { question, granted: granted.map(|consent| consent.pattern), also_answered: also })
    }

    /// Answers open questions elsewhere in the tree that the new approval covers.
    async fn answer_matching_questions(
        &self,
        root: TaskId,
        consent: &Consent,
    ) -> Result<Vec<(TaskId, QuestionId)>, LonghaulError> {
        let service = &self.0.service;
        let mut settled = Vec::new();
        for state in service.store.list(TaskFilter::tree(root).live()).await? {
            if state.asked.iter().all(|asked| asked.tool.is_none()) {
                continue;
            }
            for (question, asks) in service.snapshot(state.id).await?.questions {
                let ExpectedAnswer::Leave { tool, arguments: text, why, identity, .. } = &asks.wants else {
                    continue;
                };
                let means = consent.pattern.grants(tool, &arguments(text), why.is_some());
                if !means || !consent.applies_to(identity.as_deref()) {
                    continue;
                }
                let answer = QuestionAnswer::Given("yes".to_owned());
                let entry = Entry::Answered { question, answer };
                match journal::append(&*service.store, Batch::one(state.id, Fence::Anyone, vec![entry])).await
                {
                    Ok(_) => settled.push((state.id, question)),
                    // It was answered just now, or the task has ended.
                    Err(StoreError::Illegal { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(settled)
    }
}

/// The calls that an answer to an approval request allows from now on.
fn granted_pattern(text: &str, tool: &str, args: &str) -> Result<Option<Pattern>, LonghaulError> {
    let pattern = Approval::parse(text).and_then(|approval| match approval {
        Approval::Yes | Approval::No(_) => Ok(None),
        Approval::Always(grant) => Ok(Some(grant.pattern(tool, &arguments(args))?)),
    });
    pattern.map_err(|error| LonghaulError::BadAnswer(error.to_string()))
}

/// Checks that a text is an answer of the expected kind.
fn check_answer(text: &str, schema: Option<&serde_json::Value>) -> Result<(), LonghaulError> {
    super::check_text("answer", text)?;
    let Some(schema) = schema else { return Ok(()) };
    let answer = serde_json::from_str(text).map_err(|error| {
        bad_answer(format_args!("has to be JSON that fits this schema: {schema} ({error})"))
    })?;
    check_schema(&answer, schema)
}

fn bad_answer(why: std::fmt::Arguments<'_>) -> LonghaulError {
    LonghaulError::BadAnswer(format!("the answer {why}"))
}

/// Checks an answer against the schema of the tool that asked.
#[cfg(feature = "toolsets")]
fn check_schema(answer: &serde_json::Value, schema: &serde_json::Value) -> Result<(), LonghaulError> {
    let validator = jsonschema::validator_for(schema).map_err(|error| {
        bad_answer(format_args!("cannot be checked: the tool's schema is wrong: {error}"))
    })?;
    match validator.iter_errors(answer).next() {
        Some(error) => Err(bad_answer(format_args!("does not fit the schema {schema}: {error}"))),
        None => Ok(()),
    }
}

/// A build without `toolsets` has no tool that asks with a schema; another process may have one, and checks.
#[cfg(not(feature = "toolsets"))]
fn check_schema(_: &serde_json::Value, _: &serde_json::Value) -> Result<(), LonghaulError> {
    Ok(())
}
