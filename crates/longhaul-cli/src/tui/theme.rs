//! Colours: few, the terminal's own, and none if the user wants none.

use anstyle::{AnsiColor, Effects};
use ratatui::style::{Color, Modifier, Style};

use crate::view::Ink;

/// The colour theme.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Theme {
    /// Whether to use colours. Bold, dim and reversed are always used.
    pub(crate) color: bool,
}

impl Theme {
    pub(crate) fn ink(self, ink: Ink) -> Style {
        let plain = Style::new();
        let color = |color: Color| if self.color { plain.fg(color) } else { plain };
        match ink {
            Ink::Plain => plain,
            Ink::Strong => plain.add_modifier(Modifier::BOLD),
            Ink::Faint => plain.add_modifier(Modifier::DIM),
            Ink::Id | Ink::Busy => color(Color::Cyan),
            Ink::Good => color(Color::Green),
            Ink::Bad => color(Color::Red).add_modifier(Modifier::BOLD),
            Ink::Attention => color(Color::Yellow),
        }
    }

    pub(crate) fn convert_style(self, style: anstyle::Style) -> Style {
        let mut same = Style::new();
        if let Some(anstyle::Color::Ansi(color)) = style.get_fg_color().filter(|_| self.color) {
            same = same.fg(match color {
                AnsiColor::Red => Color::Red,
                AnsiColor::Green => Color::Green,
                AnsiColor::Yellow => Color::Yellow,
                AnsiColor::Blue => Color::Blue,
                AnsiColor::Magenta => Color::Magenta,
                AnsiColor::Cyan => Color::Cyan,
                _ => Color::Reset,
            });
        }
        for (effect, modifier) in [
            (Effects::BOLD, Modifier::BOLD),
            (Effects::DIMMED, Modifier::DIM),
            (Effects::ITALIC, Modifier::ITALIC),
            (Effects::UNDERLINE, Modifier::UNDERLINED),
            (Effects::STRIKETHROUGH, Modifier::CROSSED_OUT),
        ] {
            if style.get_effects().contains(effect) {
                same = same.add_modifier(modifier);
            }
        }
        same
    }

    /// The style of the selected line in the focused pane.
    pub(crate) fn selected(self) -> Style {
        // One solid bar, whatever colours are below it.
        Style::new().fg(Color::Reset).remove_modifier(Modifier::DIM).add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn search_match(self) -> Style {
        let style = Style::new().remove_modifier(Modifier::DIM | Modifier::REVERSED);
        match self.color {
            true => style.fg(Color::Black).bg(Color::Yellow),
            false => style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
        }
    }

    pub(crate) fn title(self, focused: bool) -> Style {
        if focused { self.ink(Ink::Id).add_modifier(Modifier::BOLD) } else { self.ink(Ink::Plain) }
    }
}
