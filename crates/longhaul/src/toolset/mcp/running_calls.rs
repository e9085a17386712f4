//! The running calls of a server: routes the server's progress and questions to the call that they belong to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken, RequestId};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits;
use crate::tool::CallContext;
use crate::toolset::text::truncate;

/// How many questions a server may still ask during one call, over all its round trips.
#[derive(Default)]
pub(super) struct ServerRequestQuota(Mutex<QuotaUsed>);

#[derive(Default)]
struct QuotaUsed {
    samplings: u32,
    questions: u32,
}

impl ServerRequestQuota {
    fn used(&self) -> std::sync::MutexGuard<'_, QuotaUsed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses up one question to the model; returns whether there was one left.
    pub(super) fn take_sampling(&self) -> bool {
        take(&mut self.used().samplings, limits::SAMPLINGS)
    }

    /// Uses up one question to a person; returns whether there was one left.
    pub(super) fn take_question(&self) -> bool {
        take(&mut self.used().questions, limits::QUESTIONS)
    }
}

fn take(times: &mut u32, most: u32) -> bool {
    let may = *times < most;
    *times += u32::from(may);
    may
}

/// All running calls of one server.
#[derive(Default)]
pub(super) struct McpRunningCalls(Mutex<Vec<Arc<McpRunningCall>>>);

impl McpRunningCalls {
    /// Adds a call, until the guard is dropped.
    pub(super) fn register(
        self: &Arc<Self>,
        id: RequestId,
        token: ProgressToken,
        context: &CallContext,
        quota: &Arc<ServerRequestQuota>,
    ) -> McpRunningCallGuard {
        let activity = CallActivity { last_sign: Instant::now(), progress: f64::NEG_INFINITY, asking: 0 };
        let (context, quota) = (context.clone(), quota.clone());
        let running = McpRunningCall {
            id,
            token,
            context,
            quota,
            activity: Mutex::new(activity),
            changed: Notify::new(),
        };
        let running = Arc::new(running);
        self.all().push(running.clone());
        McpRunningCallGuard { calls: self.clone(), running }
    }

    /// Returns the call that a question belongs to. If the server does not say (over a pipe it cannot), that
    /// is the latest call.
    pub(super) fn call_of_request(&self, of: Option<&RequestId>) -> Option<Arc<McpRunningCall>> {
        let all = self.all();
        let named = of.and_then(|id| all.iter().find(|running| running.id == *id));
        named.or(all.last()).cloned()
    }

    fn of_token(&self, token: &ProgressToken) -> Option<Arc<McpRunningCall>> {
        self.all().iter().find(|running| running.token == *token).cloned()
    }

    /// Passes on the progress of a call.
    pub(super) async fn report_progress(&self, notification: ProgressNotificationParam) {
        let mut running = self.of_token(&notification.progress_token);
        if running.is_none() {
            // A fast server may report progress before the call is registered.
            tokio::time::sleep(Duration::from_millis(20)).await;
            running = self.of_token(&notification.progress_token);
        }
        if let Some(running) = running {
            running.report_progress(&notification);
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Arc<McpRunningCall>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running call.
pub(super) struct McpRunningCall {
    id: RequestId,
    token: ProgressToken,
    pub(super) context: CallContext,
    pub(super) quota: Arc<ServerRequestQuota>,
    activity: Mutex<CallActivity>,
    changed: Notify,
}

struct CallActivity {
    /// When the server last reported progress, or its last question was answered.
    last_sign: Instant,
    progress: f64,
    /// How many questions are open. While one is, the server waits for us and is not silent.
    asking: u32,
}

impl McpRunningCall {
    fn activity(&self) -> std::sync::MutexGuard<'_, CallActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_progress(&self, notification: &ProgressNotificationParam) {
        {
            let mut activity = self.activity();
            activity.last_sign = Instant::now();
            // Notifications may arrive out of order.
            if notification.progress < activity.progress {
                return;
            }
            activity.progress = notification.progress;
        }
        self.changed.notify_one();
        self.context.progress(progress_text(notification));
    }

    /// Counts a question as open, until the guard is dropped.
    pub(super) fn begin_question(self: &Arc<Self>) -> OpenQuestionGuard {
        self.activity().asking += 1;
        self.changed.notify_one();
        OpenQuestionGuard(self.clone())
    }

    /// Waits until the server has been silent for `longest`.
    pub(super) async fn until_silent(&self, longest: Duration) {
        loop {
            let due = {
                let activity = self.activity();
                if activity.asking > 0 { None } else { activity.last_sign.checked_add(longest) }
            };
            let over = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                () = self.changed.notified() => {}
            }
        }
    }
}

/// A registered call; dropping it removes the call.
pub(super) struct McpRunningCallGuard {
    calls: Arc<McpRunningCalls>,
    pub(super) running: Arc<McpRunningCall>,
}

impl Drop for McpRunningCallGuard {
    fn drop(&mut self) {
        self.calls.all().retain(|running| !Arc::ptr_eq(running, &self.running));
    }
}

/// An open question.
pub(super) struct OpenQuestionGuard(Arc<McpRunningCall>);

impl Drop for OpenQuestionGuard {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.asking -= 1;
        activity.last_sign = Instant::now();
        drop(activity);
        self.0.changed.notify_one();
    }
}

/// Formats the progress of a call.
fn progress_text(notification: &ProgressNotificationParam) -> String {
    let amount = match notification.total {
        Some(total) => format!("{} of {total}", notification.progress),
        None => notification.progress.to_string(),
    };
    match notification.message.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        Some(message) => format!("{} ({amount})", truncate(message, limits::PROGRESS)),
        None => amount,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::CallSignal;
    use crate::toolset::tool_fixture::call_context_in;
    use rmcp::model::NumberOrString;

    fn token(n: i64) -> ProgressToken {
        ProgressToken(NumberOrString::Number(n))
    }

    fn notification(n: i64, progress: f64) -> ProgressNotificationParam {
        ProgressNotificationParam::new(token(n), progress)
    }

    #[tokio::test(start_paused = true)]
    async fn progress_reaches_its_call_and_never_goes_back() {
        let dir = std::path::Path::new("/");
        let (calls, (one, mut signals), (two, mut other)) =
            (Arc::<McpRunningCalls>::default(), call_context_in(dir), call_context_in(dir));
        let _one = calls.register(NumberOrString::Number(1), token(1), &one, &Arc::default());
        let _two = calls.register(NumberOrString::Number(2), token(2), &two, &Arc::default());
        for progress in [1.0, 3.0, 2.0] {
            calls.report_progress(notification(1, progress).with_total(4.0)).await;
        }
        calls.report_progress(notification(1, 4.0).with_message("done")).await;
        calls.report_progress(notification(77, 1.0)).await;
        let mut words = Vec::new();
        while let Ok(CallSignal::Progress(text)) = signals.try_recv() {
            words.push(text);
        }
        assert_eq!(words, ["1 of 4", "3 of 4", "done (4)"]);
        assert!(other.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_sign_of_life_and_not_while_somebody_is_asked() {
        let (context, _heard) = call_context_in(std::path::Path::new("/"));
        let calls = Arc::<McpRunningCalls>::default();
        let entered = calls.register(NumberOrString::Number(1), token(1), &context, &Arc::default());
        let limit = Duration::from_secs(60);
        let begun = Instant::now();
        let silent = entered.running.until_silent(limit);
        let activity = async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            calls.report_progress(notification(1, 1.0)).await;
            tokio::time::sleep(Duration::from_secs(50)).await;
            let asking = entered.running.begin_question();
            tokio::time::sleep(Duration::from_secs(1000)).await;
            drop(asking);
        };
        tokio::join!(silent, activity);
        assert_eq!(begun.elapsed().as_secs(), 50 + 50 + 1000 + 60);
    }

    #[tokio::test]
    async fn a_question_is_of_the_call_that_it_names_or_of_the_last() {
        let (context, _heard) = call_context_in(std::path::Path::new("/"));
        let calls = Arc::<McpRunningCalls>::default();
        assert!(calls.call_of_request(None).is_none());
        let one = calls.register(NumberOrString::Number(1), token(1), &context, &Arc::default());
        let two = calls.register(NumberOrString::Number(2), token(2), &context, &Arc::default());
        let found = |of: Option<i64>| calls.call_of_request(of.map(NumberOrString::Number).as_ref()).unwrap();
        assert!(Arc::ptr_eq(&found(Some(1)), &one.running));
        assert!(Arc::ptr_eq(&found(None), &two.running));
        drop(two);
        assert!(Arc::ptr_eq(&found(None), &one.running));
    }
}
