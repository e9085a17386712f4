//! One prompt: a letter to the session's task, and everything that happens until the task is idle again.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use longhaul::id::Seq;
use longhaul::store::TaskFilter;
use longhaul::supervisor::TaskEvents;
use longhaul::{Status, TaskId};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ClientAbout;
use super::connection::{AcpClient, RequestError};
use super::sessions::{AcpSession, AcpSessions, session_id};
use super::updates::{
    ClientEffect, EditorQuestion, SessionUpdates, message, permission_answer, permission_request, prompt_text,
};
use crate::backend::Backend;

/// How long a cancelled prompt waits for the end of the turn.
const CANCELLING: Duration = Duration::from_secs(5);

/// An answer of the client to a question of a task.
type Answer = (EditorQuestion, Option<String>);

/// Runs a prompt to its end, and returns the result for the client.
pub(super) async fn run(
    backend: &Backend,
    sessions: &AcpSessions,
    client: &AcpClient,
    about: ClientAbout,
    params: &Value,
) -> Result<Value, RequestError> {
    let id = session_id(params)?.to_owned();
    let text = prompt_text(params);
    if text.trim().is_empty() {
        return Err(super::empty_prompt());
    }
    let (session, cancel) = sessions.begin(&id)?;
    let prompt = SessionPrompt { backend, client, session: &id, about, question: None };
    let (result, question) = prompt.run(sessions, &session, &cancel, text).await;
    sessions.end(&id, question);
    result
}

struct SessionPrompt<'a> {
    backend: &'a Backend,
    client: &'a AcpClient,
    session: &'a str,
    about: ClientAbout,
    /// A question that only the next prompt can answer.
    question: Option<EditorQuestion>,
}

impl SessionPrompt<'_> {
    async fn run(
        mut self,
        sessions: &AcpSessions,
        session: &AcpSession,
        cancel: &CancellationToken,
        text: String,
    ) -> (Result<Value, RequestError>, Option<EditorQuestion>) {
        let result = match self.send(sessions, session, text).await {
            Ok((first, task, events)) => self.follow(first, task, events, cancel).await,
            Err(error) => Err(error),
        };
        (result, self.question)
    }

    /// Writes the prompt. Returns the session's first task, the one that works on it, and its events.
    async fn send(
        &self,
        sessions: &AcpSessions,
        session: &AcpSession,
        text: String,
    ) -> Result<(TaskId, TaskId, TaskEvents), RequestError> {
        let longhaul = self.backend.longhaul();
        let Some(first) = session.task else {
            let task = sessions.start(self.session, session, text).await?;
            return Ok((task, task, longhaul.follow_session(task, Seq(0))));
        };
        if let Some(asked) = &session.question {
            let state = longhaul.state(asked.task).await?;
            if state.asked.iter().any(|open| open.question == asked.question) {
                let now = longhaul.session_task(first).await?;
                let events = longhaul.follow_session(now.id, now.seq);
                self.backend.answer(asked.task, Some(asked.question), &text).await?;
                return Ok((first, now.id, events));
            }
        }
        let events = longhaul.send_to_session(first, text).await?;
        let now = longhaul.session_task(first).await?.id;
        self.backend.carry(now).await?;
        Ok((first, now, events))
    }

    async fn follow(
        &mut self,
        first: TaskId,
        task: TaskId,
        mut events: TaskEvents,
        cancel: &CancellationToken,
    ) -> Result<Value, RequestError> {
        let mut updates = SessionUpdates::new(self.session, task, false, self.about.subagents);
        let mut answers: FuturesUnordered<BoxFuture<'_, Answer>> = FuturesUnordered::new();
        let mut cancelled: Option<Instant> = None;
        let mut ended = None;
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled(), if cancelled.is_none() => {
                    cancelled = Some(Instant::now() + CANCELLING);
                    self.backend.longhaul().interrupt_session(first).await?;
                    answers.clear();
                }
                () = until(cancelled), if cancelled.is_some() => break,
                Some((asked, answer)) = answers.next() => {
                    if let Some(answer) = answer {
                        // Someone else may have answered.
                        let _ = self.backend.answer(asked.task, Some(asked.question), &answer).await;
                    }
                }
                event = events.try_next() => {
                    let Some(event) = event? else { break };
                    for effect in updates.take(&event) {
                        match effect {
                            ClientEffect::Update(of, update) => self.client.update(&of, update).await,
                            ClientEffect::Ask(asked) if cancelled.is_none() => match self.ask(&asked) {
                                Some(answer) => answers.push(answer),
                                None => {
                                    let text = format!("{}\n", asked.asks.text);
                                    self.client.update(self.session, message(&text)).await;
                                    self.question = Some(*asked);
                                }
                            },
                            ClientEffect::Ask(_) => {}
                            ClientEffect::Ended { status, error } => ended = Some((status, error)),
                        }
                    }
                    // The next prompt is the answer.
                    if self.question.is_some() && answers.is_empty() {
                        break;
                    }
                }
            }
        }
        if cancelled.is_some() {
            self.tell_what_goes_on(task).await?;
            return Ok(json!({ "stopReason": "cancelled" }));
        }
        Ok(match ended {
            Some((Status::Failed, Some(error))) => {
                json!({ "stopReason": if error.starts_with("refused") { "refusal" } else { "end_turn" } })
            }
            Some((Status::Cancelled, _)) => json!({ "stopReason": "cancelled" }),
            _ => json!({ "stopReason": "end_turn" }),
        })
    }

    /// Asks the client, if it can be asked.
    fn ask(&self, asked: &EditorQuestion) -> Option<BoxFuture<'static, Answer>> {
        let (client, asked) = (self.client.clone(), asked.clone());
        if let Some(request) = permission_request(self.session, &asked) {
            return Some(
                async move {
                    let result = client.request("session/request_permission", request).await;
                    (asked, result.as_ref().and_then(permission_answer).map(str::to_owned))
                }
                .boxed(),
            );
        }
        if !self.about.elicits {
            return None;
        }
        let schema = json!({
            "type": "object",
            "properties": { "answer": { "type": "string", "title": "Answer" } },
            "required": ["answer"],
        });
        let request = json!({
            "sessionId": self.session, "mode": "form", "message": asked.asks.text, "requestedSchema": schema,
        });
        Some(
            async move {
                let result = client.request("elicitation/create", request).await;
                let answer = result
                    .as_ref()
                    .and_then(|result| result.pointer("/content/answer"))
                    .and_then(Value::as_str);
                (asked, answer.map(str::to_owned))
            }
            .boxed(),
        )
    }

    /// Says which background tasks a cancelled turn has left running.
    async fn tell_what_goes_on(&self, task: TaskId) -> Result<(), RequestError> {
        let live = self.backend.longhaul().list(TaskFilter::children(task).live()).await?;
        if live.is_empty() {
            return Ok(());
        }
        let tasks: Vec<String> =
            live.iter().map(|task| format!("- {} · {} ({})", task.agent, task.headline, task.id)).collect();
        let text = format!(
            "\n\nCancelled. These background tasks go on, and their results come with your next message:\n{}\n",
            tasks.join("\n")
        );
        self.client.update(self.session, message(&text)).await;
        Ok(())
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
