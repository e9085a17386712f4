//! Older spellings, brought to the ones of today.

use super::value::Value;

/// Brings a whole file up to date.
pub(super) fn upgrade(team: &mut Value) {
    for agent in team.get_mut("agents").into_iter().flat_map(Value::values_mut) {
        flags(agent);
    }
    for model in team.get_mut("models").into_iter().flat_map(Value::values_mut) {
        if let Value::Text(name) = model {
            *model = short_model(name);
        }
    }
    for server in team.get_mut("mcps").into_iter().flat_map(Value::values_mut) {
        server.take("type");
        server.set("type", Value::Text("mcp".to_owned()));
    }
    for group in team.get_mut("toolsets").into_iter().flat_map(Value::values_mut) {
        if matches!(group, Value::Map(_)) {
            let toolset = std::mem::replace(group, Value::Null);
            *group = Value::List(vec![toolset]);
        }
    }
}

/// `think: true`, `todo: {shared: true}` and `memory: {path: …}` are toolsets.
fn flags(agent: &mut Value) {
    for flag in ["think", "todo", "memory"] {
        let mut toolset = match agent.take(flag) {
            Some(settings @ Value::Map(_)) => settings,
            Some(Value::Bool(true)) => Value::Map(Vec::new()),
            _ => continue,
        };
        toolset.set("type", Value::Text(flag.to_owned()));
        match agent.get_mut("toolsets") {
            Some(Value::List(toolsets)) => toolsets.push(toolset),
            _ => agent.set("toolsets", Value::List(vec![toolset])),
        }
    }
}

/// `provider/model`.
fn short_model(name: &str) -> Value {
    let (provider, model) = name.split_once('/').unwrap_or(("", name));
    let mut fields = vec![("model".to_owned(), Value::Text(model.to_owned()))];
    if !provider.is_empty() {
        fields.push(("provider".to_owned(), Value::Text(provider.to_owned())));
    }
    Value::Map(fields)
}
