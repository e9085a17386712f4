//! Converts older spellings to the current ones.

use super::normal_value::NormalValue;

/// Upgrades a whole file.
pub(super) fn upgrade(team: &mut NormalValue) {
    for agent in team.get_mut("agents").into_iter().flat_map(NormalValue::values_mut) {
        flags(agent);
        if let Some(program @ NormalValue::Text(_)) = agent.get_mut("acp") {
            let name = std::mem::replace(program, NormalValue::Null);
            *program = NormalValue::Map(vec![("type".to_owned(), name)]);
        }
    }
    for model in team.get_mut("models").into_iter().flat_map(NormalValue::values_mut) {
        if let NormalValue::Text(name) = model {
            *model = short_model(name);
        }
    }
    for server in team.get_mut("mcps").into_iter().flat_map(NormalValue::values_mut) {
        server.remove("type");
        server.set("type", NormalValue::Text("mcp".to_owned()));
    }
    for group in team.get_mut("toolsets").into_iter().flat_map(NormalValue::values_mut) {
        if matches!(group, NormalValue::Map(_)) {
            let toolset = std::mem::replace(group, NormalValue::Null);
            *group = NormalValue::List(vec![toolset]);
        }
    }
}

/// `think: true`, `todo: {shared: true}` and `memory: {path: …}` are toolsets.
fn flags(agent: &mut NormalValue) {
    for flag in ["think", "todo", "memory"] {
        let mut toolset = match agent.remove(flag) {
            Some(settings @ NormalValue::Map(_)) => settings,
            Some(NormalValue::Bool(true)) => NormalValue::Map(Vec::new()),
            _ => continue,
        };
        toolset.set("type", NormalValue::Text(flag.to_owned()));
        match agent.get_mut("toolsets") {
            Some(NormalValue::List(toolsets)) => toolsets.push(toolset),
            _ => agent.set("toolsets", NormalValue::List(vec![toolset])),
        }
    }
}

/// `provider/model`.
fn short_model(name: &str) -> NormalValue {
    let (provider, model) = name.split_once('/').unwrap_or(("", name));
    let mut fields = vec![("model".to_owned(), NormalValue::Text(model.to_owned()))];
    if !provider.is_empty() {
        fields.push(("provider".to_owned(), NormalValue::Text(provider.to_owned())));
    }
    NormalValue::Map(fields)
}
