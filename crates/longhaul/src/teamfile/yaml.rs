//! YAML as a tree in which every node knows its position.

use serde::Deserialize;
use serde_saphyr::{Location, MessageFormatter as _, Spanned, UserMessageFormatter};

use super::problem::{Problem, ProblemKind, ProblemList, SourceSpan};
use super::reader::shorten;
use crate::model::yaml_tree::YamlTree;

/// The largest team file, in bytes.
pub const MAX_TEAM_FILE_BYTES: usize = 1 << 20;

/// The longest key in bytes. A key is part of the path of everything below it.
const LONGEST_KEY: usize = 256;

/// A YAML node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlNode {
    pub(super) at: SourceSpan,
    pub(super) kind: YamlKind,
    /// The scalar as written, if it is a number or another word that YAML interprets.
    written: Option<Box<str>>,
}

/// The kind of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum YamlKind {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<(YamlKey, YamlNode)>),
}

/// A key of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlKey {
    pub(super) at: SourceSpan,
    pub(super) name: String,
}

impl YamlNode {
    /// A scalar as written; `None` for lists, maps and null.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            YamlKind::Text(text) => Some(text),
            YamlKind::Bool(_) | YamlKind::Int(_) | YamlKind::Float(_) => self.written.as_deref(),
            YamlKind::Null | YamlKind::List(_) | YamlKind::Map(_) => None,
        }
    }

    /// A description of the node for messages.
    pub(super) fn describe(&self) -> &'static str {
        match &self.kind {
            YamlKind::Null => "nothing",
            YamlKind::Bool(_) => "true or false",
            YamlKind::Int(_) | YamlKind::Float(_) => "a number",
            YamlKind::Text(_) => "a string",
            YamlKind::List(_) => "a list",
            YamlKind::Map(_) => "a map",
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, name: &str) -> Option<&YamlNode> {
        match &self.kind {
            YamlKind::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
            _ => None,
        }
    }
}

/// Parses YAML into a tree. Invalid YAML is a single problem; each duplicate key is one more.
pub(super) fn parse_yaml(text: &str) -> Result<(YamlNode, ProblemList), Problem> {
    if text.len() > MAX_TEAM_FILE_BYTES {
        let message =
            format!("the file has {} bytes; a team file has at most {MAX_TEAM_FILE_BYTES}", text.len());
        return Err(Problem::error(SourceSpan::START, "", message));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: 50_000,
            max_events: 150_000,
            max_depth: 48,
            flow_nesting_limit: 48,
            max_documents: 1,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
            max_recorded_anchor_events: 50_000,
            max_total_scalar_bytes: MAX_TEAM_FILE_BYTES,
        },
        // Accept duplicate keys here, so that all of them can be reported.
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let source = YamlSource { text, lines: line_starts(text) };
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(
            Problem::error(SourceSpan::START, "", "the file is empty").with_kind(ProblemKind::EmptyFile)
        );
    }
    let raw: Spanned<YamlTree<RawKey>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().map_or(SourceSpan::START, |at| source.span(at));
            let message = UserMessageFormatter.format_message(error.without_snippet()).into_owned();
            let message = match message.as_str() {
                text if text.contains("tabs disallowed") => {
                    "YAML must be indented with spaces, and here is a tab".to_owned()
                }
                text if text.contains("Documents {") => {
                    "a team file must be a single YAML document, and a second one begins here".to_owned()
                }
                text if text.contains("limits breached") || text.contains("recursion limit") => {
                    "the file is nested too deeply, or has too many parts or aliases".to_owned()
                }
                _ => message,
            };
            Problem::error(at, "", message)
                .with_help("the YAML parser stopped here; there may be more errors")
        })?;
    let mut problems = ProblemList::default();
    let node = source.node(raw, &mut problems);
    Ok((node, problems))
}

/// A key as the YAML parser reads it: any value, because a wrong one is reported with its position.
#[derive(Deserialize)]
#[serde(transparent)]
struct RawKey(Spanned<YamlTree<RawKey>>);

struct YamlSource<'a> {
    text: &'a str,
    lines: Vec<usize>,
}

/// The offset at which each line begins.
fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

impl YamlSource<'_> {
    /// Converts a position, clamped to the file.
    fn span(&self, at: Location) -> SourceSpan {
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let line = count(at.line()).clamp(1, count(self.lines.len() as u64));
        let begin = self.lines.get(line as usize - 1).copied().unwrap_or_default();
        let end = self.lines.get(line as usize).copied().unwrap_or(self.text.len());
        let width = self.text.get(begin..end).map_or(0, |line| line.trim_end().chars().count());
        let column = count(at.column()).clamp(1, count(width as u64) + 1);
        let length = count(at.span().len()).clamp(1, (count(width as u64) + 1 - column).max(1));
        SourceSpan { line, column, length }
    }

    fn written(&self, at: Location) -> Option<Box<str>> {
        let (offset, len) = (at.span().byte_offset()?, at.span().byte_len()?);
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        self.text.get(offset..offset.checked_add(len)?).map(|text| text.trim().into())
    }

    fn node(&self, raw: Spanned<YamlTree<RawKey>>, problems: &mut ProblemList) -> YamlNode {
        let at = self.span(raw.defined);
        let scalar = matches!(raw.value, YamlTree::Bool(_) | YamlTree::Int(_) | YamlTree::Float(_));
        let written = if scalar { self.written(raw.defined) } else { None };
        let kind = match raw.value {
            YamlTree::Null => YamlKind::Null,
            YamlTree::Text(text) => YamlKind::Text(text),
            YamlTree::Bool(value) => YamlKind::Bool(value),
            YamlTree::Int(value) => i64::try_from(value).map_or(YamlKind::Float(value as f64), YamlKind::Int),
            YamlTree::Float(value) => YamlKind::Float(value),
            YamlTree::List(items) => {
                YamlKind::List(items.into_iter().map(|item| self.node(item, problems)).collect())
            }
            YamlTree::Map(fields) => {
                let mut map: Vec<(YamlKey, YamlNode)> = Vec::with_capacity(fields.len());
                let mut seen = std::collections::HashMap::with_capacity(fields.len());
                for (RawKey(key), value) in fields {
                    let key = self.node(key, problems);
                    let value = self.node(value, problems);
                    let Some(name) = key.as_text().map(str::to_owned) else {
                        let message = format!("a key must be a string, not {}", key.describe());
                        problems.push(Problem::error(key.at, "", message));
                        continue;
                    };
                    if name.len() > LONGEST_KEY {
                        let message =
                            format!("the key '{}' is longer than {LONGEST_KEY} bytes", shorten(&name));
                        problems.push(Problem::error(key.at, "", message).with_help("shorten it"));
                        continue;
                    }
                    if let Some(first) = seen.insert(name.clone(), key.at) {
                        // The map's own key overrides a merged one.
                        let message = format!("the key '{name}' comes twice in one map");
                        let help = format!("the first is in line {}; keep one of them", first.line);
                        problems.push(Problem::error(key.at, &name, message).with_help(help));
                        continue;
                    }
                    map.push((YamlKey { at: key.at, name }, value));
                }
                YamlKind::Map(map)
            }
        };
        YamlNode { at, kind, written }
    }
}
