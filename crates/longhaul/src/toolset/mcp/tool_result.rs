//! Converts the result of a server's tool to text for a model.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::limits;
use crate::tool::{ToolError, ToolOutput};
use crate::toolset::text::group_digits;

/// Converts the result of a call. Content that is not text is described, not shown.
pub(super) fn to_tool_output(result: CallToolResult) -> Result<ToolOutput, ToolError> {
    let CallToolResult { content, structured_content, is_error, .. } = result;
    let mut parts: Vec<String> = content.iter().map(part).filter(|part| !part.is_empty()).collect();
    if let Some(value) = structured_content.filter(|value| !says(&content, value)) {
        parts.push(serde_json::to_string_pretty(&value).unwrap_or_default());
    }
    let text = if parts.is_empty() { "(no content)".to_owned() } else { truncate_result(parts.join("\n")) };
    match is_error {
        Some(true) => Err(ToolError::Failed(text)),
        _ => Ok(text.into()),
    }
}

/// Truncates a result to what is kept.
fn truncate_result(mut text: String) -> String {
    if text.len() > limits::RESULT {
        let whole = group_digits(text.len() as u64);
        let most = text.floor_char_boundary(limits::RESULT);
        text.truncate(most);
        text += &format!("\n[… of {whole} bytes only the first {} are kept …]", group_digits(most as u64));
    }
    text
}

fn part(block: &ContentBlock) -> String {
    let mime = |mime: &Option<String>| mime.as_deref().unwrap_or("unknown type").to_owned();
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => note("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => note("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                note(&format!("resource {uri}"), &mime(mime_type), blob)
            }
            _ => "[a resource of a kind that is not known here]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let about = link.description.as_deref().map_or(String::new(), |text| format!(": {text}"));
            format!("[link to resource {} ({}){about}]", link.uri, link.name)
        }
        _ => "[content of a kind that is not known here]".to_owned(),
    }
}

/// Describes content that is not shown; `data` is base64.
fn note(what: &str, mime: &str, data: &str) -> String {
    let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
    let bytes = (data.len() / 4 * 3).saturating_sub(padding);
    format!("[{what}, {mime}, {} bytes, not shown]", group_digits(bytes as u64))
}

/// Whether one of the texts already is this value: servers send both, for clients that know only one.
fn says(content: &[ContentBlock], value: &Value) -> bool {
    let texts = content.iter().filter_map(ContentBlock::as_text);
    let mut parsed = texts.filter_map(|text| serde_json::from_str::<Value>(&text.text).ok());
    parsed.any(|parsed| parsed == *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: Value) -> Result<String, String> {
        let result = to_tool_output(serde_json::from_value(value).unwrap());
        result.map(|output| output.text).map_err(|error| error.to_string())
    }

    #[test]
    fn text_is_text_and_the_rest_is_told_of() {
        let text = of(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGVsbG8="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "description": "a third"},
            {"type": "text", "text": "two"},
        ]}));
        assert_eq!(
            text.unwrap(),
            "one\n[image, image/png, 5 bytes, not shown]\n[audio, audio/wav, 5 bytes, not shown]\n\
             [resource file:///a]\ninside\n[resource file:///b, unknown type, 5 bytes, not shown]\n\
             [link to resource file:///c (c): a third]\ntwo"
        );
    }

    #[test]
    fn structured_content_is_shown_once() {
        let value = json!({"sum": 3});
        assert_eq!(of(json!({"content": [], "structuredContent": value})).unwrap(), "{\n  \"sum\": 3\n}");
        let both = json!({"content": [{"type": "text", "text": "{\"sum\":3}"}], "structuredContent": value});
        assert_eq!(of(both).unwrap(), "{\"sum\":3}");
        let other =
            json!({"content": [{"type": "text", "text": "It is three."}], "structuredContent": value});
        assert_eq!(of(other).unwrap(), "It is three.\n{\n  \"sum\": 3\n}");
    }

    #[test]
    fn an_error_is_one_and_nothing_is_said_to_be_nothing() {
        let failed = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(of(failed).unwrap_err(), "no such file");
        assert_eq!(of(json!({"content": []})).unwrap(), "(no content)");
    }
}
