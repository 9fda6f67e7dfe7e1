//! The terminal while `top` uses it, and its restoration.

use std::io::{self, Stdout, Write, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use inspect::top::{Key, ScreenState, TopView, draw};
use nix::sys::signal::{Signal, raise};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::Show;
use ratatui_crossterm::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// The terminal in raw mode, on the alternate screen. Restored on drop, and before a panic is
/// reported.
pub(super) struct RawTerminal {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// The terminal must be restored.
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

impl RawTerminal {
    /// Takes over the terminal of standard output.
    pub(super) fn open() -> io::Result<Self> {
        let report = panic::take_hook();
        // The program aborts after a panic, so nothing is dropped.
        panic::set_hook(Box::new(move |info| {
            restore();
            report(info);
        }));
        change()?;
        // From here on an error restores the terminal.
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        terminal.map(|terminal| Self { terminal }).inspect_err(|_| restore())
    }

    /// Draws a view.
    pub(super) fn draw(&mut self, view: &TopView, state: &mut ScreenState) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, view, state)).map(drop)
    }

    /// Stops the program like Ctrl-Z elsewhere, and takes over the terminal again afterwards.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        raise(Signal::SIGTSTP)?;
        change()?;
        self.terminal.clear()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn change() -> io::Result<()> {
    IS_CHANGED.store(true, Ordering::SeqCst);
    let changed = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen));
    changed.inspect_err(|_| restore())
}

/// Restores the terminal once. An error means that it no longer exists.
fn restore() {
    if IS_CHANGED.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = stdout().flush();
    }
}

/// Returns the key of an event; `None` if it has no function.
pub(super) fn pressed(event: &Event) -> Option<Key> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    Some(match (*code, modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('c'), true) | (KeyCode::Char('q' | 'Q') | KeyCode::Esc, false) => Key::Quit,
        (KeyCode::Char('z'), true) => Key::Suspend,
        (KeyCode::Tab, _) => Key::Next,
        (KeyCode::BackTab, _) => Key::Previous,
        (KeyCode::Up, _) | (KeyCode::Char('k'), false) => Key::Up,
        (KeyCode::Down, _) | (KeyCode::Char('j'), false) => Key::Down,
        (KeyCode::PageUp, _) => Key::PageUp,
        (KeyCode::PageDown | KeyCode::Char(' '), false) => Key::PageDown,
        (KeyCode::Home, _) => Key::Home,
        (KeyCode::End, _) => Key::End,
        (KeyCode::Char('s'), false) => Key::Sort,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_meaning_with_and_without_control() {
        let press = |code, modifiers| pressed(&Event::Key(KeyEvent::new(code, modifiers)));
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        assert_eq!(press(KeyCode::Char('q'), none), Some(Key::Quit));
        assert_eq!(press(KeyCode::Char('c'), control), Some(Key::Quit));
        assert_eq!(press(KeyCode::Char('c'), none), None);
        assert_eq!(press(KeyCode::Char('s'), control), None);
        assert_eq!(press(KeyCode::Char('z'), control), Some(Key::Suspend));
        assert_eq!(press(KeyCode::BackTab, KeyModifiers::SHIFT), Some(Key::Previous));
        assert_eq!(press(KeyCode::PageDown, none), Some(Key::PageDown));
        let release = KeyEvent { kind: KeyEventKind::Release, ..KeyCode::Char('q').into() };
        assert_eq!(pressed(&Event::Key(release)), None);
        assert_eq!(pressed(&Event::Resize(80, 24)), None);
    }
}
