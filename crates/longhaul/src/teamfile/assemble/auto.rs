//! Models made of models: the first that can be asked, and several in turn.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use tokio::sync::OnceCell;

use super::Lookup;
use crate::model::http::{Http, Provider};
use crate::model::{Model, ModelError, ModelErrorKind, ReplyStream, Request};

/// `auto` where no key is set: a server on this machine, looked for when it is first asked.
pub(super) struct Auto {
    http: Http,
    variables: Lookup,
    found: OnceCell<Arc<Provider>>,
}

impl Auto {
    pub(super) fn new(http: Http, variables: Lookup) -> Auto {
        Auto { http, variables, found: OnceCell::new() }
    }

    async fn find(&self) -> Result<&Arc<Provider>, ModelError> {
        let keys = super::models::keys(&self.variables);
        let found = self.found.get_or_try_init(|| self.http.auto(&keys)).await;
        found.map_err(|error| ModelError {
            model: "auto".to_owned(),
            kind: ModelErrorKind::Rejected(error.to_string()),
            retry_after: None,
        })
    }
}

impl Model for Auto {
    fn name(&self) -> &str {
        self.found.get().map_or("auto", |model| model.name())
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> ReplyStream<'a> {
        let begun = stream::once(self.find());
        begun
            .flat_map(move |found| match found {
                Ok(model) => model.stream(request),
                Err(error) => stream::once(async { Err(error) }).boxed(),
            })
            .boxed()
    }

    fn window(&self) -> Option<u64> {
        self.found.get().and_then(|model| model.window())
    }

    fn unpriced(&self) -> Option<String> {
        // Which it is turns out when it is asked; a server on this machine has no price that is known.
        self.found.get().map_or_else(|| Some("auto".to_owned()), |model| model.unpriced())
    }
}

/// Several models, of which each turn asks the next. It has no memory: which one is asked depends on the turn alone, so it
/// is the same after a restart.
pub(super) struct InTurn {
    name: String,
    models: Vec<Arc<dyn Model>>,
}

impl InTurn {
    /// Of one model, that model.
    pub(super) fn of(mut models: Vec<Arc<dyn Model>>) -> Option<Arc<dyn Model>> {
        match models.len() {
            0 | 1 => models.pop(),
            _ => {
                let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
                Some(Arc::new(InTurn { name: names.join(", "), models }))
            }
        }
    }
}

impl Model for InTurn {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> ReplyStream<'a> {
        let at = usize::try_from(request.turn).unwrap_or_default() % self.models.len();
        self.models[at].stream(request)
    }

    fn window(&self) -> Option<u64> {
        self.models.iter().filter_map(|model| model.window()).min()
    }

    fn unpriced(&self) -> Option<String> {
        self.models.iter().find_map(|model| model.unpriced())
    }
}
