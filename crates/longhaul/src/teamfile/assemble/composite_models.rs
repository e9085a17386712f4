//! Models made of models: the first available one, and several in rotation.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use tokio::sync::OnceCell;

use super::VariableLookup;
use crate::id::TaskId;
use crate::model::http::{HttpClient, HttpModel};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest, ReplyStream, StartTicket};

/// `auto` without a key: a local server, looked up at the first request.
pub(super) struct AutoModel {
    http: HttpClient,
    variables: VariableLookup,
    found: OnceCell<Arc<HttpModel>>,
}

impl AutoModel {
    pub(super) fn new(http: HttpClient, variables: VariableLookup) -> AutoModel {
        AutoModel { http, variables, found: OnceCell::new() }
    }

    async fn find(&self) -> Result<&Arc<HttpModel>, ModelError> {
        let keys = super::models::key_source(&self.variables);
        let found = self.found.get_or_try_init(|| self.http.auto_model(&keys)).await;
        found.map_err(|error| ModelError {
            model: "auto".to_owned(),
            kind: ModelErrorKind::Rejected(error.to_string()),
            retry_after: None,
        })
    }
}

impl Model for AutoModel {
    fn name(&self) -> &str {
        self.found.get().map_or("auto", |model| model.name())
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        let begun = stream::once(self.find());
        begun
            .flat_map(move |found| match found {
                Ok(model) => model.stream(request),
                Err(error) => stream::once(async { Err(error) }).boxed(),
            })
            .boxed()
    }

    fn start_ticket(&self, root: TaskId, depth: u32) -> Option<Box<dyn StartTicket>> {
        self.found.get()?.start_ticket(root, depth)
    }

    fn context_window(&self) -> Option<u64> {
        self.found.get().and_then(|model| model.context_window())
    }

    fn unpriced_model(&self) -> Option<String> {
        // The model is known only after the first request, and a local server has no known price.
        self.found.get().map_or_else(|| Some("auto".to_owned()), |model| model.unpriced_model())
    }
}

/// Several models that take turns. It has no memory: the turn alone decides which model is used, so the
/// choice is the same after a restart.
pub(super) struct RotatingModel {
    name: String,
    models: Vec<Arc<dyn Model>>,
}

impl RotatingModel {
    /// Returns a single model as it is.
    pub(super) fn from_models(mut models: Vec<Arc<dyn Model>>) -> Option<Arc<dyn Model>> {
        match models.len() {
            0 | 1 => models.pop(),
            _ => {
                let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
                Some(Arc::new(RotatingModel { name: names.join(", "), models }))
            }
        }
    }
}

impl Model for RotatingModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        let at = usize::try_from(request.turn).unwrap_or_default() % self.models.len();
        self.models[at].stream(request)
    }

    fn start_ticket(&self, root: TaskId, depth: u32) -> Option<Box<dyn StartTicket>> {
        self.models.first()?.start_ticket(root, depth)
    }

    fn context_window(&self) -> Option<u64> {
        self.models.iter().filter_map(|model| model.context_window()).min()
    }

    fn unpriced_model(&self) -> Option<String> {
        self.models.iter().find_map(|model| model.unpriced_model())
    }
}
