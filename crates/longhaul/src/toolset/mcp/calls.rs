//! The calls that a server is at work on, so that what it tells and asks meanwhile reaches whoever called.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken, RequestId};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits;
use crate::tool::CallContext;
use crate::toolset::text::clipped;

/// What a server may still ask during one call, all its round trips together.
#[derive(Default)]
pub(super) struct Allowance(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    samplings: u32,
    questions: u32,
}

impl Allowance {
    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the model may be asked once more.
    pub(super) fn may_sample(&self) -> bool {
        take(&mut self.asked().samplings, limits::SAMPLINGS)
    }

    /// Whether a person may be asked once more.
    pub(super) fn may_ask(&self) -> bool {
        take(&mut self.asked().questions, limits::QUESTIONS)
    }
}

fn take(times: &mut u32, most: u32) -> bool {
    let may = *times < most;
    *times += u32::from(may);
    may
}

/// All calls that are under way at one server.
#[derive(Default)]
pub(super) struct Calls(Mutex<Vec<Arc<Running>>>);

impl Calls {
    /// One more, until what is returned is dropped.
    pub(super) fn enter(
        self: &Arc<Self>,
        id: RequestId,
        token: ProgressToken,
        context: &CallContext,
        allowance: &Arc<Allowance>,
    ) -> Entered {
        let life = Life { heard: Instant::now(), progress: f64::NEG_INFINITY, asking: 0 };
        let (context, allowance) = (context.clone(), allowance.clone());
        let running = Running { id, token, context, allowance, life: Mutex::new(life), news: Notify::new() };
        let running = Arc::new(running);
        self.all().push(running.clone());
        Entered { calls: self.clone(), running }
    }

    /// The call that a question belongs to. Where the server does not say (over a pipe it cannot), it is the one that
    /// was made last.
    pub(super) fn asking(&self, of: Option<&RequestId>) -> Option<Arc<Running>> {
        let all = self.all();
        let named = of.and_then(|id| all.iter().find(|running| running.id == *id));
        named.or(all.last()).cloned()
    }

    fn of_token(&self, token: &ProgressToken) -> Option<Arc<Running>> {
        self.all().iter().find(|running| running.token == *token).cloned()
    }

    /// Passes on how far a call is.
    pub(super) async fn progress(&self, told: ProgressNotificationParam) {
        let mut running = self.of_token(&told.progress_token);
        if running.is_none() {
            // A quick server tells before the call is on the list.
            tokio::time::sleep(Duration::from_millis(20)).await;
            running = self.of_token(&told.progress_token);
        }
        if let Some(running) = running {
            running.tell(&told);
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is under way.
pub(super) struct Running {
    id: RequestId,
    token: ProgressToken,
    pub(super) context: CallContext,
    pub(super) allowance: Arc<Allowance>,
    life: Mutex<Life>,
    news: Notify,
}

struct Life {
    /// When the server last gave a sign of life.
    heard: Instant,
    progress: f64,
    /// How many questions are open. Whoever waits for an answer is not silent.
    asking: u32,
}

impl Running {
    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, told: &ProgressNotificationParam) {
        {
            let mut life = self.life();
            life.heard = Instant::now();
            // They may overtake each other on their way here.
            if told.progress < life.progress {
                return;
            }
            life.progress = told.progress;
        }
        self.news.notify_one();
        self.context.progress(far(told));
    }

    /// Says that something is being asked, until what is returned is dropped.
    pub(super) fn asks(self: &Arc<Self>) -> Asking {
        self.life().asking += 1;
        self.news.notify_one();
        Asking(self.clone())
    }

    /// When the server has given no sign of life for so long.
    pub(super) async fn silent(&self, longest: Duration) {
        loop {
            let due = {
                let life = self.life();
                if life.asking > 0 { None } else { life.heard.checked_add(longest) }
            };
            let over = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                () = self.news.notified() => {}
            }
        }
    }
}

/// A call on the list; off it when this is dropped.
pub(super) struct Entered {
    calls: Arc<Calls>,
    pub(super) running: Arc<Running>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.calls.all().retain(|running| !Arc::ptr_eq(running, &self.running));
    }
}

/// A question that is open.
pub(super) struct Asking(Arc<Running>);

impl Drop for Asking {
    fn drop(&mut self) {
        let mut life = self.0.life();
        life.asking -= 1;
        life.heard = Instant::now();
        drop(life);
        self.0.news.notify_one();
    }
}

/// How far it is, in words.
fn far(told: &ProgressNotificationParam) -> String {
    let amount = match told.total {
        Some(total) => format!("{} of {total}", told.progress),
        None => told.progress.to_string(),
    };
    match told.message.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        Some(message) => format!("{} ({amount})", clipped(message, limits::PROGRESS)),
        None => amount,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Signal;
    use crate::toolset::no_desk::call_in;
    use rmcp::model::NumberOrString;

    fn token(n: i64) -> ProgressToken {
        ProgressToken(NumberOrString::Number(n))
    }

    fn told(n: i64, progress: f64) -> ProgressNotificationParam {
        ProgressNotificationParam::new(token(n), progress)
    }

    #[tokio::test(start_paused = true)]
    async fn progress_reaches_its_call_and_never_goes_back() {
        let dir = std::path::Path::new("/");
        let (calls, (one, mut heard), (two, mut other)) =
            (Arc::<Calls>::default(), call_in(dir), call_in(dir));
        let _one = calls.enter(NumberOrString::Number(1), token(1), &one, &Arc::default());
        let _two = calls.enter(NumberOrString::Number(2), token(2), &two, &Arc::default());
        for progress in [1.0, 3.0, 2.0] {
            calls.progress(told(1, progress).with_total(4.0)).await;
        }
        calls.progress(told(1, 4.0).with_message("done")).await;
        calls.progress(told(77, 1.0)).await;
        let mut words = Vec::new();
        while let Ok(Signal::Progress(text)) = heard.try_recv() {
            words.push(text);
        }
        assert_eq!(words, ["1 of 4", "3 of 4", "done (4)"]);
        assert!(other.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_sign_of_life_and_not_while_somebody_is_asked() {
        let (context, _heard) = call_in(std::path::Path::new("/"));
        let calls = Arc::<Calls>::default();
        let entered = calls.enter(NumberOrString::Number(1), token(1), &context, &Arc::default());
        let limit = Duration::from_secs(60);
        let begun = Instant::now();
        let silent = entered.running.silent(limit);
        let life = async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            calls.progress(told(1, 1.0)).await;
            tokio::time::sleep(Duration::from_secs(50)).await;
            let asking = entered.running.asks();
            tokio::time::sleep(Duration::from_secs(1000)).await;
            drop(asking);
        };
        tokio::join!(silent, life);
        assert_eq!(begun.elapsed().as_secs(), 50 + 50 + 1000 + 60);
    }

    #[tokio::test]
    async fn a_question_is_of_the_call_that_it_names_or_of_the_last() {
        let (context, _heard) = call_in(std::path::Path::new("/"));
        let calls = Arc::<Calls>::default();
        assert!(calls.asking(None).is_none());
        let one = calls.enter(NumberOrString::Number(1), token(1), &context, &Arc::default());
        let two = calls.enter(NumberOrString::Number(2), token(2), &context, &Arc::default());
        let found = |of: Option<i64>| calls.asking(of.map(NumberOrString::Number).as_ref()).unwrap();
        assert!(Arc::ptr_eq(&found(Some(1)), &one.running));
        assert!(Arc::ptr_eq(&found(None), &two.running));
        drop(two);
        assert!(Arc::ptr_eq(&found(None), &one.running));
    }
}
