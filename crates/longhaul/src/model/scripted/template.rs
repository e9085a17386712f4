//! Texts and arguments of a script: fixed, or rendered by a template. All templates are compiled when the
//! script is loaded.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value};
use serde_saphyr::Spanned;

use super::error::{ModelScriptError, ScriptSource};
use super::template_context::{self, TEMPLATE_VARIABLES};
use crate::model::yaml_tree::YamlTree;

/// The variable that holds the value of an expression.
const VALUE: &str = "value";

/// The templates of a script, by number.
#[derive(Debug)]
pub(super) struct Templates {
    environment: Environment<'static>,
}

/// A compiled template.
#[derive(Debug)]
pub(super) struct ScriptTemplate(String);

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Expression(String);

/// A text of a script.
#[derive(Debug)]
pub(super) enum ScriptText {
    Fixed(String),
    Template(ScriptTemplate),
}

/// A tool call's arguments.
#[derive(Debug)]
pub(super) enum ScriptArguments {
    /// As written, valid JSON or not.
    Raw(ScriptText),
    /// Built from a YAML value.
    Json(JsonTemplate),
}

/// A JSON value whose leaves may be templates.
#[derive(Debug)]
pub(super) enum JsonTemplate {
    /// Serialised JSON.
    Fixed(String),
    Text(ScriptTemplate),
    Value(Expression),
    List(Vec<JsonTemplate>),
    /// The keys are serialised JSON.
    Map(Vec<(String, JsonTemplate)>),
}

impl Templates {
    pub(super) fn render_text(
        &self,
        text: &ScriptText,
        context: impl FnOnce() -> Value,
    ) -> Result<String, Error> {
        match text {
            ScriptText::Fixed(text) => Ok(text.clone()),
            ScriptText::Template(template) => self.render(template, context()),
        }
    }

    pub(super) fn render_arguments(
        &self,
        arguments: &ScriptArguments,
        context: &mut dyn FnMut() -> Value,
    ) -> Result<String, Error> {
        match arguments {
            ScriptArguments::Raw(text) => self.render_text(text, context),
            ScriptArguments::Json(JsonTemplate::Fixed(json)) => Ok(json.clone()),
            ScriptArguments::Json(tree) => {
                let mut json = String::new();
                self.write(tree, &context(), &mut json)?;
                Ok(json)
            }
        }
    }

    pub(super) fn evaluate(&self, expression: &Expression, context: Value) -> Result<Value, Error> {
        let captured = self.environment.get_template(&expression.0)?.render_captured(context)?;
        Ok(captured.state().lookup(VALUE).unwrap_or_default())
    }

    fn render(&self, template: &ScriptTemplate, context: Value) -> Result<String, Error> {
        self.environment.get_template(&template.0)?.render(context)
    }

    fn write(&self, tree: &JsonTemplate, context: &Value, json: &mut String) -> Result<(), Error> {
        match tree {
            JsonTemplate::Fixed(fixed) => json.push_str(fixed),
            JsonTemplate::Text(template) => json.push_str(&quoted(&self.render(template, context.clone())?)),
            JsonTemplate::Value(expression) => {
                let value = self.evaluate(expression, context.clone())?;
                let written = serde_json::to_string(&value);
                json.push_str(&written.map_err(|e| {
                    Error::new(minijinja::ErrorKind::BadSerialization, format!("not JSON: {e}"))
                })?);
            }
            JsonTemplate::List(items) => {
                json.push('[');
                for (index, item) in items.iter().enumerate() {
                    json.push_str(if index == 0 { "" } else { "," });
                    self.write(item, context, json)?;
                }
                json.push(']');
            }
            JsonTemplate::Map(fields) => {
                json.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    json.push_str(if index == 0 { "" } else { "," });
                    json.push_str(key);
                    json.push(':');
                    self.write(value, context, json)?;
                }
                json.push('}');
            }
        }
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn has_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

/// Compiles the templates of one script.
pub(super) struct TemplateCompiler<'a> {
    pub(super) source: ScriptSource<'a>,
    environment: Environment<'static>,
    count: usize,
}

impl<'a> TemplateCompiler<'a> {
    pub(super) fn new(source: ScriptSource<'a>) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_debug(true);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
            environment.set_syntax(syntax);
        }
        environment.add_filter("find_all", |texts: &Value, pattern: &str| {
            template_context::find_all_in(texts, pattern)
        });
        environment.add_filter("from_json", template_context::from_json);
        TemplateCompiler { source, environment, count: 0 }
    }

    pub(super) fn finish(self) -> Templates {
        Templates { environment: self.environment }
    }

    pub(super) fn compile_text(&mut self, text: Spanned<String>) -> Result<ScriptText, ModelScriptError> {
        if has_template(&text.value) {
            self.template(text).map(ScriptText::Template)
        } else {
            Ok(ScriptText::Fixed(text.value))
        }
    }

    fn template(&mut self, text: Spanned<String>) -> Result<ScriptTemplate, ModelScriptError> {
        let at = text.defined;
        let name = self.add(text.value).map_err(|error| self.refused(at, "template", &error))?;
        self.only_known_words(&name, at)?;
        Ok(ScriptTemplate(name))
    }

    pub(super) fn compile_expression(
        &mut self,
        text: &Spanned<String>,
    ) -> Result<Expression, ModelScriptError> {
        let name = self
            .add(format!("{{% set {VALUE} = ({}) %}}", text.value))
            .map_err(|error| self.refused(text.defined, "expression", &error))?;
        self.only_known_words(&name, text.defined)?;
        Ok(Expression(name))
    }

    fn add(&mut self, template: String) -> Result<String, Error> {
        let name = self.count.to_string();
        self.environment.add_template_owned(name.clone(), template)?;
        self.count += 1;
        Ok(name)
    }

    fn refused(&self, at: serde_saphyr::Location, what: &str, error: &Error) -> ModelScriptError {
        let message = format!("this {what} is wrong: {}", describe_template_error(error));
        self.source.error_in_text(at, error.line().unwrap_or(1), message)
    }

    fn only_known_words(&self, name: &str, at: serde_saphyr::Location) -> Result<(), ModelScriptError> {
        let Ok(template) = self.environment.get_template(name) else { return Ok(()) };
        let mut used: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        used.sort_unstable();
        let known = |word: &str| {
            TEMPLATE_VARIABLES.contains(&word) || self.environment.globals().any(|(name, _)| name == word)
        };
        match used.iter().find(|word| !known(word)) {
            Some(word) => {
                let lines = template.source().lines();
                let line = lines.clone().position(|line| line.contains(word.as_str())).unwrap_or(0) + 1;
                let message = format!(
                    "'{word}' is not a variable of scripts; use one of {}",
                    TEMPLATE_VARIABLES.join(", ")
                );
                Err(self.source.error_in_text(at, line, message))
            }
            None => Ok(()),
        }
    }

    pub(super) fn compile_arguments(
        &mut self,
        node: Option<Spanned<YamlTree<String>>>,
    ) -> Result<ScriptArguments, ModelScriptError> {
        match node {
            None => Ok(ScriptArguments::Json(JsonTemplate::Fixed("{}".to_owned()))),
            Some(Spanned { value: YamlTree::Text(text), referenced, defined }) => {
                self.compile_text(Spanned::new(text, referenced, defined)).map(ScriptArguments::Raw)
            }
            Some(node) => self.tree(node).map(ScriptArguments::Json),
        }
    }

    fn tree(&mut self, node: Spanned<YamlTree<String>>) -> Result<JsonTemplate, ModelScriptError> {
        Ok(match node.value {
            YamlTree::Null => JsonTemplate::Fixed("null".to_owned()),
            YamlTree::Bool(value) => JsonTemplate::Fixed(value.to_string()),
            YamlTree::Int(value) if (i64::MIN.into()..=u64::MAX.into()).contains(&value) => {
                JsonTemplate::Fixed(value.to_string())
            }
            YamlTree::Int(value) => return Err(self.no_number(node.defined, &value)),
            YamlTree::Float(value) => match serde_json::Number::from_f64(value) {
                Some(number) => JsonTemplate::Fixed(number.to_string()),
                None => return Err(self.no_number(node.defined, &value)),
            },
            YamlTree::Text(text) if !has_template(&text) => JsonTemplate::Fixed(quoted(&text)),
            YamlTree::Text(text) => {
                let text = Spanned::new(text, node.referenced, node.defined);
                match self.lone_expression(&text) {
                    Some(expression) => JsonTemplate::Value(expression),
                    None => JsonTemplate::Text(self.template(text)?),
                }
            }
            YamlTree::List(items) => {
                let items: Vec<JsonTemplate> =
                    items.into_iter().map(|item| self.tree(item)).collect::<Result<_, _>>()?;
                match items.iter().map(fixed).collect::<Option<Vec<_>>>() {
                    Some(fixed) => JsonTemplate::Fixed(format!("[{}]", fixed.join(","))),
                    None => JsonTemplate::List(items),
                }
            }
            YamlTree::Map(fields) => {
                let mut made = Vec::with_capacity(fields.len());
                for (key, value) in fields {
                    made.push((quoted(&key), self.tree(value)?));
                }
                let pairs = made.iter().map(|(key, value)| Some(format!("{key}:{}", fixed(value)?)));
                match pairs.collect::<Option<Vec<_>>>() {
                    Some(pairs) => JsonTemplate::Fixed(format!("{{{}}}", pairs.join(","))),
                    None => JsonTemplate::Map(made),
                }
            }
        })
    }

    fn no_number(&self, at: serde_saphyr::Location, value: &dyn std::fmt::Display) -> ModelScriptError {
        self.source.error_at(at, format!("{value} is not a JSON number"))
    }

    /// A text that is only one `{{ expression }}` keeps the type of its value.
    fn lone_expression(&mut self, text: &Spanned<String>) -> Option<Expression> {
        let inner = text.value.trim().strip_prefix("{{")?.strip_suffix("}}")?;
        self.compile_expression(&Spanned::new(inner.to_owned(), text.referenced, text.defined)).ok()
    }
}

fn fixed(tree: &JsonTemplate) -> Option<&str> {
    match tree {
        JsonTemplate::Fixed(json) => Some(json),
        _ => None,
    }
}

/// The message of a template error, without the template's internal name.
pub(super) fn describe_template_error(error: &Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    if let (Some(range), Some(source)) = (error.range(), error.template_source())
        && let Some(part) = source.get(range)
    {
        text = format!("{text} (at '{}')", part.chars().take(80).collect::<String>());
    }
    text
}
