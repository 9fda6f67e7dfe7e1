//! Colours, and the width from which all columns are shown.

use ratatui_core::style::{Color, Modifier, Style};

pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const BAD: Style = Style::new().fg(Color::Red);
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Narrower screens have fewer columns.
pub(super) const NARROW: usize = 100;
