//! Syntax highlighting. Grammars classify the words; the colours are chosen here to be readable on dark and
//! light terminals.

use std::sync::OnceLock;

use anstyle::AnsiColor;
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use super::span::{FAINT, MarkdownSpan, Style};

/// Longer lines, and longer code, are not highlighted: it would take too long.
const LONGEST: usize = 1000;
const MOST: usize = 2000;

/// The grammars, loaded on first use.
#[derive(Default)]
pub(crate) struct SyntaxHighlighter(OnceLock<SyntaxGrammars>);

struct SyntaxGrammars {
    all: SyntaxSet,
    scope_styles: Vec<(Scope, Style)>,
}

impl SyntaxHighlighter {
    /// Highlights code, and returns its lines.
    pub(super) fn highlight(&self, language: &str, code: &str) -> Vec<Vec<MarkdownSpan>> {
        let plain = |line: &str| vec![MarkdownSpan::new(Style::new(), line)];
        let near =
            Some(grammar_name(language)).filter(|near| !near.is_empty() && code.lines().count() <= MOST);
        let grammars = near.as_ref().map(|_| self.0.get_or_init(SyntaxGrammars::load));
        let found =
            grammars.zip(near).and_then(|(all, near)| Some((all, all.all.find_syntax_by_token(&near)?)));
        let Some((grammars, grammar)) = found else { return code.lines().map(plain).collect() };
        let mut state = ParseState::new(grammar);
        let mut stack = ScopeStack::new();
        code.lines()
            .map(|line| match line.len() > LONGEST {
                true => plain(line),
                false => grammars.line(&mut state, &mut stack, line).unwrap_or_else(|| plain(line)),
            })
            .collect()
    }
}

/// Returns the grammar name of a language, or of a similar one if it has none.
fn grammar_name(language: &str) -> String {
    let language = language.to_lowercase();
    let near = match language.as_str() {
        "text" | "txt" | "plain" => "",
        "typescript" | "ts" | "tsx" | "jsx" | "node" => "js",
        "shell" | "console" | "shell-session" | "zsh" => "bash",
        "toml" | "ini" | "env" => "properties",
        "jsonl" | "json5" | "jsonc" => "json",
        "golang" => "go",
        "kotlin" | "kt" => "java",
        other => other,
    };
    near.to_owned()
}

impl SyntaxGrammars {
    fn load() -> SyntaxGrammars {
        let color = |color: AnsiColor| color.on_default();
        let scope_styles = [
            ("comment", FAINT),
            ("string", color(AnsiColor::Green)),
            ("constant.numeric", color(AnsiColor::Yellow)),
            ("constant", color(AnsiColor::Yellow)),
            ("keyword.operator", Style::new()),
            ("keyword", color(AnsiColor::Magenta)),
            ("storage", color(AnsiColor::Magenta)),
            ("entity.name.function", color(AnsiColor::Blue)),
            ("support.function", color(AnsiColor::Blue)),
            ("variable.function", color(AnsiColor::Blue)),
            ("entity.name", color(AnsiColor::Cyan)),
            ("support.type", color(AnsiColor::Cyan)),
            ("markup.inserted", color(AnsiColor::Green)),
            ("markup.deleted", color(AnsiColor::Red)),
        ];
        let scope_styles = scope_styles
            .into_iter()
            .filter_map(|(name, style)| Some((Scope::new(name).ok()?, style)))
            .collect();
        SyntaxGrammars { all: SyntaxSet::load_defaults_newlines(), scope_styles }
    }

    fn line(&self, state: &mut ParseState, stack: &mut ScopeStack, line: &str) -> Option<Vec<MarkdownSpan>> {
        let ended = format!("{line}\n");
        let changes = state.parse_line(&ended, &self.all).ok()?;
        let mut spans = Vec::new();
        let mut from = 0;
        for (at, change) in changes {
            let at = at.min(line.len());
            if at > from {
                spans.push(MarkdownSpan::new(self.style_of(stack), &line[from..at]));
                from = at;
            }
            stack.apply(&change).ok()?;
        }
        if from < line.len() {
            spans.push(MarkdownSpan::new(self.style_of(stack), &line[from..]));
        }
        Some(spans)
    }

    /// The innermost scope with a colour decides.
    fn style_of(&self, stack: &ScopeStack) -> Style {
        let of = |scope: &Scope| {
            self.scope_styles.iter().find(|(ink, _)| ink.is_prefix_of(*scope)).map(|(_, style)| *style)
        };
        stack.as_slice().iter().rev().find_map(of).unwrap_or_default()
    }
}
