//! Builds models from the names in a team file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use secrecy::SecretString;

use super::composite_models::{AutoModel, RotatingModel};
use super::{FileAssembly, TeamAssembler, VariableLookup};
use crate::model::Model;
use crate::model::http::{CatalogError, CustomProvider, FallbackModel, ModelSpec};
use crate::model::scripted::{ModelScript, ModelScriptError, ScriptedModel};
use crate::model::settings::{ModelSettings, Thinking};
use crate::teamfile::bundle::parent_dir;
use crate::teamfile::reader::join_path;
use crate::teamfile::variables::fill_variables;
use crate::teamfile::{AgentConfig, ModelConfig, ProblemKind, ThinkingConfig, VariableError};

/// The default number of retries before a fallback.
const RETRIES: u32 = 2;
/// The default time for which a model that failed is skipped.
const COOLDOWN: Duration = Duration::from_secs(60);

/// The models so far: one for each name, shared by all agents.
#[derive(Default)]
pub(super) struct ModelRegistry {
    made: HashMap<(String, String), Arc<dyn Model>>,
    scripts: HashMap<String, Arc<dyn Model>>,
    named: IndexMap<String, Arc<dyn Model>>,
}

impl ModelRegistry {
    /// The models that an order may name.
    pub(super) fn named(&self) -> impl Iterator<Item = (String, Arc<dyn Model>)> + '_ {
        self.named.iter().map(|(name, model)| (name.clone(), model.clone()))
    }
}

pub(super) fn key_source(
    variables: &VariableLookup,
) -> impl Fn(&str) -> Option<SecretString> + Send + Sync + use<> {
    let variables = variables.clone();
    move |name| variables(name).map(SecretString::from)
}

impl TeamAssembler<'_> {
    /// The model of an agent: its own models in rotation, and their fallbacks.
    pub(super) fn agent_model(
        &mut self,
        job: &mut FileAssembly<'_>,
        name: &str,
        agent: &AgentConfig,
    ) -> Option<Arc<dyn Model>> {
        let path = join_path("agents", name);
        let full = job.full_name(name);
        let fits = |other: &&super::ModelOverride| other.agent.as_ref().is_none_or(|agent| *agent == full);
        let names = match self.bundle.models.iter().chain(&self.environment.model_overrides).rev().find(fits)
        {
            Some(other) => other.model.split(',').map(|name| name.trim().to_owned()).collect(),
            None if agent.model.is_empty() => vec!["auto".to_owned()],
            None => agent.model.clone(),
        };
        let (mut models, mut missing) = (Vec::new(), Vec::new());
        for (index, name) in names.iter().enumerate() {
            self.doubt(job, name, &format!("{path}.model[{index}]"));
            match self.model(job, name) {
                Ok(model) => models.push(model),
                Err(why) => missing.push((index, why)),
            }
        }
        let Some(own) = RotatingModel::from_models(models) else {
            for (index, why) in missing {
                job.add_error_of(why.problem_kind(), &format!("{path}.model[{index}]"), why.to_string());
            }
            return None;
        };
        for (index, why) in missing {
            self.warn(job, &format!("{path}.model[{index}]"), why.to_string(), "the other models are used");
        }
        let Some(fallback) = &agent.fallback else { return Some(own) };
        let mut others = Vec::new();
        for (index, name) in fallback.models.iter().enumerate() {
            self.doubt(job, name, &format!("{path}.fallback.models[{index}]"));
            match self.model(job, name) {
                Ok(model) => others.push(model),
                Err(why) => {
                    let path = format!("{path}.fallback.models[{index}]");
                    self.warn(job, &path, why.to_string(), "the fallback is skipped");
                }
            }
        }
        if others.is_empty() {
            return Some(own);
        }
        let retries = match fallback.retries {
            None | Some(0) => RETRIES,
            Some(retries) => u32::try_from(retries).unwrap_or(0),
        };
        let cooldown = fallback.cooldown.unwrap_or(COOLDOWN);
        Some(Arc::new(FallbackModel::new(own, others, retries, cooldown)))
    }

    /// Warns of a model whose name is close to a known one.
    fn doubt(&self, job: &mut FileAssembly<'_>, name: &str, path: &str) {
        let part = job.team.models.get(name);
        let typed = part.map_or(Some(name), |part| part.model.as_deref()).unwrap_or_default();
        let (provider, model) = match part.and_then(|part| part.provider.as_deref()) {
            Some(provider) => (provider, typed),
            None => typed.split_once('/').unwrap_or(("", typed)),
        };
        let elsewhere = part.is_some_and(|part| part.base_url.is_some());
        if elsewhere || job.team.providers.contains_key(provider) {
            return;
        }
        let Some(meant) = self.environment.http.meant(provider, model) else { return };
        let message = format!("{provider} has no model '{model}' that Longhaul knows of");
        let help = format!("did you mean {meant}? Ignore this if the model is new");
        let path =
            if part.is_some() { format!("{}.model", join_path("models", name)) } else { path.to_owned() };
        job.doubtful(&path, message, help);
    }

    /// The model of a name. The error says why there is none.
    pub(super) fn model(
        &mut self,
        job: &FileAssembly<'_>,
        name: &str,
    ) -> Result<Arc<dyn Model>, ModelConfigError> {
        let key = (job.source.key.clone(), name.to_owned());
        if let Some(model) = self.models.made.get(&key) {
            return Ok(model.clone());
        }
        let model = self.make(job, name)?;
        self.models.made.insert(key, model.clone());
        if job.prefix.is_none() {
            self.models.named.insert(name.to_owned(), model.clone());
        }
        Ok(model)
    }

    fn make(&mut self, job: &FileAssembly<'_>, name: &str) -> Result<Arc<dyn Model>, ModelConfigError> {
        if name == "auto" {
            return self.auto();
        }
        if let Some(part) = job.team.models.get(name) {
            return self.part(job, name, part);
        }
        if let Some(file) = name.strip_prefix("scripted/") {
            return self.script(job, file);
        }
        let spec = ModelSpec::parse(name)?;
        let part = ModelConfig {
            provider: Some(spec.provider),
            model: Some(spec.settings.model),
            ..ModelConfig::default()
        };
        self.part(job, name, &part)
    }

    fn auto(&self) -> Result<Arc<dyn Model>, ModelConfigError> {
        let keys = key_source(&self.environment.variables);
        match self.environment.http.auto_model_by_key(&keys) {
            Some(found) => Ok(found?),
            None => Ok(Arc::new(AutoModel::new(
                self.environment.http.clone(),
                self.environment.variables.clone(),
            ))),
        }
    }

    fn script(&mut self, job: &FileAssembly<'_>, file: &str) -> Result<Arc<dyn Model>, ModelConfigError> {
        let Some((key, text)) = self.bundle.find_file(parent_dir(&job.source.key), file) else {
            return Err(ModelConfigError::NoScript(file.to_owned()));
        };
        if let Some(model) = self.models.scripts.get(&key) {
            return Ok(model.clone());
        }
        let model = scripted(file, text)?;
        self.models.scripts.insert(key, model.clone());
        Ok(model)
    }

    fn part(
        &mut self,
        job: &FileAssembly<'_>,
        name: &str,
        part: &ModelConfig,
    ) -> Result<Arc<dyn Model>, ModelConfigError> {
        let (provider, model) = match (part.provider.as_deref(), part.model.as_deref()) {
            (Some("scripted"), Some(file)) => return self.script(job, file),
            (Some("scripted"), None) => return scripted(name, part.script.as_deref().unwrap_or_default()),
            (Some(provider), model) => (provider, model.unwrap_or_default()),
            (None, Some(model)) => model.split_once('/').unwrap_or(("", model)),
            (None, None) => ("", ""),
        };
        let own = job.team.providers.get(provider);
        let filled = |url: Option<&String>| {
            url.map(|url| fill_variables(url, &*self.environment.variables)).transpose()
        };
        let custom = match own {
            Some(own) => Some(CustomProvider {
                api_type: own.api_type,
                base_url: filled(own.base_url.as_ref())?,
                token_key: own.token_key.clone(),
                max_concurrent: own.max_concurrent,
            }),
            None => None,
        };
        let spec = ModelSpec {
            provider: own.and_then(|own| own.provider.clone()).unwrap_or_else(|| provider.to_owned()),
            settings: ModelSettings {
                model: model.to_owned(),
                max_tokens: part.max_tokens,
                temperature: part.temperature,
                top_p: part.top_p,
                frequency_penalty: part.frequency_penalty,
                presence_penalty: part.presence_penalty,
                thinking: part.thinking_budget.as_ref().and_then(thinking),
                parallel_tool_calls: part.parallel_tool_calls,
                // The schema belongs to the agent, and comes with each of its requests.
                structured_output: None,
                reads_text_calls: None,
                context_size: None,
                provider_opts: part.provider_opts.clone(),
            },
            base_url: filled(part.base_url.as_ref())?,
            token_key: part.token_key.clone(),
            api_type: part.api_type,
            max_concurrent: part.max_concurrent,
            custom,
        };
        let keys = key_source(&self.environment.variables);
        Ok(self.environment.http.model(&spec, &keys)?)
    }
}

/// Why a model of the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelConfigError {
    #[error("there is no script '{0}': paths are relative to the team file")]
    NoScript(String),
    #[error(transparent)]
    Script(#[from] ModelScriptError),
    #[error(transparent)]
    Variables(#[from] VariableError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

impl ModelConfigError {
    fn problem_kind(&self) -> ProblemKind {
        match self {
            ModelConfigError::Variables(why) => why.problem_kind(),
            ModelConfigError::Catalog(CatalogError::MissingKey { .. }) => ProblemKind::Environment,
            _ => ProblemKind::Content,
        }
    }
}

fn scripted(name: &str, text: &str) -> Result<Arc<dyn Model>, ModelConfigError> {
    Ok(Arc::new(ScriptedModel::new(Arc::new(ModelScript::parse(name, text)?))))
}

/// Converts the thinking setting.
fn thinking(part: &ThinkingConfig) -> Option<Thinking> {
    let tokens = |tokens: i64| match tokens {
        0 => Thinking::Off,
        tokens => u32::try_from(tokens).map_or(Thinking::Adaptive, Thinking::Tokens),
    };
    let effort = |word: &str| match word {
        "none" | "off" => Thinking::Off,
        "adaptive" | "dynamic" => Thinking::Adaptive,
        word => Thinking::Effort(word.to_owned()),
    };
    match part {
        ThinkingConfig::Tokens(count) => Some(tokens(*count)),
        ThinkingConfig::Effort(word) => Some(effort(word)),
        ThinkingConfig::Map { effort: Some(word), .. } => Some(effort(word)),
        ThinkingConfig::Map { tokens: Some(count), .. } => Some(tokens(*count)),
        ThinkingConfig::Map { .. } => None,
    }
}
